//go:build !(mutant_rescale_out || mutant_drop_tail || mutant_head_modulo || mutant_causal_off_by_one || mutant_grad_last_of_group)

package main

import "attnlab/attn"

// mutant: only a binary built with a mutant_* tag has one.
func mutant() []attn.Kernel { return nil }
