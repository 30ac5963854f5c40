package survey

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/harness/study"
	"attnlab/kernels/asm"
)

// quickly returns a surveyor of this machine that takes few and short readings.
func quickly() *Surveyor {
	return &Surveyor{Sets: asm.Levels(), Effort: harness.Effort{Probe: time.Millisecond}, Readings: 3, Tries: 10}
}

// TestPeaks checks that every set of this machine has a peak, and that noise is described.
func TestPeaks(t *testing.T) {
	s := quickly()
	peaks, noise := s.Peaks()
	isas := s.Sets.Available()
	if len(peaks) != len(isas) {
		t.Fatalf("%d peaks, want %d", len(peaks), len(isas))
	}
	for i, p := range peaks {
		if p.ISA != isas[i] || !(p.Flop > 0) || math.IsInf(p.Flop, 0) {
			t.Errorf("peak %d: got %+v, want one of %s", i, p, isas[i])
		}
		if noise["drift of the "+p.ISA+" probe"] == "" {
			t.Errorf("no drift of %s in %v", p.ISA, noise)
		}
	}
}

// TestLevels checks which sizes are read for the caches of a machine.
func TestLevels(t *testing.T) {
	got := levels([]run.Cache{{Name: "L1d", Bytes: 32 << 10}, {Name: "L2", Bytes: 1 << 20}})
	if len(got) < 2 || got[0] != (run.Cache{Name: "L1d", Bytes: 16 << 10}) || got[1] != (run.Cache{Name: "L2", Bytes: 512 << 10}) {
		t.Fatalf("got %v, want half of each cache first", got)
	}
	for _, m := range got[2:] { // if there is room for it
		if m.Name != "memory" || m.Bytes <= unreported || m.Bytes > 4*unreported {
			t.Errorf("behind the caches: got %v", m)
		}
	}
}

// TestMemory checks that a cache is read with every set of this machine.
func TestMemory(t *testing.T) {
	s := quickly()
	read := map[string]int{}
	for _, m := range s.Memory([]run.Cache{{Name: "L1d", Bytes: 32 << 10}}) {
		if !(m.Read.PerSecond > 0 && m.Update.PerSecond > 0) {
			t.Errorf("%+v: want two rates", m)
		}
		read[m.Level+"/"+m.ISA]++
	}
	for _, isa := range s.Sets.Available() {
		if read["L1d/"+isa] != 1 {
			t.Errorf("L1d was read %d times with %s, want once", read["L1d/"+isa], isa)
		}
	}
}

// TestProbes checks that a point is judged by the probes of its own set, or by those of the fastest
// one.
func TestProbes(t *testing.T) {
	s := quickly()
	probes := Probes(s.Sets)
	for _, isa := range []string{"go", "blas"} {
		if p := probes(run.Point{ISA: isa}); p.Peak == nil || p.Read == nil || p.Update == nil || p.Peak(1) <= 0 {
			t.Errorf("%s: got %+v", isa, p)
		}
	}
}

// TestDiagnosisIsKept checks that a diagnosis is found again on this machine and on no other, and
// that a damaged one is an error that says what to do.
func TestDiagnosisIsKept(t *testing.T) {
	cache := t.TempDir()
	// The cache folders of Linux, macOS and Windows.
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, cache)
	}
	isas := quickly().Sets.Available()
	if d, err := Diagnosed(isas); err != nil || d.Studies != nil {
		t.Fatalf("before there is one: got %+v, %v", d, err)
	}
	arithmetic, memory := run.Point{SeqQ: 8, SeqKV: 8}, run.Point{SeqQ: 1, SeqKV: 8}
	want := Diagnosis{
		Machine: machine.Fingerprint(isas), Time: time.Unix(1e9, 0).UTC(), Slots: map[string]float64{"go": 4},
		Studies: []study.Result{{Point: arithmetic, Floor: 0.01}, {Point: memory, Floor: 0.03}, {Point: memory, Floor: 0.02}},
	}
	if err := want.Keep(); err != nil {
		t.Fatal(err)
	}
	got, err := Diagnosed(isas)
	if err != nil || len(got.Studies) != 3 || !reflect.DeepEqual(got.Slots, want.Slots) || !got.Time.Equal(want.Time) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if floors := got.Floors(); !reflect.DeepEqual(floors, map[string]float64{run.ProbeFlop: 0.01, run.ProbeBytes: 0.03}) {
		t.Errorf("got floors %v, want the largest of each unit", floors)
	}
	if d, err := Diagnosed(append(isas, "more")); err != nil || d.Studies != nil {
		t.Errorf("on another machine: got %+v, %v", d, err)
	}
	path, err := diagnosisFile()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(path, filepath.Clean(cache)) {
		t.Fatalf("the diagnosis is kept in %s, not in %s", path, cache)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Diagnosed(isas); err == nil || !strings.Contains(err.Error(), "run benchrun doctor again") {
		t.Errorf("a damaged one: got %v", err)
	}
}

// TestLook checks that a diagnosis keeps the most instructions of several looks.
func TestLook(t *testing.T) {
	s := quickly()
	d := Diagnosis{Slots: map[string]float64{"go": 1e9}}
	d.Look(s)
	if d.Slots["go"] != 1e9 || len(d.Slots) != len(s.Sets.Available()) {
		t.Errorf("got %v, want 1e9 for go and a figure for each set", d.Slots)
	}
}
