package harness

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestNeeded checks how many values narrow an interval as asked.
func TestNeeded(t *testing.T) {
	for _, c := range []struct {
		n                int
		width, precision float64
		least, want      int
	}{
		{0, math.Inf(1), 0.02, 6, 6},
		{3, math.Inf(1), 0.02, 6, 6},
		{6, 0.02, 0.02, 6, 6},
		{6, 0.01, 0.02, 6, 6},
		{6, 0.04, 0.02, 6, 24},
		{10, 0.06, 0.02, 6, 90},
		{10, 0.021, 0.02, 6, 12},
		{1000, 100, 1e-9, 6, math.MaxInt32},
	} {
		if got := Needed(c.n, c.width, c.precision, c.least); got != c.want {
			t.Errorf("%d values to ± %v, wanted ± %v: %d, want %d", c.n, c.width, c.precision, got, c.want)
		}
	}
}

// TestForecast checks the steps and the time left, with and without a budget.
func TestForecast(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		needed, taken int
		took, budget  time.Duration
		steps         int
		left          time.Duration
	}{
		{40, 0, 0, -1, 40, -1},    // no step was taken
		{40, 0, 0, 9 * s, 40, -1}, // nor with a budget
		{40, 10, 5 * s, -1, 40, 20 * s},
		{40, 10, 5 * s, 30 * s, 40, 20 * s},
		{40, 10, 5 * s, 8 * s, 16, 8 * s}, // the budget ends it
		{40, 10, 5 * s, 0, 0, 0},
		{0, 10, 5 * s, -1, 0, 0},
	} {
		if steps, left := Forecast(c.needed, c.taken, c.took, c.budget); steps != c.steps || left != c.left {
			t.Errorf("%+v: %d steps, %v", c, steps, left)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		needed, taken := rapid.IntRange(0, math.MaxInt32).Draw(t, "needed"), rapid.IntRange(1, 1<<20).Draw(t, "taken")
		took := time.Duration(rapid.Int64Range(1, math.MaxInt64/2).Draw(t, "took"))
		if steps, left := Forecast(needed, taken, took, -1); steps != needed || left < 0 {
			t.Errorf("%d steps, %v", steps, left)
		}
	})
}

// TestNeededFor checks how many samples bring the accepted ones to their number.
func TestNeededFor(t *testing.T) {
	for _, c := range []struct{ want, accepted, n, total int }{
		{0, 0, 0, 0}, {0, 3, 5, 5}, {31, 0, 0, 31}, {31, 0, 4, 35}, {31, 1, 4, 124}, {31, 10, 20, 62}, {31, 31, 40, 40}, {3, 2, 3, 5},
	} {
		if got := NeededFor(c.want, c.accepted, c.n); got != c.total {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
