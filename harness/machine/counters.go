package machine

import "strings"

// A Counter counts events of the CPU while a measurement lasts: for one thread those of the calling
// thread, which must be locked to it, for more those of the whole process, the operating system's
// own left out. The function it returns ends the counting and gives the counts by name; what could
// not be counted, or only part of the time, is not among them.
type Counter func(threads int) (stop func() map[string]int64)

// Names of the events that are counted where the CPU does: those of bench.txt, less "/op".
const (
	Cycles       = "cycles"
	Instructions = "instructions"
	CacheMisses  = "cache-misses"
)

// DescribeCounters says for people what Counters found.
func DescribeCounters(names []string, err error) string {
	if err != nil {
		return "none: " + err.Error()
	}
	return strings.Join(names, ", ")
}
