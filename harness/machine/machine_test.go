package machine

import (
	"math"
	"runtime"
	"slices"
	"testing"
)

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
	if c := Clock(); !(c > 0) || math.IsInf(c, 0) {
		t.Errorf("clock %v", c)
	}
}

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
