package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process and its children have used.
type Usage struct {
	CPU    time.Duration // user and system time since their start, of ended children too
	Memory int64         // bytes in memory; what processes share is counted once (PSS)
}

// clockTick is the unit of /proc/<pid>/stat: USER_HZ is 100 on Linux.
const clockTick = 10 * time.Millisecond

// UsageOf reads /proc for a process and all that descend from it.
func UsageOf(pid int) (Usage, error) {
	family, err := descendants(pid)
	if err != nil {
		return Usage{}, err
	}
	var sum Usage
	for _, p := range family {
		stat, err := readStat(p)
		if err != nil {
			if p == pid {
				return sum, err
			}
			continue // ended meanwhile: its time is its parent's
		}
		sum.CPU += stat.cpu
		sum.Memory += memory(p)
	}
	return sum, nil
}

// UsageAlone is UsageOf without what descends from the process.
func UsageAlone(pid int) (Usage, error) {
	stat, err := readStat(pid)
	return Usage{CPU: stat.own, Memory: memory(pid)}, err
}

type procStat struct {
	parent int
	own    time.Duration
	cpu    time.Duration // with that of ended children
}

// readStat takes the parent (field 4) and times (14 to 17) from proc(5)'s stat.
func readStat(pid int) (procStat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(data))
}

func parseStat(line string) (procStat, error) {
	// The name in parentheses may hold anything: count from behind it.
	end := strings.LastIndex(line, ") ")
	if end < 0 {
		return procStat{}, fmt.Errorf("not understood: %.80q", line)
	}
	fields := strings.Fields(line[end+2:])
	if len(fields) < 15 {
		return procStat{}, fmt.Errorf("not understood: %.80q", line)
	}
	var s procStat
	var err error
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return s, err
	}
	for i, f := range fields[11:15] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return s, err
		}
		s.cpu += time.Duration(ticks) * clockTick
		if i < 2 {
			s.own = s.cpu
		}
	}
	return s, nil
}

func descendants(root int) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		if s, err := readStat(pid); err == nil {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	family := []int{root}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// memory is the proportional set size, or the resident one where that may not be read.
func memory(pid int) int64 {
	if kib := procLine(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:"); kib > 0 {
		return kib << 10
	}
	return procLine(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:") << 10
}

func procLine(path, name string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib
		}
	}
	return 0
}
