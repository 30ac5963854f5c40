package asm

import "github.com/klauspost/cpuid/v2"

// A Level is an instruction set that attnlab knows, whether or not this machine has it.
type Level struct {
	ISA       string
	Available bool
	Reason    string // why not available
	Ops       *Ops   // nil when not available
	ways      []*Ops // it is one of these, by the way they ask memory for what is read once
}

// needs are the features that the loops of an instruction set use.
var needs = []struct {
	isa      string
	features []cpuid.FeatureID
}{
	{"avx2", []cpuid.FeatureID{cpuid.AVX2, cpuid.FMA3, cpuid.F16C}},
	{"avx512", []cpuid.FeatureID{cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ}},
	{"neon", []cpuid.FeatureID{cpuid.ASIMD}},
}

// Levels lists the instruction sets, portable first, each with its loops or the reason why there are none here.
func Levels() []Level { return levels(&cpuid.CPU) }

func levels(cpu *cpuid.CPUInfo) []Level {
	all := []Level{{ISA: "go", Available: true, Ops: Go()}}
	for _, n := range needs {
		level := Level{ISA: n.isa}
		if !cpu.Supports(n.features...) {
			level.Reason = "not on this CPU"
		} else if level.ways = native(n.isa); level.ways == nil {
			level.Reason = "not in this build"
		} else {
			level.Ops = level.ways[min(wayOf(cpu), len(level.ways)-1)]
		}
		level.Available = level.Ops != nil
		all = append(all, level)
	}
	return all
}

// wayOf is the way that a CPU has of the two in which amd64's loops ask for what is read once: so that the second cache keeps nothing of it (0), or into
// that (1). Intel's first caches wait for few lines by themselves: on a Xeon (family 6, model 167) decoding was twice as fast by way 1; on a Zen 5 memory
// gave 40 GB/s by way 0, and 31 by the other.
func wayOf(cpu *cpuid.CPUInfo) int {
	if cpu.VendorID == cpuid.Intel {
		return 1
	}
	return 0
}

// Caches returns the sizes in bytes of a core's first and second cache for data, or a small machine's where the CPU does not tell.
func Caches() (l1, l2 int) {
	l1, l2 = cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2
	if l1 <= 0 || l2 <= 0 {
		l1, l2 = 32<<10, 512<<10
	}
	return l1, l2
}
