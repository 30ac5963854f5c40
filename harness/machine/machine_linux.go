package machine

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"attnlab/harness/run"

	"golang.org/x/sys/unix"
)

// system fills in what only the operating system knows.
func system(f *run.Fingerprint) {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	if n, ok := Field("/proc/meminfo", "MemTotal"); ok {
		f.RAM = n
	}
	if f.CPU == "" {
		f.CPU = model()
	}
	f.Governor = word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	switch {
	case word("/sys/devices/system/cpu/intel_pstate/no_turbo") == "0", word("/sys/devices/system/cpu/cpufreq/boost") == "1":
		f.Turbo = "on"
	case word("/sys/devices/system/cpu/intel_pstate/no_turbo") == "1", word("/sys/devices/system/cpu/cpufreq/boost") == "0":
		f.Turbo = "off"
	}
	if _, chosen, ok := strings.Cut(word("/sys/kernel/mm/transparent_hugepage/enabled"), "["); ok {
		f.LargePages, _, _ = strings.Cut(chosen, "]")
	}
	switch word("/sys/devices/system/cpu/smt/active") {
	case "1":
		f.SMT = "on"
	case "0":
		f.SMT = "off"
	}
}

// word returns the content of a one-line file, empty if it cannot be read.
func word(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Field returns the bytes of a line "name: n kB" of a file in /proc.
func Field(path, name string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// model returns the processor's name from the system, for CPUs without cpuid.
func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	parts := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		k, v, _ := strings.Cut(lines.Text(), ":")
		if k = strings.TrimSpace(k); parts[k] == "" {
			parts[k] = strings.TrimSpace(v)
		}
	}
	switch {
	case parts["model name"] != "":
		return parts["model name"]
	case parts["CPU part"] != "":
		return "CPU implementer " + parts["CPU implementer"] + " part " + parts["CPU part"]
	}
	return ""
}

// Available returns the bytes that a new process may use without swapping, within the limit of its
// container if there is one.
func Available() (int64, bool) {
	n, ok := Field("/proc/meminfo", "MemAvailable")
	for _, g := range []struct{ limit, used string }{
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
	} {
		limit, err1 := strconv.ParseInt(word(g.limit), 10, 64)
		used, err2 := strconv.ParseInt(word(g.used), 10, 64)
		if err1 == nil && err2 == nil && (!ok || limit-used < n) {
			n, ok = max(limit-used, 0), true
		}
	}
	return n, ok
}

// A Usage is the time of all processors since the machine started, in ticks.
type Usage struct{ Busy, Steal, Total uint64 }

// ReadUsage returns the usage so far; ok is false where the system does not tell.
func ReadUsage() (u Usage, ok bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; user includes the
	// guests.
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return u, false
	}
	for i, s := range f[1:9] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return u, false
		}
		u.Total += n
		switch i {
		case 3, 4: // idle, iowait
		case 7:
			u.Steal = n
		default:
			u.Busy += n
		}
	}
	return u, true
}

// Pressure returns the share of the last minute in which some task waited for a CPU; ok is false
// where the system does not tell.
func Pressure() (share float64, ok bool) {
	for field := range strings.FieldsSeq(word("/proc/pressure/cpu")) { // some avg10=0 avg60=0 ...
		if v, found := strings.CutPrefix(field, "avg60="); found {
			percent, err := strconv.ParseFloat(v, 64)
			return percent / 100, err == nil
		}
	}
	return 0, false
}
