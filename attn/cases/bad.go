package cases

import "attnlab/attn"

// A Bad call has one operand that is wrong. A kernel must panic with an error whose text names it.
type Bad struct {
	Name, Operand string
	Problem       attn.Problem
	Break         func(a *attn.Args)
}

// BadCalls lists wrong operands for calls of the given kind, one mistake each. The operands are those of NewArgs in layout bhsd.
func BadCalls(op attn.Op) []Bad {
	base := problem(2, 5, 6, 4, 2, 8, 7)
	base.Op = op
	lengths, stats, bias, boolean := base, base, base, base
	lengths.Lengths = true
	stats.Want = attn.WantLSE
	bias.Score.Terms = attn.TermBias
	boolean.Mask.Bitmap = attn.BoolBitmap
	row := attn.New(attn.BHSD, 2, 5, 4, 1)
	bad := []Bad{
		{"q-too-long", "Q", base, func(a *attn.Args) { a.Q = attn.New(attn.BHSD, 2, 9, 4, 8) }},
		{"q-wrong-dim", "Q", base, func(a *attn.Args) { a.Q.D = 7 }},
		{"q-wrong-batch", "Q", base, func(a *attn.Args) { a.Q.B = 1 }},
		{"q-wrong-heads", "Q", base, func(a *attn.Args) { a.Q.H = 2 }},
		{"q-too-short", "Q", base, func(a *attn.Args) { a.Q.Data = a.Q.Data[:len(a.Q.Data)-1] }},
		{"q-missing", "Q", base, func(a *attn.Args) { a.Q = attn.Tensor{} }},
		{"q-negative-stride", "Q", base, func(a *attn.Args) { a.Q.SS = -8 }},
		{"q-stride-past-the-end", "Q", base, func(a *attn.Args) { a.Q.SB = 1 << 40 }},
		{"q-stride-overflows", "Q", base, func(a *attn.Args) { a.Q.SB = 1<<63 - 1 }},
		{"q-half-precision", "Q", base, func(a *attn.Args) { a.Q.Type = attn.F16 }},
		{"k-too-long", "K", base, func(a *attn.Args) { a.K = attn.New(attn.BHSD, 2, 9, 2, 8) }},
		{"k-wrong-dim", "K", base, func(a *attn.Args) { a.K = attn.New(attn.BHSD, 2, 6, 2, 9) }},
		{"k-query-heads", "K", base, func(a *attn.Args) { a.K = attn.New(attn.BHSD, 2, 6, 4, 8) }},
		{"k-too-short", "K", base, func(a *attn.Args) { a.K.Data = a.K.Data[1:] }},
		{"v-wrong-length", "V", base, func(a *attn.Args) { a.V.S = 5 }},
		{"v-wrong-dim", "V", base, func(a *attn.Args) { a.V.D = 6 }},
		{"v-too-short", "V", base, func(a *attn.Args) { a.V.Data = nil }},
		{"out-wrong-length", "Out", base, func(a *attn.Args) { a.Out.S = 4 }},
		{"out-wrong-dim", "Out", base, func(a *attn.Args) { a.Out = attn.New(attn.BHSD, 2, 5, 4, 8) }},
		{"out-broadcast", "Out", base, func(a *attn.Args) { a.Out.SB = 0 }},
		{"out-rows-overlap", "Out", base, func(a *attn.Args) { a.Out.SS = 6 }},
		{"out-in-q", "Out", base, func(a *attn.Args) { a.Out.Data = a.Q.Data }},
		{"out-in-v", "Out", base, func(a *attn.Args) {
			slab := make([]float32, 1000)
			a.V.Data, a.Out.Data = slab[:len(a.V.Data)], slab[len(a.V.Data)-1:]
		}},
		{"lengths-unasked", "KLen", base, func(a *attn.Args) { a.KLen = []int32{1, 2} }},
		{"positions-unasked", "QPos", base, func(a *attn.Args) { a.QPos = []int32{1, 2} }},
		{"lengths-too-few", "KLen", lengths, func(a *attn.Args) { a.KLen = a.KLen[:1] }},
		{"lengths-negative", "KLen[1]", lengths, func(a *attn.Args) { a.KLen[1] = -1 }},
		{"lengths-too-large", "KLen[0]", lengths, func(a *attn.Args) { a.KLen[0] = 7 }},
		{"positions-too-many", "QPos", lengths, func(a *attn.Args) { a.QPos = make([]int32, 3) }},
		{"ragged-unasked", "QStart", base, func(a *attn.Args) { a.QStart = []int32{0, 2, 5} }},
		{"pages-unasked", "Pages", base, func(a *attn.Args) { a.Pages = []int32{0} }},
		{"mask-unasked", "Allowed", base, func(a *attn.Args) { a.Allowed.Bool = make([]bool, 30) }},
		{"mask-missing", "Allowed", boolean, func(a *attn.Args) { a.Allowed = attn.Bits{} }},
		{"mask-wrong-keys", "Allowed", boolean, func(a *attn.Args) { a.Allowed.D = 5 }},
		{"mask-too-short", "Allowed", boolean, func(a *attn.Args) { a.Allowed.Bool = a.Allowed.Bool[1:] }},
		{"bias-unasked", "Bias", base, func(a *attn.Args) { a.Terms.Bias = attn.New(attn.BHSD, 1, 5, 1, 6) }},
		{"lse-unasked", "LSE", base, func(a *attn.Args) { a.Stats.LSE = row }},
	}
	if op == attn.OpLinear {
		return bad
	}
	return append(bad, []Bad{
		{"bias-missing", "Bias", bias, func(a *attn.Args) { a.Terms.Bias = attn.Tensor{} }},
		{"bias-wrong-heads", "Bias", bias, func(a *attn.Args) { a.Terms.Bias = attn.New(attn.BHSD, 1, 5, 3, 6) }},
		{"bias-too-short", "Bias", bias, func(a *attn.Args) { a.Terms.Bias.Data = a.Terms.Bias.Data[1:] }},
		{"slopes-unasked", "Slopes", base, func(a *attn.Args) { a.Terms.Slopes = make([]float32, 4) }},
		{"lse-wrong-length", "LSE", stats, func(a *attn.Args) { a.Stats.LSE.S = 4 }},
		{"lse-too-short", "LSE", stats, func(a *attn.Args) { a.Stats.LSE.Data = a.Stats.LSE.Data[1:] }},
		{"lse-in-out", "LSE", stats, func(a *attn.Args) { a.Stats.LSE.Data = a.Out.Data }},
		{"mean-unasked", "Mean", stats, func(a *attn.Args) { a.Stats.Mean = row }},
	}...)
}
