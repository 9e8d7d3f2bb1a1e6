package result

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// ThisMachine describes the machine, and the disk below dir. What cannot be found
// out stays empty.
func ThisMachine(dir string) Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: field("/proc/cpuinfo", "model name"), System: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`)}
	if kib, _, ok := strings.Cut(field("/proc/meminfo", "MemTotal"), " "); ok {
		n, _ := strconv.ParseInt(kib, 10, 64)
		m.Memory = n << 10
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	if out, err := exec.Command("df", "--output=fstype,source", dir).Output(); err == nil {
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); len(lines) > 1 {
			m.Disk = strings.Join(strings.Fields(lines[len(lines)-1]), " on ")
		}
	}
	return m
}

// field reads "name : value" or "name=value" from a file.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if i := strings.IndexAny(lines.Text(), ":="); i > 0 && strings.TrimSpace(lines.Text()[:i]) == name {
			return strings.TrimSpace(lines.Text()[i+1:])
		}
	}
	return ""
}
