package asm

import (
	"slices"
	"sync"

	"github.com/klauspost/cpuid/v2"
)

// A Level is an instruction set that attnlab knows, whether or not this machine has it.
type Level struct {
	ISA       string
	Available bool
	Reason    string   // why not available
	Ops       *Ops     // nil when not available
	variants  [][]*Ops // it is one of these, by how they compute 2^x, and then by the way they ask memory for what is read once
}

// needs are the features that the loops of an instruction set use, and what else there must be.
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

// Levels lists the instruction sets, portable first, each with its loops or the reason why there are none here.
func Levels() []Level { return levels(&cpuid.CPU) }

func levels(cpu *cpuid.CPUInfo) []Level {
	all := []Level{{ISA: "go", Available: true, Ops: Go()}}
	for _, n := range needs {
		level := Level{ISA: n.isa}
		if !cpu.Supports(n.features...) {
			level.Reason = "not on this CPU"
		} else if variants := native(n.isa); variants == nil {
			level.Reason = "not in this build"
		} else if err := allowed(n.allowed); err != nil {
			level.Reason = err.Error()
		} else {
			level.variants, level.Ops = variants, suited(cpu, variants)
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

// suited are the loops that suit a CPU.
//
// Of those that differ in how they compute 2^x the last ones are Intel's, where all that is done to 512 bits shares two units: a scaling by 2 to a power costs
// as little as a sum. AMD's CPUs add beside the units that multiply, and take the first ones.
//
// Of those that differ in how they ask for what is read once, amd64's do so that no cache keeps it, the first ones, or into the second cache. How far ahead
// that is best done, and where, was measured on one CPU of each kind, decoding float32 with AVX-512, d = 128, by turns in one process:
//
//	Zen 5                      memory gave 40 GB/s by the first ones, and 31 by the others
//	Xeon, family 6, model 167  its first caches wait for few lines by themselves: 7.4 GB/s by the first ones, 14.5 by the others. 16 KiB ahead, with runs as
//	                           long, these took 3 to 4 % less time than 4 KiB ahead, and with bfloat16 and int8, in two rounds, 2 to 7; 8 queries of a key head 1 to 6
//	                           less (AVX2, d = 64: 2 % more), and from pages of 16 keys 30; one query from such pages 6 less to 2 % more
//	Zen 4, one query           it follows a stream by itself, and what is asked for 4 KiB ahead comes in its way: 17 GB/s by the first ones so, and 28
//	                           where these ask for each line when they come to it; the others so 26, and 28 (AVX2: 24) 4 KiB ahead. But
//	                           keys that have their place in the last cache (4 MiB) 19 GB/s by the first ones, and 50 by the others
//	Zen 4, 8 queries           9 GB/s by the first ones, 17 by the others 4 KiB ahead and 20 from 8 KiB on; pages of 16 keys 11, 15, 17
//	Zen 3, AVX2                memory gave 15 GB/s, and one query 14 where loops ask for each line when they come to it, the first ones or the others, and 13
//	                           from 4 KiB ahead on. But with float16, bfloat16 and int8 such loops took 13 to 30 % longer than those that ask 4 KiB ahead
//	                           or more, and with 8 queries of a key head 30 to 35, where the others took 9 to 17 % less 8 KiB ahead than 4
//
// What Weigh asks for waits for Sum in the same cache, beside scores and queries: in up to two thirds of the first one, or a quarter of the second.
//
// AMD's CPUs before these are taken to be like them, and a Zen 4 like the Zen 3 where numbers are smaller than float32; nobody has measured that.
func suited(cpu *cpuid.CPUInfo, variants [][]*Ops) *Ops {
	const (
		near, far, farther = 4 << 10, 8 << 10, 16 << 10
		zen5               = 26
	)
	ways := variants[0]
	if cpu.VendorID == cpuid.Intel {
		ways = variants[len(variants)-1]
	}
	once, kept := ways[0], ways[len(ways)-1]
	once.Ahead, kept.Ahead = near, near
	l1, l2, _ := Caches()
	once.Room = l1 * 2 / 3
	if kept != once {
		kept.Room = l2 / 4
	}
	best := once
	switch {
	case cpu.VendorID == cpuid.Intel:
		kept.Ahead, kept.Gathers = farther, kept.Vec > 8 && kept.CutKeys == nil // which brings rows together by itself
		best = kept
	case cpu.VendorID == cpuid.AMD && cpu.Family < zen5:
		once.Ahead, kept.Ahead = 0, far
		best, kept.Streamed = kept, once
	}
	return best
}

// Caches returns the sizes in bytes of a core's first and second cache for data, and of the last one that it has a part in, or a small machine's where
// the CPU does not tell.
func Caches() (l1, l2, last int) {
	l1, l2, last = cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3
	if l1 <= 0 || l2 <= 0 {
		l1, l2 = 32<<10, 512<<10
	}
	if last <= 0 {
		last = 32 << 20
	}
	return l1, l2, last
}
