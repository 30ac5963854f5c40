package asm

import "github.com/klauspost/cpuid/v2"

// A Level is an instruction set that attnlab knows, whether or not this machine has it.
type Level struct {
	ISA       string
	Available bool
	Reason    string // why not available
	Ops       *Ops   // nil when not available
}

// Levels lists the instruction sets, portable first, each with its loops or the reason why there are none here.
func Levels() []Level {
	cpu := &cpuid.CPU
	levels := []Level{{ISA: "go", Available: true, Ops: Go()}}
	for _, l := range []struct {
		isa string
		has bool
	}{
		{"avx2", cpu.Supports(cpuid.AVX2, cpuid.FMA3)},
		{"avx512", cpu.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ)},
		{"neon", cpu.Has(cpuid.ASIMD)},
	} {
		level := Level{ISA: l.isa}
		if !l.has {
			level.Reason = "not on this CPU"
		} else if level.Ops = native(l.isa); level.Ops == nil {
			level.Reason = "not in this build"
		}
		level.Available = level.Ops != nil
		levels = append(levels, level)
	}
	return levels
}
