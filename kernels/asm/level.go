package asm

import (
	"slices"
	"sync"

	"github.com/klauspost/cpuid/v2"
)

// A Level is an instruction set that attnlab has loops for, whether or not this machine has it.
type Level struct {
	ISA       string
	Available bool
	Reason    string // why it is not available
	Ops       *Ops   // loops tuned for this CPU; nil when not available
	set       set    // makes Ops; nil for portable ones
}

// A set makes the loops of an instruction set for a tuning.
type set func(Tuning) *Ops

// With returns the loops made for another tuning.
func (l *Level) With(t Tuning) *Ops {
	if l.set == nil {
		return l.Ops
	}
	return l.set(t)
}

// needs lists the CPU features that each instruction set uses, and a check for permission of the
// system, if the set needs one.
var needs = []struct {
	isa      string
	features []cpuid.FeatureID
	allowed  func() error
}{
	{"avx2", avx2Features, nil},
	{"avx512", avx512Features, nil},
	{"amx", append(slices.Clip(avx512Features), cpuid.AMXTILE, cpuid.AMXBF16), sync.OnceValue(allowTiles)},
	{"neon", []cpuid.FeatureID{cpuid.ASIMD}, nil},
}

var (
	avx2Features   = []cpuid.FeatureID{cpuid.AVX2, cpuid.FMA3, cpuid.F16C}
	avx512Features = append(slices.Clip(avx2Features), cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ)
)

// Levels returns the instruction sets, portable first. Each has its loops, or the reason why they
// are not available.
func Levels() []Level { return levels(&cpuid.CPU) }

func levels(cpu *cpuid.CPUInfo) []Level {
	all := []Level{{ISA: "go", Available: true, Ops: Go()}}
	for _, n := range needs {
		level := Level{ISA: n.isa}
		if !cpu.Supports(n.features...) {
			level.Reason = "not on this CPU"
		} else if set := native(n.isa); set == nil {
			level.Reason = "not in this build"
		} else if err := allowed(n.allowed); err != nil {
			level.Reason = err.Error()
		} else {
			level.set, level.Ops = set, set(tune(n.isa, cpu))
		}
		level.Available = level.Ops != nil
		all = append(all, level)
	}
	return all
}

func allowed(check func() error) error {
	if check == nil {
		return nil
	}
	return check()
}
