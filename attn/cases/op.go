package cases

import "attnlab/attn"

// A family adds the cases of one idea.
type family struct {
	name string
	add  func(*list)
}

// families is the table of the families that each operation has.
var families = [...][]family{
	attn.OpSoftmax: {
		{"sizes", sizes},
		{"dims", dims},
		{"masks", masks},
		{"lengths", lengths},
		{"gqa", groups},
		{"layouts", views},
		{"score", scores},
		{"bias", biases},
		{"stats", byproducts},
		{"terms", terms},
		{"bitmaps", bitmaps},
		{"ragged", ragged},
		{"cache", caches},
		{"types", types},
		{"pairs", pairs},
		{"extremes", extremes},
		{"far", far},
		{"empty", empty},
	},
	attn.OpLinear: {
		{"empty", emptyLinear},
		{"linear", linear},
	},
}

// familiesOf returns the families of an operation: none of one that the table has no room for.
func familiesOf(op attn.Op) []family {
	if int(op) < len(families) {
		return families[op]
	}
	return nil
}
