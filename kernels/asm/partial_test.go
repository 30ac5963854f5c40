//go:build (amd64 || arm64) && !purego

package asm

import (
	"reflect"
	"slices"
	"testing"
)

// TestPartialSets checks that a set with some loops uses portable ones for all others, and that its
// Flash is made of its own Score and Exp.
func TestPartialSets(t *testing.T) {
	for _, l := range sets {
		if l.panel.score == nil { // the set itself has only some loops
			continue
		}
		for _, c := range []struct {
			want []string // names of the loops that are the set's own
			take func(to *loops)
		}{
			{nil, func(*loops) {}},
			{[]string{"Flash", "Score"}, func(to *loops) { to.panel.score = l.panel.score }},
			{[]string{"Exp", "Flash"}, func(to *loops) { to.powers[0].exp, to.powers[0].expSums = l.powers[0].exp, l.powers[0].expSums }},
			{[]string{"Exp", "Flash", "Score"}, func(to *loops) {
				to.panel.score, to.powers[0] = l.panel.score, l.powers[0]
				to.powers[0].weigh = nil
			}},
			{[]string{"Raise"}, func(to *loops) { to.panel.raise = l.panel.raise }},
			{[]string{"Top"}, func(to *loops) { to.panel.top = l.panel.top }},
			{[]string{"Mix"}, func(to *loops) { to.panel.mix = l.panel.mix }},
			{[]string{"DScore"}, func(to *loops) { to.back.dscore = l.back.dscore }},
			{[]string{"Outer"}, func(to *loops) { to.back.outer = l.back.outer }},
			{[]string{"OuterT"}, func(to *loops) { to.back.outerT = l.back.outerT }},
			{[]string{"Inner"}, func(to *loops) { to.back.inner = l.back.inner }},
			{[]string{"Dot", "Sum"}, func(to *loops) {
				to.decode.scale, to.reading[0].dot, to.reading[0].sum = l.decode.scale, l.reading[0].dot, l.reading[0].sum
			}},
			{[]string{"Weigh"}, func(to *loops) { to.powers[0].weigh, to.powers[0].weighSums = l.powers[0].weigh, l.powers[0].weighSums }},
			{[]string{"Load"}, func(to *loops) { to.vector.load = l.vector.load }},
			{[]string{"Store"}, func(to *loops) { to.vector.store = l.vector.store }},
			{[]string{"Finite"}, func(to *loops) { to.vector.finite, to.vector.perFinite = l.vector.finite, l.vector.perFinite }},
			{[]string{"Inverse"}, func(to *loops) { to.vector.inverse = l.vector.inverse }},
			{[]string{"Elu"}, func(to *loops) { to.vector.elu = l.vector.elu }},
			{[]string{"Fade", "Products", "Solve", "Step"}, func(to *loops) { to.recur = l.recur }},
			{[]string{"Exp"}, func(to *loops) { to.vector.natural = l.vector.natural }},
			{[]string{"Over", "Scale", "Times"}, func(to *loops) {
				to.vector.scale, to.vector.times, to.vector.over = l.vector.scale, l.vector.times, l.vector.over
			}},
			{[]string{"Rotate"}, func(to *loops) { to.vector.rotate, to.vector.rotatePairs = l.vector.rotate, l.vector.rotatePairs }},
			{[]string{"Narrow", "Widen"}, func(to *loops) { to.vector.widen, to.vector.narrow = l.vector.widen, l.vector.narrow }},
			{[]string{"Add", "Cap", "Hide", "Slope"}, func(to *loops) { to.edits = l.edits }},
			{[]string{"Chain", "Peak", "Slots"}, func(to *loops) { to.probe = l.probe }},
			{[]string{"Read"}, func(to *loops) { to.probe.perRead, to.reading[0].read = l.probe.perRead, l.reading[0].read }},
			{[]string{"Update"}, func(to *loops) { to.probe.perRead, to.reading[0].update = l.probe.perRead, l.reading[0].update }},
		} {
			part := loops{isa: l.isa, vec: l.vec, keys: l.keys, vecs: l.vecs, powers: make([]powerLoops, 1), reading: make([]readingLoops, 1)}
			part.decode.dotTiles, part.decode.sumTiles = l.decode.dotTiles, l.decode.sumTiles
			c.take(&part)
			if got := own(part.ops(Tuning{})); !slices.Equal(got, c.want) {
				t.Errorf("%s with %v alone has %v of its own", l.isa, c.want, got)
			}
		}
	}
}

// own returns the names of the loops of a set that are not the portable ones.
func own(o *Ops) (names []string) {
	s := &o.Shape
	got, portable := reflect.ValueOf(o).Elem(), reflect.ValueOf(Portable(s.Lanes, s.Vec, s.Keys, s.Cols, s.Rank)).Elem()
	for i := range got.NumField() {
		group, of := got.Field(i), portable.Field(i)
		if group.Kind() != reflect.Struct || got.Type().Field(i).Name == "Pack" {
			continue
		}
		for j := range group.NumField() {
			if f := group.Field(j); f.Kind() == reflect.Func && f.Pointer() != of.Field(j).Pointer() {
				names = append(names, group.Type().Field(j).Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
