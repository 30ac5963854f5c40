package curve

import (
	"bytes"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash"
	"attnlab/kernels/linear"
	"attnlab/kernels/naive"
)

// TestMeasure checks which kernels are measured at which lengths, and that memory grows as it must:
// n x n where every weight is written out, not at all in linear attention.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: 5000 rows take seconds on portable loops")
	}
	var told bytes.Buffer
	portable := asm.Levels()[0].Ops
	m, err := Measure([]attn.Kernel{naive.New(), flash.New(portable), linear.New(portable)}, &told)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Timing naive/go up to 2000 rows.\nTiming flash/go up to 5000 rows.\nTiming linear/go up to 5000 rows.\n"; told.String() != want {
		t.Errorf("told %q, want %q", told.String(), want)
	}
	if len(m.Seconds) != 3 || len(m.Bytes) != 3 {
		t.Fatalf("%d curves of time and %d of memory, want 3", len(m.Seconds), len(m.Bytes))
	}
	for i, want := range [][]float64{{100, 500, 1000, 2000}, {100, 500, 1000, 2000, 5000}, {100, 500, 1000, 2000, 5000}} {
		for _, c := range []struct{ N, Value []float64 }{{m.Seconds[i].N, m.Seconds[i].Value}, {m.Bytes[i].N, m.Bytes[i].Value}} {
			if !slices.Equal(c.N, want) || len(c.Value) != len(want) || slices.Min(c.Value) <= 0 {
				t.Errorf("curve %d is %v at %v, want positive values at %v", i, c.Value, c.N, want)
			}
		}
	}
	if b := m.Bytes[0].Value; b[3] < 100*b[0] {
		t.Errorf("weights of 100 and of 2000 rows take %v and %v bytes", b[0], b[3])
	}
	if b := m.Bytes[2].Value; b[4] > 2*b[0] {
		t.Errorf("linear attention over 100 and over 5000 rows takes %v and %v bytes", b[0], b[4])
	}
}

// TestMeasureWithoutKernels checks that a list without kernels has no curves.
func TestMeasureWithoutKernels(t *testing.T) {
	if m, err := Measure(nil, new(bytes.Buffer)); err != nil || len(m.Seconds) != 0 || len(m.Bytes) != 0 {
		t.Errorf("got %+v, %v", m, err)
	}
}
