package machine

import (
	"fmt"
	"slices"
)

// Stolen is the part of the time between two readings in which the hypervisor ran somebody else.
func (u Usage) Stolen(later Usage) float64 { return part(later.Steal-u.Steal, later.Total-u.Total) }

// Load is the part of the time between two readings in which the processors were busy.
func (u Usage) Load(later Usage) float64 { return part(later.Busy-u.Busy, later.Total-u.Total) }

func part(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Drift is how far readings of one rate lie apart, from the tenth part to the ninth, relative to
// their median: the clock's wander, without the few readings that an interruption spoilt.
func Drift(rates []float64) (median, spread float64) {
	if len(rates) == 0 {
		return 0, 0
	}
	r := slices.Sorted(slices.Values(rates))
	at := func(q float64) float64 { return r[int(q*float64(len(r)-1)+0.5)] }
	median = at(0.5)
	return median, (at(0.9) - at(0.1)) / median
}

// Percent formats a part of one.
func Percent(x float64) string { return fmt.Sprintf("%.3g %%", 100*x) }
