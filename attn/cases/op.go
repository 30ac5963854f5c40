package cases

import (
	"slices"
	"strings"

	"attnlab/attn"
)

// A family adds the cases of one idea.
type family struct {
	name  string
	about string // explains the name in help texts, if it needs that
	add   func(*list)
}

// families is the table of the families of each operation.
var families = [...][]family{
	attn.OpSoftmax: {
		{"sizes", "", sizes},
		{"dims", "", dims},
		{"masks", "bands and boolean masks", masks},
		{"lengths", "keys in use, positions of queries", lengths},
		{"gqa", "", groups},
		{"layouts", "", views},
		{"score", "scale and temperature", scores},
		{"bias", "", biases},
		{"stats", "by-products", byproducts},
		{"terms", "softcap, ALiBi, sinks, relative positions, metrics, RoPE", terms},
		{"bitmaps", "packed and block masks", bitmaps},
		{"ragged", "", ragged},
		{"cache", "pages, rings, queries that continue one", caches},
		{"types", "16 bits and int8", types},
		{"pairs", "every two features together", pairs},
		{"extremes", "", extremes},
		{"far", "scores far from 0, judged by the same scores near 0", far},
		{"empty", "", empty},
	},
	attn.OpLinear: {
		{"empty", "", emptyLinear},
		{"linear", "", linear},
		{"gates", "decays per head and per key channel", gates},
		{"delta", "the delta rule", delta},
		{"heads", "value heads", valueHeads},
		{"norms", "rows of length 1", norms},
		{"states", "states in and out, snapshots", states},
		{"odd", "gates and operands of recurrences that are not finite", odd},
	},
}

// Explained lists the families in order, each with an explanation if its name needs one.
func Explained() string {
	var all []string
	for _, op := range attn.Ops() {
		for _, f := range familiesOf(op) {
			text := f.name
			if f.about != "" {
				text += " (" + f.about + ")"
			}
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return strings.Join(all, ", ")
}

// familiesOf returns the families of an operation, or none if the table does not have the
// operation.
func familiesOf(op attn.Op) []family {
	if int(op) < len(families) {
		return families[op]
	}
	return nil
}
