//go:build !slow

package main

import "attnlab/attn"

// slowed: only a binary built with the tag slow has kernels that waste time.
func slowed() []attn.Kernel { return nil }

// faulty: only a binary built with the tag slow may have a fault.
func faulty(all []attn.Kernel) []attn.Kernel { return all }
