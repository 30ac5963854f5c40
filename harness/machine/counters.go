package machine

import "strings"

// A Counter counts events of the CPU while a measurement lasts, without those of the operating
// system. It counts the calling thread, to which its goroutine must be locked, or for several
// threads the whole process. The function it returns ends the counting and returns the counts by
// name. An event that was not counted all the time is absent.
type Counter func(threads int) (stop func() map[string]int64)

// Names of events. In bench.txt they end in "/op".
const (
	Cycles       = "cycles"
	Instructions = "instructions"
	CacheMisses  = "cache-misses"
)

// DescribeCounters formats the result of Counters for people.
func DescribeCounters(names []string, err error) string {
	if err != nil {
		return "none: " + err.Error()
	}
	return strings.Join(names, ", ")
}
