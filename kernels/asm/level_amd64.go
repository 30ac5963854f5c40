//go:build !purego

package asm

// sets are the instruction sets of this build.
var sets = []*loops{&avx2, &avx512, &amx}
