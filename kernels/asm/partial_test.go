//go:build (amd64 || arm64) && !purego

package asm

import (
	"reflect"
	"slices"
	"testing"
)

// TestPartialSets checks that a set which has some loops uses the portable ones for all others.
func TestPartialSets(t *testing.T) {
	for _, l := range sets {
		for _, c := range []struct {
			want []string // fields of Ops that are the set's own
			take func(to *loops)
		}{
			{nil, func(*loops) {}},
			{[]string{"Score"}, func(to *loops) { to.score = l.score }},
			{[]string{"Exp"}, func(to *loops) { to.powers[0].exp, to.powers[0].expSums = l.powers[0].exp, l.powers[0].expSums }},
			{[]string{"Exp", "Flash", "Score"}, func(to *loops) {
				to.score, to.powers[0] = l.score, l.powers[0]
				to.powers[0].weigh = nil
			}},
			{[]string{"Raise"}, func(to *loops) { to.raise = l.raise }},
			{[]string{"Top"}, func(to *loops) { to.top = l.top }},
			{[]string{"Finite"}, func(to *loops) { to.finite = l.finite }},
			{[]string{"Inverse"}, func(to *loops) { to.inverse = l.inverse }},
			{[]string{"Mix"}, func(to *loops) { to.mix = l.mix }},
			{[]string{"DScore"}, func(to *loops) { to.dscore = l.dscore }},
			{[]string{"Outer"}, func(to *loops) { to.few.outer = l.few.outer }},
			{[]string{"OuterT"}, func(to *loops) { to.few.outerT = l.few.outerT }},
			{[]string{"Inner"}, func(to *loops) { to.few.inner = l.few.inner }},
			{[]string{"Dot", "Sum"}, func(to *loops) {
				to.few.scale, to.asking[0].dot, to.asking[0].sum = l.few.scale, l.asking[0].dot, l.asking[0].sum
			}},
			{[]string{"Weigh"}, func(to *loops) { to.powers[0].weigh, to.powers[0].weighSums = l.powers[0].weigh, l.powers[0].weighSums }},
			{[]string{"Load"}, func(to *loops) { to.load = l.load }},
			{[]string{"Store"}, func(to *loops) { to.store = l.store }},
			{[]string{"Add", "Cap", "Hide", "Slope"}, func(to *loops) { to.edits = l.edits }},
			{[]string{"Narrow", "Widen"}, func(to *loops) { to.cells = l.cells }},
			{[]string{"Elu"}, func(to *loops) { to.elu = l.elu }},
			{[]string{"Rotate"}, func(to *loops) { to.rotate, to.rotatePairs = l.rotate, l.rotatePairs }},
			{[]string{"Chain", "Peak", "Slots"}, func(to *loops) { to.peak, to.chain, to.slots = l.peak, l.chain, l.slots }},
			{[]string{"Read"}, func(to *loops) { to.asking[0].read = l.asking[0].read }},
		} {
			part := loops{isa: l.isa, lanes: l.lanes, vec: l.vec, keys: l.keys, perRead: l.perRead, powers: make([]powerLoops, 1), asking: make([]askingLoops, 1), dotTiles: l.dotTiles, sumTiles: l.sumTiles}
			c.take(&part)
			if got := own(part.ops(&part.powers[0], 0)); !slices.Equal(got, c.want) {
				t.Errorf("%s with %v alone has %v of its own", l.isa, c.want, got)
			}
		}
	}
}

// own returns the names of the loops of a set that are not the portable ones.
func own(o *Ops) (names []string) {
	got, portable := reflect.ValueOf(o).Elem(), reflect.ValueOf(Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)).Elem()
	for i := range got.NumField() {
		if f := got.Field(i); f.Kind() == reflect.Func && f.Pointer() != portable.Field(i).Pointer() {
			names = append(names, got.Type().Field(i).Name)
		}
	}
	slices.Sort(names)
	return names
}
