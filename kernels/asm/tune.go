package asm

import (
	"fmt"

	"github.com/klauspost/cpuid/v2"
)

// Tuning holds the choices that suit a CPU. It is an argument of a set's loops, so two tunings can
// run side by side.
type Tuning struct {
	Speed
	Path
}

// Speed is the part of a tuning that changes no bit.
type Speed struct {
	Reading            // for rows that are read once
	Stream     Reading // for rows that come from memory in one stream
	CopiesRows bool    // copy rows of K and V that are far apart if they are read several times
}

// A Reading says how decoding prefetches the rows that it reads once.
type Reading struct {
	Hint  Hint
	Ahead int // distance in bytes; 0: each line just before a loop reads it
	Room  int // bytes of the cache for lines that Weigh prefetches, until they are read
}

// fit returns the reading with Room set to what its cache has left beside scores and queries.
func (r Reading) fit() Reading {
	l1, l2, _ := Caches()
	if r.Room = l1 * 2 / 3; r.Hint == Temporal {
		r.Room = l2 / 4
	}
	return r
}

// A Hint selects the cache that keeps a prefetched line.
type Hint uint8

// Hints. On arm64 they are the same.
const (
	NonTemporal Hint = iota // the first cache, which drops the line after it was read
	Temporal                // the second cache
)

// Path is the part of a tuning that changes bits. Results of different paths are compared as
// results of different kernels.
type Path struct {
	Exp       Exp
	Prescaled bool // multiply queries by the scores' factor, which saves a product for each score
	// PackFrom is the least mean number of queries that see a key, and of keys that a query sees,
	// for which the forward pass packs. Packing a key costs as much as multiplying it by some
	// queries. 0: the set has no packing.
	// Tuning: docs/tuning.md#packing
	PackFrom int
}

// Exp is a way to compute 2^x.
type Exp uint8

// Ways to compute 2^x. A set that lacks the one of a tuning uses its first.
const (
	Table   Exp = iota // looks up the fraction's leading bits, and multiplies by a short polynomial
	Reduced            // a polynomial of the fraction, which one instruction separates
	Series             // a polynomial of the distance from the nearest whole number
)

// String returns the path as journals and tables show it.
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

// An entry of the table holds the choices for the CPUs that it fits.
type entry struct {
	name    string
	vendor  cpuid.Vendor // vendor that it fits; unknown: any
	last    int          // last family that it fits; 0: all
	exp     Exp
	reading Reading
	stream  Reading
	copier  string // set whose Speed.CopiesRows is true
}

const kib = 1 << 10

// packFrom is Path.PackFrom on every CPU.
// Tuning: docs/tuning.md#packing
const packFrom = 128

// tunings is the table: the first entry that fits a CPU applies.
//
// Non-temporal lines go to the first cache and are dropped from there; temporal lines go to the
// second cache, which has the longer queue. Where the hardware prefetches a stream by itself, a
// prefetch far ahead gets in its way. Where the units that multiply do all other vector work too,
// the way to compute 2^x with the fewest instructions wins; elsewhere look-ups and sums are free
// beside products.
// Tuning: docs/tuning.md#table
var tunings = []entry{
	{
		name: "Intel", vendor: cpuid.Intel, exp: Reduced,
		reading: Reading{Hint: Temporal, Ahead: 16 * kib}, stream: Reading{Hint: Temporal, Ahead: 16 * kib}, copier: "avx512",
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
		Speed: Speed{Reading: e.reading.fit(), Stream: e.stream.fit(), CopiesRows: e.copier == isa},
		Path:  Path{Exp: e.exp, Prescaled: true, PackFrom: packFrom},
	}
}

// Caches returns the sizes in bytes of a core's first and second data caches, and of its share of
// the last cache. Where the CPU does not report them, it returns those of a small machine.
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
