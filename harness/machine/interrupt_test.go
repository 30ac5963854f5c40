package machine

import (
	"math"
	"testing"
	"time"
)

// TestWatch checks the interruptions of a clock that leaps by 100 µs each millisecond, and by 140
// µs each fourth.
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
	if math.Abs(got.PerSecond-1000) > 21 || math.Abs(got.Lost-0.11) > 0.003 || got.Typical != 100*time.Microsecond+50*time.Nanosecond {
		t.Errorf("%+v, want 1000 in a second, 100.05 µs, 11 %% of the time", got)
	}
}

// TestInterruptionsString checks the line that describes interruptions.
func TestInterruptionsString(t *testing.T) {
	i := Interruptions{1004.4, 35234 * time.Nanosecond, 0.0412}
	if got, want := i.String(), "1004 in a second, half of them 35.2µs or longer, 4.12 % of the time"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWatchUndisturbed checks that the time of a reading itself is no interruption.
func TestWatchUndisturbed(t *testing.T) {
	at := time.Duration(0)
	if got := watch(func() time.Duration { at += leastGap - 1; return at }); got != (Interruptions{}) || got.String() != "none" {
		t.Errorf("%+v, %q", got, got)
	}
}

// TestWatchHere checks that the figures of this machine are possible ones.
func TestWatchHere(t *testing.T) {
	if got := Watch(); !(got.Lost >= 0 && got.Lost <= 1) || got.PerSecond < 0 || got.PerSecond > float64(time.Second/leastGap) {
		t.Errorf("%+v", got)
	}
}
