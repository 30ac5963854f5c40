package reports

import (
	"fmt"
	"strings"

	"attnlab/harness/run"
)

// costTable returns the cost of features, types, pages and windows: a line for each point of a run
// that also has the point without them.
func costTable(r *run.Run) (header []string, lines [][]string) {
	for _, c := range r.Costs() {
		parts, features := groupParts(c.Plain)
		lines = append(lines, []string{
			strings.TrimSpace(c.Point.Kernel + " " + c.Point.ISA + " " + features), c.What, (&group{parts: parts}).title(), fmt.Sprint(c.Point.SeqKV),
			digits(c.Speed, 3), digits(c.Lo, 3), digits(c.Hi, 3), fmt.Sprint(c.Rounds),
		})
	}
	return []string{"kernel", "with", "against", "seq", "speed", "from", "to", "rounds"}, lines
}
