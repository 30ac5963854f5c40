package machine

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestFingerprint checks that the fingerprint of this machine has what every system tells.
func TestFingerprint(t *testing.T) {
	f := Fingerprint([]string{"go", "best"})
	if f.CPU == "" || f.CPUs < 1 || f.OS != runtime.GOOS || f.Arch != runtime.GOARCH || f.Go != runtime.Version() ||
		!slices.Equal(f.ISA, []string{"go", "best"}) {
		t.Errorf("%+v", f)
	}
	if d := f.Differences(Fingerprint([]string{"go", "best"})); len(d) > 0 {
		t.Errorf("the machine differs from itself: %v", d)
	}
	for _, c := range f.Caches {
		if c.Bytes <= 0 {
			t.Errorf("cache %s of %d bytes: what is unknown is absent", c.Name, c.Bytes)
		}
	}
	if runtime.GOOS == "linux" && (f.Kernel == "" || f.RAM <= 0) {
		t.Errorf("Linux tells its version and memory: %+v", f)
	}
}

// TestSystemFigures checks that the figures of the system are possible, and absent where unknown.
func TestSystemFigures(t *testing.T) {
	if n, ok := Available(); ok != (runtime.GOOS == "linux") || ok && n <= 0 {
		t.Errorf("available memory %d, %v", n, ok)
	}
	a, ok := ReadUsage()
	if ok != (runtime.GOOS == "linux") {
		t.Fatalf("usage is told: %v", ok)
	}
	b, _ := ReadUsage()
	if b.Total < a.Total || b.Busy < a.Busy || b.Busy+b.Steal > b.Total {
		t.Errorf("usage went from %+v to %+v", a, b)
	}
}

// TestUsage checks the shares of the time between two readings.
func TestUsage(t *testing.T) {
	a, b := Usage{Busy: 100, Steal: 10, Total: 1000}, Usage{Busy: 150, Steal: 12, Total: 1200}
	if got := a.Stolen(b); got != 0.01 {
		t.Errorf("stolen %v", got)
	}
	if got := a.Load(b); got != 0.25 {
		t.Errorf("load %v", got)
	}
	if got := a.Stolen(a); got != 0 {
		t.Errorf("in no time at all %v was stolen", got)
	}
}

// TestDrift checks the median and the distance of deciles.
func TestDrift(t *testing.T) {
	var rates []float64
	for i := range 101 {
		rates = append(rates, float64((i*37)%101)+100) // 100 to 200, shuffled
	}
	median, spread := Drift(rates)
	if median != 150 || math.Abs(spread-80.0/150) > 1e-12 {
		t.Errorf("median %v, spread %v", median, spread)
	}
	if m, s := Drift([]float64{7}); m != 7 || s != 0 {
		t.Errorf("one reading drifts by %v around %v", s, m)
	}
	if m, s := Drift(nil); m != 0 || s != 0 {
		t.Errorf("no readings: %v, %v", m, s)
	}
}

// TestLimit checks which rates per cycle are in doubt.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		lanes    float64
		perCycle float64
		sound    bool
	}{
		{16, 64, true},
		{16, 63, true},
		{16, 65.1, true},
		{16, 62.5, false},
		{16, 32.4, true},
		{16, 48, false},
		{16, 0, false},
		{16, math.NaN(), false},
		{8, 32, true},
		{8, 16.2, true},
		{8, 64, true},
		{8, 128, false},
		{4, 32, true},
		{256. / 3, 171, true},
		{256. / 3, 150, false},
		{1, 4, true},
		{1, 3, true},
	} {
		l := limit(c.lanes, c.perCycle*3e9, 3e9)
		if (l.Doubt == "") != c.sound || l.Clock != 3e9 {
			t.Errorf("%v FLOP per cycle on %v lanes: %+v, sound: %v", c.perCycle, c.lanes, l, c.sound)
		}
	}
}

// TestAgainst checks that a probe with twice the operations of the chain makes two in a cycle, and
// that slots count the tries without a busy sibling thread.
func TestAgainst(t *testing.T) {
	spin := func(rounds int) int64 {
		for begun := time.Now(); time.Since(begun) < time.Duration(rounds)*10*time.Microsecond; {
		}
		return int64(rounds)
	}
	tries := 0
	half := func(rounds int) int64 { // a sibling thread takes 3 of 5 slots in every other try
		if tries++; tries%2 == 0 {
			return 2 * spin(rounds)
		}
		return 5 * spin(rounds)
	}
	l := Against(1, func(rounds int) int64 { return 2 * spin(rounds) }, spin, half, Tries)
	if math.Abs(l.PerCycle-2) > 0.1 || l.Clock < 9e4 || l.Clock > 1e5 || math.Abs(l.Slots-5) > 0.25 {
		t.Errorf("%+v", l)
	}
}

// TestPerCycle checks that an occasional interruption does not count, and that a sibling thread
// that is busy for a third of the time does.
func TestPerCycle(t *testing.T) {
	const n = 40
	readings := func(rate float64, slowed int) []float64 {
		return append(slices.Repeat([]float64{rate}, n-slowed), slices.Repeat([]float64{rate / 2}, slowed)...)
	}
	for _, c := range []struct {
		begun, cycles []float64
		want          float64
	}{
		{readings(18, 0), readings(3, 0), 6},
		{readings(18, n/5), readings(3, n/3), 6},
		{readings(18, n/3), readings(3, 0), 3},
	} {
		if got := perCycle(c.begun, c.cycles); got != c.want {
			t.Errorf("%v instructions a cycle, want %v", got, c.want)
		}
	}
	if got := slow([]float64{6, 6, 3, 5.9}, 5.7); got != 0.25 {
		t.Errorf("%v of the readings are slow, want a quarter", got)
	}
}
