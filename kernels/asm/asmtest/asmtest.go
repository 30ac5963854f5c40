// Package asmtest lists the loops that tests of kernels run on.
package asmtest

import (
	"slices"
	"testing"

	"attnlab/kernels/asm"
)

// Levels returns the instruction sets that this machine has, portable first; with -short, the
// fastest alone. It logs the sets that it leaves out.
func Levels(t testing.TB) []asm.Level {
	t.Helper()
	levels := available(t)
	if testing.Short() {
		last := len(levels) - 1
		for _, l := range levels[:last] {
			t.Logf("SKIPPED: %s: -short takes %s alone", l.ISA, levels[last].ISA)
		}
		levels = levels[last:]
	}
	return levels
}

// available returns all sets that this machine has, and logs the others.
func available(t testing.TB) (levels []asm.Level) {
	t.Helper()
	for _, l := range asm.Levels() {
		if l.Available {
			levels = append(levels, l)
		} else {
			t.Logf("SKIPPED: %s: %s", l.ISA, l.Reason)
		}
	}
	return levels
}

// Core reports whether the core of the suite is enough for portable loops: it is where assembly
// runs too. With the tag purego they run the whole suite, as others do.
func Core() bool {
	return slices.ContainsFunc(asm.Levels(), func(l asm.Level) bool { return l.Available && l.ISA != "go" })
}

// Loops are the loops of an instruction set, or portable loops in the geometry of one.
type Loops struct {
	Name string
	Ops  *asm.Ops
	Core bool // the core of the suite is enough
}

// Packs reports whether a set has a packing of its own: blocks that do not alias rows.
func Packs(ops *asm.Ops) bool { return ops.Pack.Size(asm.Keys, ops.Shape.Group, 1) > 0 }

// All returns the loops of the instruction sets that this machine has, and portable loops in the
// geometries of the others, so that each geometry is tested on every machine. With -short it
// returns only the machine's sets.
//
// A set that has a packing is listed twice: packing where that pays, which few problems of the
// suite are large enough for, and packing every problem. The core of the suite is enough for all
// but the last set without a packing and the sets that pack every problem.
func All(t testing.TB) (all []Loops) {
	t.Helper()
	fastest := 0 // of the sets without a packing
	for _, l := range available(t) {
		if !Packs(l.Ops) {
			fastest = len(all)
		}
		all = append(all, Loops{l.ISA, l.Ops, true})
		if Packs(l.Ops) {
			always := *l.Ops
			always.Pack = l.Ops.Pack.Always()
			all = append(all, Loops{l.ISA + ", always packed", &always, false})
		}
	}
	all[fastest].Core = false
	if testing.Short() {
		return all
	}
	for _, g := range []Loops{
		{"24 lanes", asm.Portable(24, 8, 4, 4, 6), true},
		{"48 lanes", asm.Portable(48, 16, 8, 8, 6), true},
		{"16 lanes", asm.Portable(16, 4, 4, 4, 8), true},
	} {
		if !slices.ContainsFunc(all, func(l Loops) bool {
			return l.Ops.Shape.Lanes == g.Ops.Shape.Lanes && l.Ops.Shape.Vec == g.Ops.Shape.Vec
		}) {
			all = append(all, g)
		}
	}
	return all
}
