// Package mutants provides kernels that are wrong on purpose, one bug each. The conformance suite
// must find every one of them: a suite that lets one pass proves nothing about the kernels that it
// passes.
//
// There are three small kernels, which pass the suite when healthy and have one switch for each
// bug:
//
//   - Blocked is an online softmax over blocks of keys.
//   - Gradient adds a backward pass to it, one row at a time.
//   - Recurrence is linear attention over chunks of tokens, with a backward pass token by token.
//
// Other mutants wrap a healthy kernel and give it a wrong Problem or wrong Args, as a caller or a
// dispatcher might. The package does not import testing, so a command can be built with a mutant in
// its list of kernels, to show that the command finds the bug too.
package mutants

import (
	"slices"

	"attnlab/attn"
)

// A Mutant is a kernel with one bug.
type Mutant struct {
	Name, Why string
	Kernel    attn.Kernel
	Claims    attn.Needs
	Backward  bool // the bug is in the backward pass
}

// All lists the mutants.
func All() []Mutant {
	return slices.Concat(blockedMutants(), recurrenceMutants(), wrappers(), gradientMutants())
}

// ByName returns the mutant of that name.
func ByName(name string) (Mutant, bool) {
	for _, m := range All() {
		if m.Name == name {
			return m, true
		}
	}
	return Mutant{}, false
}

// isa is the instruction set of every mutant, so that no report takes a mutant for a kernel of the
// lab.
const isa = "mutant"
