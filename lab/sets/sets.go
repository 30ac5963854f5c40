// Package sets chooses among the instruction sets that a lab is handed.
package sets

import (
	"slices"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// Sets are instruction sets, those included that this machine lacks, from the slowest to the
// fastest. The first is portable, so one of them is always available.
type Sets []asm.Level

// Available returns the names of the sets that run on this machine.
func (s Sets) Available() []string {
	var names []string
	for _, l := range s {
		if l.Available {
			names = append(names, l.ISA)
		}
	}
	return names
}

// Level returns a set by its name, and reports whether there is one.
func (s Sets) Level(isa string) (asm.Level, bool) {
	i := slices.IndexFunc(s, func(l asm.Level) bool { return l.ISA == isa })
	if i < 0 {
		return asm.Level{}, false
	}
	return s[i], true
}

// Missing reports whether a name is that of a set which this machine lacks.
func (s Sets) Missing(isa string) bool {
	l, ok := s.Level(isa)
	return ok && !l.Available
}

// For returns the loops of a set if they run here, and else the fastest loops of this machine: a
// kernel that is not built on our loops, such as one on BLAS, is compared with those.
func (s Sets) For(isa string) *asm.Ops {
	if l, ok := s.Level(isa); ok && l.Available {
		return l.Ops
	}
	return s.fastest().Ops
}

// fastest returns the fastest set of this machine.
func (s Sets) fastest() asm.Level {
	for _, l := range slices.Backward(s) {
		if l.Available {
			return l
		}
	}
	panic("sets: none of the sets runs here, not even a portable one: hand in asm.Levels()")
}

// Of returns the available sets that some of the kernels are built on, or the fastest set of this
// machine if there is none.
func (s Sets) Of(kernels []attn.Kernel) []asm.Level {
	var some []asm.Level
	for _, l := range s {
		if l.Available && slices.ContainsFunc(kernels, func(k attn.Kernel) bool { _, isa := k.Name(); return isa == l.ISA }) {
			some = append(some, l)
		}
	}
	if some == nil {
		return []asm.Level{s.fastest()}
	}
	return some
}
