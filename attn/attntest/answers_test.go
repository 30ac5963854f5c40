package attntest

import (
	"errors"
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// sample returns the core cases, with -short one in eight.
func sample() (some []cases.Case) {
	for i, c := range cases.Core() {
		if !testing.Short() || i%8 == 0 {
			some = append(some, c)
		}
	}
	return some
}

// TestComparedAsByTheOracle checks that kept answers give the oracle's verdict, the first time and
// later with other outputs.
func TestComparedAsByTheOracle(t *testing.T) {
	n := 0
	for _, c := range sample() {
		a, _, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		o, err := oracle.New(c.Problem, a)
		if errors.Is(err, attn.ErrUnsupported) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		n++
		for _, x := range []float32{0, 0.5, 0} {
			cases.Outputs(a, func(_ string, t *attn.Tensor) {
				cases.Rows(t, func(_, _, _ int, row []float32) {
					for i := range row {
						row[i] = x
					}
				})
			})
			want := o.Judge(oracle.Sample(&c.Problem, a, 24, c.Seed()))
			got, err := compared(c.Problem, a, 24, c.Seed())
			if math.IsInf(want.Worst, 1) { // Where is the first of several, in either order
				got.Where, want.Where = "", ""
			}
			if err != nil || got != want {
				t.Errorf("%v: got %+v, %v; want the oracle's %+v", &c, got, err, want)
			}
		}
	}
	if n < 20 {
		t.Errorf("compared %d cases, want 20 or more", n)
	}
}

// TestFingerprint checks that a change of any input number changes the fingerprint, and that the
// contents of the outputs do not.
func TestFingerprint(t *testing.T) {
	for _, c := range sample() {
		a, _, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		first := fingerprint(a)
		again, _, err := c.Args()
		if err != nil {
			t.Fatal(err)
		}
		cases.Outputs(again, func(_ string, t *attn.Tensor) { cases.Rows(t, func(_, _, _ int, row []float32) { clear(row) }) })
		if fingerprint(again) != first {
			t.Errorf("%v: the contents of the outputs change the fingerprint", &c)
		}
		differs := func(what string) {
			if fingerprint(a) == first {
				t.Errorf("%v: a change of %s does not change the fingerprint", &c, what)
			}
		}
		cases.Inputs(a, func(name string, x *attn.Tensor) {
			if x.Type != attn.F32 || x.Size() == 0 {
				return
			}
			last := &x.Row(x.B-1, x.S-1, x.H-1)[x.D-1]
			was := *last
			*last = math.Float32frombits(math.Float32bits(was) ^ 1)
			differs(name)
			*last = was
		})
		for _, x := range [][]float32{a.Terms.Slopes, a.Terms.Sinks} {
			if len(x) > 0 {
				was := x[0]
				x[0] = math.Float32frombits(math.Float32bits(was) ^ 1)
				differs("a number for a head")
				x[0] = was
			}
		}
		for _, x := range [][]int32{a.KLen, a.QPos, a.QStart, a.KStart, a.Pages} {
			if len(x) > 0 {
				x[0]++
				differs("a length, position, offset or page")
				x[0]--
			}
		}
		if m := &a.Allowed; len(m.Words) > 0 {
			m.Words[0] ^= 1
			differs("a bit of the mask")
			m.Words[0] ^= 1
		} else if len(m.Bool) > 0 {
			m.Bool[0] = !m.Bool[0]
			differs("a flag of the mask")
			m.Bool[0] = !m.Bool[0]
		}
		if fingerprint(a) != first {
			t.Errorf("%v: the fingerprint of the restored call differs", &c)
		}
	}
}
