// Package mutants holds kernels that are wrong on purpose, one bug each, so that the conformance
// suite can be shown to find every one. A suite that lets one of them live proves nothing about the
// kernels it passes.
//
// There are four small kernels: Blocked, an online softmax over blocks of keys, Prefix, linear
// attention by a running state, and with backward passes, a row at a time, Gradient and PrefixBack.
// Healthy they pass the suite; each has one switch per bug. Other mutants wrap a healthy one and
// hand it a wrong Problem or wrong Args, as a caller or a dispatcher might. The package does not
// import testing: a command can be built with a mutant in its list, to see that it is found there
// too.
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
	return slices.Concat(blockedMutants(), prefixMutants(), wrappers(), gradientMutants(), prefixBackMutants())
}

// ByName finds a mutant.
func ByName(name string) (Mutant, bool) {
	for _, m := range All() {
		if m.Name == name {
			return m, true
		}
	}
	return Mutant{}, false
}

// isa is the second name of every kernel here, so that no report takes one for a kernel of the lab.
const isa = "mutant"
