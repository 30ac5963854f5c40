package processtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Gone checks that no process of a process group is running. It waits for killed processes to end.
// Zombies do not count.
func Gone(t testing.TB, group int) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("SKIPPED: this system does not list its processes in /proc")
	}
	var left []string
	for range 1000 {
		if left = living(group); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("processes of group %d are still running: %s", group, strings.Join(left, "; "))
}

// living lists the processes of a group as the system describes them.
func living(group int) (list []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name in parentheses may hold any character; then come the state, the parent and the
		// group.
		stat := string(text)
		fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
		if len(fields) > 2 && fields[0] != "Z" && fields[0] != "X" && fields[2] == strconv.Itoa(group) {
			list = append(list, strings.TrimSpace(stat[:strings.LastIndex(stat, ")")+1]))
		}
	}
	return list
}
