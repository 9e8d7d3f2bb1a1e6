package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of /proc/<pid>/stat: USER_HZ is 100 on Linux.
const clockTick = 10 * time.Millisecond

// cpuTimes gives the user and system time that processes have used so far
// (proc(5), fields 14 and 15).
func cpuTimes(pids []int) ([]time.Duration, error) {
	list := make([]time.Duration, len(pids))
	for i, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, err
		}
		// The name in parentheses may hold anything: count from behind it.
		_, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			return nil, fmt.Errorf("/proc/%d/stat is not understood", pid)
		}
		for _, f := range fields[11:13] {
			ticks, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return nil, err
			}
			list[i] += time.Duration(ticks) * clockTick
		}
	}
	return list, nil
}
