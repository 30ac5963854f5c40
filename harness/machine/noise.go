package machine

import (
	"fmt"
	"slices"
)

// Stolen returns the share of the time between two readings in which the hypervisor ran another
// machine.
func (u Usage) Stolen(later Usage) float64 { return share(later.Steal-u.Steal, later.Total-u.Total) }

// Load returns the share of the time between two readings in which the processors were busy.
func (u Usage) Load(later Usage) float64 { return share(later.Busy-u.Busy, later.Total-u.Total) }

func share(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Drift returns the median of readings of one rate, and the distance of their first and last
// deciles relative to it. Deciles show how the clock wanders and leave out the few interrupted
// readings.
func Drift(rates []float64) (median, spread float64) {
	if len(rates) == 0 {
		return 0, 0
	}
	r := slices.Sorted(slices.Values(rates))
	at := func(q float64) float64 { return r[int(q*float64(len(r)-1)+0.5)] }
	median = at(0.5)
	return median, (at(0.9) - at(0.1)) / median
}

// Percent formats a share.
func Percent(x float64) string { return fmt.Sprintf("%.3g %%", 100*x) }
