// Package asmtest lists the loops that tests of kernels go through.
package asmtest

import (
	"slices"
	"testing"

	"attnlab/kernels/asm"
)

// Levels are the instruction sets that this machine has, portable first; with -short the fastest alone. It says which it leaves out.
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

// available are all that this machine has. It says which it has not.
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

// Core is whether the core of the suite is enough for portable loops. With the tag purego they go through the whole of it, as others do.
func Core() bool {
	return slices.ContainsFunc(asm.Levels(), func(l asm.Level) bool { return l.Available && l.ISA != "go" })
}

// Loops are those of an instruction set, or portable ones in the geometry of one.
type Loops struct {
	Name string
	Ops  *asm.Ops
	Core bool // the core of the suite is enough
}

// All are the loops of the instruction sets that this machine has, and the geometries of the others through the portable loops, so that each geometry is tested
// on every machine; with -short the former alone, of which the core of the suite is enough for all but the fastest. Those that multiply parts are there twice: as
// if that were worth it for any problem, for all of the suite, and as they stand, for its core, since few of its problems are large enough for parts and the others
// go through the loops of another set.
func All(t testing.TB) (all []Loops) {
	t.Helper()
	for _, l := range available(t) {
		parts := l.Ops.CutKeys != nil
		all = append(all, Loops{l.ISA, l.Ops, l.ISA == "go" && Core() || parts})
		if parts {
			always := *l.Ops
			always.PartsFrom = 0
			all = append(all, Loops{l.ISA + ", parts for all", &always, false})
		}
	}
	if testing.Short() {
		for i := range all[:len(all)-1] {
			all[i].Core = true
		}
		return all
	}
	for _, g := range []Loops{
		{"24 lanes", asm.Portable(24, 8, 4, 4, 6), true},
		{"48 lanes", asm.Portable(48, 16, 8, 8, 6), true},
		{"16 lanes", asm.Portable(16, 4, 4, 4, 8), true},
	} {
		if !slices.ContainsFunc(all, func(l Loops) bool { return l.Ops.Lanes == g.Ops.Lanes && l.Ops.Vec == g.Ops.Vec }) {
			all = append(all, g)
		}
	}
	return all
}
