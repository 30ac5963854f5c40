package sets_test

import (
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/lab/sets"
)

// A named kernel has a name and nothing else.
type named struct {
	attn.Kernel
	isa string
}

func (k named) Name() (algo, isa string) { return "algo", k.isa }

// TestSets checks which set each question chooses, on a machine that lacks one.
func TestSets(t *testing.T) {
	slow, fast := new(asm.Ops), new(asm.Ops)
	s := sets.Sets{{ISA: "go", Available: true, Ops: slow}, {ISA: "fast", Available: true, Ops: fast}, {ISA: "absent", Reason: "not on this CPU"}}
	if got := s.Available(); !slices.Equal(got, []string{"go", "fast"}) {
		t.Errorf("available are %v", got)
	}
	for isa, want := range map[string]*asm.Ops{"go": slow, "fast": fast, "absent": fast, "blas": fast, "": fast} {
		if s.For(isa) != want {
			t.Errorf("%q is compared with other loops", isa)
		}
	}
	for isa, want := range map[string]bool{"go": false, "absent": true, "blas": false} {
		if s.Missing(isa) != want {
			t.Errorf("%s is missing: %v, want %v", isa, !want, want)
		}
	}
	for _, c := range []struct{ kernels, want []string }{
		{[]string{"go", "blas"}, []string{"go"}},
		{[]string{"fast", "go"}, []string{"go", "fast"}},
		{[]string{"blas"}, []string{"fast"}},
		{nil, []string{"fast"}},
	} {
		var all []attn.Kernel
		for _, isa := range c.kernels {
			all = append(all, named{isa: isa})
		}
		var got []string
		for _, l := range s.Of(all) {
			got = append(got, l.ISA)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("kernels on %v: %v, want %v", c.kernels, got, c.want)
		}
	}
}
