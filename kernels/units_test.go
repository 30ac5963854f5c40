package kernels_test

import (
	"flag"
	"reflect"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash"
	"attnlab/kernels/linear"
)

var allUnits = flag.Bool("units", false, "TestUnits takes every set, and each loop of a set alone, too")

// TestUnits runs the core of the suite on portable loops with one unit of a set. A unit is what a
// set may supply alone: the loops of the lazy softmax together, a packing with all loops that read
// it, or any other loop. By default it takes the softmax and the packing of the last set.
func TestUnits(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short: the loops of a set are tested together")
	}
	o := attntest.Options{Hold: .25, HoldNarrow: .5, HoldGrad: .5, Core: true}
	levels := asmtest.Levels(t)
	for i, l := range levels {
		if l.ISA == "go" {
			continue
		}
		if i < len(levels)-1 && !*allUnits {
			t.Logf("SKIPPED: %s: without -units, the last set alone", l.ISA)
			continue
		}
		for _, u := range units(l.Ops) {
			if len(u.fields) == 1 && !*allUnits {
				continue
			}
			t.Run(l.ISA+"/"+u.name, func(t *testing.T) {
				ops := u.alone(l.Ops)
				attntest.Run(t, flash.New(ops), attn.AllSoftmax&^(attn.NeedWeights|attn.NeedScores), o)
				if u.linear {
					attntest.Run(t, linear.New(ops), attn.NeedLinear|attn.NeedLengths|attn.NeedGrad, attntest.Options{HoldGrad: .5, Core: true})
				}
			})
		}
	}
}

// A unit replaces some loops of a set, by their fields.
type unit struct {
	name   string
	fields []string // Group.Field
	pack   bool     // includes the packing
	linear bool     // linear attention uses them too
}

// units returns the units of a set.
func units(o *asm.Ops) []unit {
	all := []unit{{name: "softmax", fields: []string{"Panel.Score", "Panel.Exp", "Panel.Flash", "Panel.Raise"}}}
	together := map[string]bool{}
	for _, f := range all[0].fields {
		together[f] = true
	}
	if asmtest.Packs(o) {
		all = append(all, unit{name: "packing", pack: true, fields: []string{"Panel.Score", "Panel.Exp", "Panel.Flash", "Panel.Raise", "Panel.Mix", "Back.DScore", "Back.Outer"}})
	}
	v := reflect.ValueOf(o).Elem()
	for _, group := range []string{"Panel", "Edit", "Back", "Decode", "Vector"} {
		g := v.FieldByName(group)
		for i := range g.NumField() {
			if name := group + "." + g.Type().Field(i).Name; !together[name] {
				all = append(all, unit{name: name, fields: []string{name}, linear: group == "Back" || name == "Decode.Dot" || name == "Vector.Elu"})
			}
		}
	}
	return all
}

// alone returns portable loops in a set's geometry with the unit of the set.
func (u *unit) alone(set *asm.Ops) *asm.Ops {
	s := set.Shape
	o := asm.Portable(s.Lanes, s.Vec, s.Keys, s.Cols, s.Rank)
	o.ISA = set.ISA
	if u.pack {
		o.Pack, o.Shape.Group = set.Pack.Always(), s.Group
	}
	to, from := reflect.ValueOf(o).Elem(), reflect.ValueOf(set).Elem()
	for _, f := range u.fields {
		group, field, _ := strings.Cut(f, ".")
		to.FieldByName(group).FieldByName(field).Set(from.FieldByName(group).FieldByName(field))
	}
	return o
}
