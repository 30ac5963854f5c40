//go:build !sabotage

package sabotage

import "attnlab/attn"

// Kernels returns the kernels as they are. A program built with the tag sabotage adds the bug that
// $BENCHRUN_SABOTAGE names.
func Kernels(all []attn.Kernel) ([]attn.Kernel, error) { return all, nil }
