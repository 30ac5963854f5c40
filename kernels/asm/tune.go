package asm

import (
	"fmt"

	"github.com/klauspost/cpuid/v2"
)

// Tuning is what suits a CPU. It is an argument of a set's loops, so two tunings can run side by side.
type Tuning struct {
	Speed
	Path
}

// Speed is the part of a tuning that changes no bit.
type Speed struct {
	Reading         // of rows that are read once
	Stream  Reading // of rows that come from memory in one stream
	Gathers bool    // copy rows of K and V together that are read several times and lie apart, whatever the caches hold; Flash prefetches them then
}

// A Reading says how decoding prefetches.
type Reading struct {
	Hint  Hint
	Ahead int // bytes; 0: each line when a loop comes to it
	Room  int // bytes of the cache that may hold what Weigh prefetches until it is read
}

// fit returns the reading with the room that its cache has beside scores and queries.
func (r Reading) fit() Reading {
	l1, l2, _ := Caches()
	if r.Room = l1 * 2 / 3; r.Hint == Temporal {
		r.Room = l2 / 4
	}
	return r
}

// A Hint says which caches keep a prefetched line.
type Hint uint8

// Hints. On arm64, where one has been measured, they are the same.
const (
	NonTemporal Hint = iota // the first, which drops it when it has been read
	Temporal                // the second
)

// Path is the part of a tuning that changes bits. Rows that were measured on different paths are
// those of different kernels.
type Path struct {
	Exp       Exp
	Prescaled bool // queries take the scores' factor on their way in, which saves a product for each score
	// PackFrom is how many queries must see a key, and how many keys a query must see, in the mean, for
	// packing to pay in the forward pass: packing a key costs as much as some products with it. 0: the
	// set has no packing.
	// Tuning: docs/tuning.md#packing
	PackFrom int
}

// Exp is a way to compute 2^x.
type Exp uint8

// Ways to 2^x. A set that lacks one takes its first.
const (
	Table   Exp = iota // a table's entry for the leading bits of the fraction, times a short polynomial
	Reduced            // a polynomial of the fraction, which one instruction takes off
	Series             // a polynomial of the distance from the nearest whole number
)

// String names a path, for journals and tables.
func (p Path) String() string {
	s := "exp=" + [...]string{"table", "reduced", "series"}[p.Exp]
	if p.Prescaled {
		s += ",prescaled"
	}
	if p.PackFrom > 0 {
		s += fmt.Sprint(",pack=", p.PackFrom)
	}
	return s
}

// An entry of the table says what the CPUs that it fits prefer.
type entry struct {
	name     string
	vendor   cpuid.Vendor // unknown: any
	last     int          // the last family that it fits; 0: all
	exp      Exp
	reading  Reading
	stream   Reading
	gatherer string // the set that copies rows together
}

const kib = 1 << 10

// packFrom is Path.PackFrom of every CPU that has been measured.
const packFrom = 128

// tunings is the table: the first entry that fits a CPU applies.
//
// Non-temporal lines come to the first cache and leave it for nowhere; temporal ones go to the second,
// which has the longer queue. AMD's CPUs before Zen 5 follow a stream by themselves, and a prefetch far
// ahead gets in its way. On Intel's, all that is done to 512 bits shares the two units that multiply,
// so that 2^x of few instructions wins; elsewhere look-ups and sums are free beside products.
//
// Tuning: docs/tuning.md#table
var tunings = []entry{
	{
		name: "Intel", vendor: cpuid.Intel, exp: Reduced,
		reading: Reading{Hint: Temporal, Ahead: 16 * kib}, stream: Reading{Hint: Temporal, Ahead: 16 * kib}, gatherer: "avx512",
	},
	{
		name: "AMD to Zen 4", vendor: cpuid.AMD, last: 25,
		reading: Reading{Hint: Temporal, Ahead: 8 * kib}, stream: Reading{Hint: NonTemporal, Ahead: 0},
	},
	{
		name:    "others",
		reading: Reading{Hint: NonTemporal, Ahead: 4 * kib}, stream: Reading{Hint: NonTemporal, Ahead: 4 * kib},
	},
}

func (e *entry) fits(cpu *cpuid.CPUInfo) bool {
	return (e.vendor == cpuid.VendorUnknown || e.vendor == cpu.VendorID) && (e.last == 0 || cpu.Family <= e.last)
}

// tune returns the tuning of a set on a CPU.
func tune(isa string, cpu *cpuid.CPUInfo) Tuning {
	for i := range tunings {
		if tunings[i].fits(cpu) {
			return tunings[i].tuning(isa)
		}
	}
	panic("asm: the last entry of the table fits every CPU")
}

// tuning returns the entry's tuning of a set.
func (e *entry) tuning(isa string) Tuning {
	return Tuning{
		Speed: Speed{Reading: e.reading.fit(), Stream: e.stream.fit(), Gathers: e.gatherer == isa},
		Path:  Path{Exp: e.exp, Prescaled: true, PackFrom: packFrom},
	}
}

// Caches returns the sizes in bytes of a core's first and second cache for data, and of the last one
// that it has a share of, or a small machine's where the CPU does not say.
func Caches() (l1, l2, last int) {
	l1, l2, last = cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3
	if l1 <= 0 || l2 <= 0 {
		l1, l2 = 32*kib, 512*kib
	}
	if last <= 0 {
		last = 32 << 20
	}
	return l1, l2, last
}
