//go:build mutant_rescale_out || mutant_drop_tail || mutant_head_modulo || mutant_causal_off_by_one || mutant_grad_last_of_group

package main

import (
	"attnlab/attn"
	"attnlab/attn/attntest/mutants"
)

// mutant is the wrong kernel that this binary was built with: the file behind its tag says which.
func mutant() []attn.Kernel {
	m, ok := mutants.ByName(mutantName)
	if !ok {
		panic("there is no mutant " + mutantName)
	}
	return []attn.Kernel{m.Kernel}
}
