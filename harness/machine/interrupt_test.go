package machine

import (
	"math"
	"testing"
	"time"
)

// A clock that leaps a hundred microseconds at every whole millisecond, and forty besides at every
// fourth, is interrupted as often as that.
func TestWatch(t *testing.T) {
	at, ms := time.Duration(0), time.Duration(0)
	got := watch(func() time.Duration {
		at += 50 * time.Nanosecond
		if at/time.Millisecond > ms {
			ms = at / time.Millisecond
			if at += 100 * time.Microsecond; ms%4 == 0 {
				at += 40 * time.Microsecond
			}
		}
		return at
	})
	if math.Abs(got.PerSecond-1000) > 21 || math.Abs(got.Lost-.11) > .003 || got.Typical != 100*time.Microsecond+50*time.Nanosecond {
		t.Errorf("%+v, want 1000 in a second, 100.05 µs, 11 %% of the time", got)
	}
}

func TestInterruptionsString(t *testing.T) {
	i := Interruptions{1004.4, 35234 * time.Nanosecond, .0412}
	if got, want := i.String(), "1004 in a second, half of them 35.2µs or longer, 4.12 % of the time"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A clock without leaps is not, and what a look at it takes is not taken for one.
func TestWatchUndisturbed(t *testing.T) {
	at := time.Duration(0)
	if got := watch(func() time.Duration { at += leastGap - 1; return at }); got != (Interruptions{}) || got.String() != "none" {
		t.Errorf("%+v, %q", got, got)
	}
}

// The machine's own clock gives numbers that can be.
func TestWatchHere(t *testing.T) {
	if got := Watch(); !(got.Lost >= 0 && got.Lost <= 1) || got.PerSecond < 0 || got.PerSecond > float64(time.Second/leastGap) {
		t.Errorf("%+v", got)
	}
}
