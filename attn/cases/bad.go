package cases

import (
	"slices"

	"attnlab/attn"
)

// A Bad call has one wrong operand. A kernel must panic with an error that names the operand.
type Bad struct {
	Name, Operand string
	Problem       attn.Problem
	Break         func(a *attn.Args)
}

// BadCalls lists calls of an operation with one wrong operand each, of the operands that the
// operation has. All others are those of NewArgs in layout bhsd.
func BadCalls(op attn.Op) []Bad {
	base := problem(2, 5, 6, 4, 2, 8, 7)
	base.Op = op
	lengths, stats, bias, boolean, all, matrices := base, base, base, base, base, base
	lengths.Lengths = true
	stats.Want = attn.WantLSE
	all.Want = everyRowStat
	matrices.Want = attn.WantWeights | attn.WantScores
	bias.Score.Terms = attn.TermBias
	boolean.Mask.Bitmap = attn.BoolBitmap
	row := attn.New(attn.BHSD, 2, 5, 4, 1)
	named := func(change func(p *attn.Problem)) attn.Problem {
		p := all
		change(&p)
		return p
	}
	bad := append(badPlaces(base), []Bad{
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
	}...)
	bad = append(bad, badTerms(base)...)
	bad = append(bad, badRules(base)...)
	bad = append(bad, []Bad{
		{"bias-missing", "Bias", bias, func(a *attn.Args) { a.Terms.Bias = attn.Tensor{} }},
		{"bias-wrong-heads", "Bias", bias, func(a *attn.Args) { a.Terms.Bias = attn.New(attn.BHSD, 1, 5, 3, 6) }},
		{"bias-too-short", "Bias", bias, func(a *attn.Args) { a.Terms.Bias.Data = a.Terms.Bias.Data[1:] }},
		{"lse-wrong-length", "LSE", stats, func(a *attn.Args) { a.Stats.LSE.S = 4 }},
		{"lse-too-short", "LSE", stats, func(a *attn.Args) { a.Stats.LSE.Data = a.Stats.LSE.Data[1:] }},
		{"lse-in-out", "LSE", stats, func(a *attn.Args) { a.Stats.LSE.Data = a.Out.Data }},
		{"lse-in-mean", "LSE", all, func(a *attn.Args) { a.Stats.LSE.Data = a.Stats.Mean.Data }},
		{"mean-unasked", "Mean", stats, func(a *attn.Args) { a.Stats.Mean = row }},
		{"max-wrong-heads", "Max", all, func(a *attn.Args) { a.Stats.Max.H = 3 }},
		{"max-unasked", "Max", stats, func(a *attn.Args) { a.Stats.Max = row }},
		{"argmax-too-short", "ArgMax", all, func(a *attn.Args) { a.Stats.ArgMax = a.Stats.ArgMax[1:] }},
		{"argmax-in-lengths", "KLen", named(func(p *attn.Problem) { p.Lengths = true }), argMaxOver(func(a *attn.Args) *[]int32 { return &a.KLen })},
		{"argmax-in-positions", "QPos", named(func(p *attn.Problem) { p.Lengths = true }), argMaxOver(func(a *attn.Args) *[]int32 {
			a.QPos = make([]int32, 2)
			return &a.QPos
		})},
		{"argmax-in-qstart", "QStart", named(func(p *attn.Problem) { p.Ragged = true }), argMaxOver(func(a *attn.Args) *[]int32 { return &a.QStart })},
		{"argmax-in-kstart", "KStart", named(func(p *attn.Problem) { p.Ragged = true }), argMaxOver(func(a *attn.Args) *[]int32 { return &a.KStart })},
		{"argmax-in-pages", "Pages", named(func(p *attn.Problem) { p.Page = 8 }), argMaxOver(func(a *attn.Args) *[]int32 { return &a.Pages })},
		{"argmax-unasked", "ArgMax", stats, func(a *attn.Args) { a.Stats.ArgMax = make([]int32, 40) }},
		{"weights-wrong-keys", "Weights", matrices, func(a *attn.Args) { a.Stats.Weights.D = 5 }},
		{"scores-wrong-keys", "Scores", matrices, func(a *attn.Args) { a.Stats.Scores.D = 7 }},
		{"scores-in-out", "Scores", matrices, func(a *attn.Args) { a.Stats.Scores.Data = a.Out.Data }},
		{"scores-unasked", "Scores", all, func(a *attn.Args) { a.Stats.Scores = attn.New(attn.BHSD, 2, 5, 4, 6) }},
	}...)
	return slices.DeleteFunc(bad, func(b Bad) bool { return b.Problem.Validate() != nil })
}

// argMaxOver moves one of the call's lists to the end of the memory of ArgMax. The list keeps its
// numbers.
func argMaxOver(list func(a *attn.Args) *[]int32) func(a *attn.Args) {
	return func(a *attn.Args) {
		x := list(a)
		n := len(a.Stats.ArgMax)
		all := make([]int32, n)
		at := n - len(*x)
		copy(all[at:], *x)
		a.Stats.ArgMax, *x = all, all[at:]
	}
}

// badRules returns mistakes in the operands of a rule and in states.
func badRules(base attn.Problem) []Bad {
	base.SeqQ = base.SeqKV
	carries := base
	carries.Mask = attn.Causal()
	rule := attn.KDA(base)
	if base.Op != attn.OpLinear {
		rule, carries = base, base
		rule.Linear.Delta = true // which makes it invalid
		carries.Linear.Delta = true
	}
	values, ragged, several := rule, rule, rule
	values.HeadsQ, values.Linear.HeadsV = 2, 4
	ragged.Ragged = true
	several.Linear.Snapshots = 3
	return []Bad{
		{"decay-unasked", "Decay", base, func(a *attn.Args) { a.Terms.Decay = attn.New(attn.BHSD, 2, 6, 2, 1) }},
		{"beta-unasked", "Beta", base, func(a *attn.Args) { a.Terms.Beta = attn.New(attn.BHSD, 2, 6, 2, 1) }},
		{"state-unasked", "StateIn", base, func(a *attn.Args) { a.StateIn = make([]float32, 256) }},
		{"decay-missing", "Decay", rule, func(a *attn.Args) { a.Terms.Decay = attn.Tensor{} }},
		{"decay-per-head", "Decay", rule, func(a *attn.Args) { a.Terms.Decay.D = 1 }},
		{"decay-of-query-heads", "Decay", rule, func(a *attn.Args) { a.Terms.Decay = attn.New(attn.BHSD, 2, 6, 4, 8) }},
		{"decay-of-key-heads", "Decay", values, func(a *attn.Args) { a.Terms.Decay = attn.New(attn.BHSD, 2, 6, 2, 8) }},
		{"decay-too-short", "Decay", rule, func(a *attn.Args) { a.Terms.Decay.Data = a.Terms.Decay.Data[1:] }},
		{"beta-missing", "Beta", rule, func(a *attn.Args) { a.Terms.Beta = attn.Tensor{} }},
		{"beta-wrong-heads", "Beta", rule, func(a *attn.Args) { a.Terms.Beta = attn.New(attn.BHSD, 2, 6, 4, 1) }},
		{"beta-too-few-tokens", "Beta", rule, func(a *attn.Args) { a.Terms.Beta.S = 5 }},
		{"v-of-key-heads", "V", values, func(a *attn.Args) { a.V = attn.New(attn.BHSD, 2, 6, 2, 7) }},
		{"out-of-query-heads", "Out", values, func(a *attn.Args) { a.Out = attn.New(attn.BHSD, 2, 6, 2, 7) }},
		{"fewer-queries-than-keys", "Q, K", rule, func(a *attn.Args) { a.Q.S, a.Out.S = 5, 5 }},
		{"uneven-sequences", "Q, K", ragged, func(a *attn.Args) { a.QStart[2] = 11 }},
		{"state-too-short", "StateIn", carries, func(a *attn.Args) { a.StateIn = make([]float32, 7) }},
		{"state-out-too-long", "StateOut", rule, func(a *attn.Args) { a.StateOut = append(a.StateOut, 0) }},
		{"state-of-one-snapshot", "StateOut", several, func(a *attn.Args) { a.StateOut = a.StateOut[:len(a.StateOut)/3] }},
		{"state-out-in-v", "StateOut", rule, func(a *attn.Args) {
			slab := make([]float32, 4000)
			copy(slab, a.V.Data)
			a.V.Data, a.StateOut = slab[:len(a.V.Data)], slab[len(a.V.Data)-1:][:len(a.StateOut)]
		}},
		{"state-out-in-out", "StateOut", rule, func(a *attn.Args) {
			slab := make([]float32, 4000)
			a.Out.Data, a.StateOut = slab[:len(a.Out.Data)], slab[len(a.Out.Data)-1:][:len(a.StateOut)]
		}},
		{"state-out-beside-state-in", "StateOut", rule, func(a *attn.Args) {
			n := len(a.StateIn)
			slab := make([]float32, n+1)
			a.StateIn, a.StateOut = slab[:n], slab[1:]
		}},
	}
}

// badPlaces returns mistakes in the location and the type of rows.
func badPlaces(base attn.Problem) []Bad {
	ragged, paged, both, half, small, packed, blocks := base, base, base, base, base, base, base
	ragged.Ragged = true
	paged.Page = 8
	both.Ragged, both.Page = true, 8
	half.Q, half.KV, half.Out = attn.F16, attn.F16, attn.F16
	small.KV = attn.I8
	packed.Mask.Bitmap = attn.PackedBitmap
	blocks.Mask = blocks.Mask.WithBlocks(2)
	return []Bad{
		{"qstart-missing", "QStart", ragged, func(a *attn.Args) { a.QStart = nil }},
		{"qstart-too-few", "QStart", ragged, func(a *attn.Args) { a.QStart = a.QStart[:2] }},
		{"qstart-negative", "QStart", ragged, func(a *attn.Args) { a.QStart[0] = -1 }},
		{"qstart-descends", "QStart", ragged, func(a *attn.Args) { a.QStart[1], a.QStart[2] = 4, 3 }},
		{"qstart-too-long", "QStart", ragged, func(a *attn.Args) { a.QStart[1] = 6 }},
		{"qstart-past-the-end", "QStart", ragged, func(a *attn.Args) { a.QStart[1], a.QStart[2] = 10, 11 }},
		{"kstart-missing", "KStart", ragged, func(a *attn.Args) { a.KStart = nil }},
		{"kstart-descends", "KStart", ragged, func(a *attn.Args) { a.KStart[1], a.KStart[2] = 5, 4 }},
		{"kstart-too-long", "KStart", ragged, func(a *attn.Args) { a.KStart[1] = 7 }},
		{"kstart-past-the-end", "KStart", ragged, func(a *attn.Args) { a.KStart[1], a.KStart[2] = 8, 13 }},
		{"kstart-unasked", "KStart", base, func(a *attn.Args) { a.KStart = []int32{0, 6, 12} }},
		{"kstart-beside-pages", "KStart", both, func(a *attn.Args) { a.KStart = []int32{0, 6, 12} }},
		{"pages-missing", "Pages", paged, func(a *attn.Args) { a.Pages = nil }},
		{"pages-too-many", "Pages", paged, func(a *attn.Args) { a.Pages = make([]int32, 3) }},
		{"pages-negative", "Pages[0]", paged, func(a *attn.Args) { a.Pages[0] = -1 }},
		{"pages-out-of-the-pool", "Pages[1]", paged, func(a *attn.Args) { a.Pages[1] = 2 }},
		{"pages-of-k-wrong-rows", "K", paged, func(a *attn.Args) { a.K = attn.New(attn.BHSD, 2, 16, 2, 8) }},
		{"pages-of-v-too-few", "V", paged, func(a *attn.Args) { a.V.B = 1 }},
		{"q-float", "Q", half, func(a *attn.Args) { a.Q = attn.New(attn.BHSD, 2, 5, 4, 8) }},
		{"k-bf16", "K", half, func(a *attn.Args) { a.K.Type = attn.BF16 }},
		{"v-short-of-bits", "V", half, func(a *attn.Args) { a.V.Bits = a.V.Bits[1:] }},
		{"out-float", "Out", half, func(a *attn.Args) { a.Out = attn.New(attn.BHSD, 2, 5, 4, 7) }},
		{"out-in-k", "Out", half, func(a *attn.Args) { a.Out.Bits = a.K.Bits }},
		{"k-without-scales", "K", small, func(a *attn.Args) { a.K.Scale = nil }},
		{"v-short-of-scales", "V", small, func(a *attn.Args) { a.V.Scale = a.V.Scale[1:] }},
		{"v-scales-between-rows", "V", small, func(a *attn.Args) { a.V = attn.NewTyped(attn.I8, attn.BHSD, 4, 6, 2, 7); a.V.B, a.V.SB = 2, 85 }},
		{"out-in-k-scales", "K.Scale", small, func(a *attn.Args) { a.K.Scale = a.Out.Data[:len(a.K.Scale)] }},
		{"out-in-v-scales", "V.Scale", small, func(a *attn.Args) { a.V.Scale = a.Out.Data[len(a.Out.Data)-len(a.V.Scale):] }},
		{"q-more-rows-than-offsets-reach", "Q", ragged, func(a *attn.Args) { a.Q.S, a.Q.SS = 1<<31, 0 }},
		{"k-more-rows-than-offsets-reach", "K", ragged, func(a *attn.Args) { a.K.S, a.K.SS, a.V.S, a.V.SS = 1<<62, 0, 1<<62, 0 }},
		{"pages-more-than-numbers", "K", paged, func(a *attn.Args) { a.K.B, a.K.SB, a.V.B, a.V.SB = 1<<31, 0, 1<<31, 0 }},
		{"k-float", "K", small, func(a *attn.Args) { a.K = attn.New(attn.BHSD, 2, 6, 2, 8) }},
		{"words-too-few", "Allowed", packed, func(a *attn.Args) { a.Allowed.Words = a.Allowed.Words[1:] }},
		{"words-missing", "Allowed", packed, func(a *attn.Args) { a.Allowed.Words, a.Allowed.Bool = nil, make([]bool, 320) }},
		{"words-negative-stride", "Allowed", packed, func(a *attn.Args) { a.Allowed.SS = -64 }},
		{"blocks-wrong-queries", "Allowed", blocks, func(a *attn.Args) { a.Allowed.S = 2 }},
		{"blocks-wrong-keys", "Allowed", blocks, func(a *attn.Args) { a.Allowed.D = 6 }},
		{"blocks-too-few", "Allowed", blocks, func(a *attn.Args) { a.Allowed.Words = a.Allowed.Words[:2] }},
	}
}

// badTerms returns mistakes in the operands of score terms.
func badTerms(base attn.Problem) []Bad {
	with := func(t attn.Terms) attn.Problem {
		p := base
		p.Score.Terms = t
		return p
	}
	bias, slopes, sinks, relative, metric, rope := with(attn.TermBias), with(attn.TermALiBi), with(attn.TermSinks), with(attn.TermRelative), with(attn.TermMetric), base
	rope.Score.Rope, rope.Lengths = attn.RopeHalves, true
	table := func(rows, heads, dim int) attn.Tensor { return attn.New(attn.BHSD, 1, rows, heads, dim) }
	return []Bad{
		{"out-in-bias", "Out", bias, func(a *attn.Args) { a.Terms.Bias.Data = a.Out.Data[10:130] }},
		{"out-in-sinks", "Out", sinks, func(a *attn.Args) { a.Terms.Sinks = a.Out.Data[7:11] }},
		{"slopes-unasked", "Slopes", base, func(a *attn.Args) { a.Terms.Slopes = make([]float32, 4) }},
		{"slopes-missing", "Slopes", slopes, func(a *attn.Args) { a.Terms.Slopes = nil }},
		{"slopes-too-few", "Slopes", slopes, func(a *attn.Args) { a.Terms.Slopes = a.Terms.Slopes[:3] }},
		{"sinks-unasked", "Sinks", base, func(a *attn.Args) { a.Terms.Sinks = make([]float32, 4) }},
		{"sinks-missing", "Sinks", sinks, func(a *attn.Args) { a.Terms.Sinks = nil }},
		{"sinks-of-key-heads", "Sinks", sinks, func(a *attn.Args) { a.Terms.Sinks = a.Terms.Sinks[:2] }},
		{"relative-unasked", "Relative", base, func(a *attn.Args) { a.Terms.Relative = table(10, 4, 8) }},
		{"relative-missing", "Relative", relative, func(a *attn.Args) { a.Terms.Relative = attn.Tensor{} }},
		{"relative-wrong-rows", "Relative", relative, func(a *attn.Args) { a.Terms.Relative = table(11, 4, 8) }},
		{"relative-wrong-heads", "Relative", relative, func(a *attn.Args) { a.Terms.Relative = table(10, 2, 8) }},
		{"relative-wrong-dim", "Relative", relative, func(a *attn.Args) { a.Terms.Relative.D = 7 }},
		{"relative-too-short", "Relative", relative, func(a *attn.Args) { a.Terms.Relative.Data = a.Terms.Relative.Data[1:] }},
		{"relative-clip-negative", "RelativeClip", relative, func(a *attn.Args) { a.Terms.RelativeClip = -1 }},
		{"relative-clip-overflows", "RelativeClip", relative, func(a *attn.Args) { a.Terms.RelativeClip = 1<<63 - 1 }},
		{"relative-clip-wrong-rows", "Relative", relative, func(a *attn.Args) { a.Terms.RelativeClip = 4 }},
		{"metric-unasked", "Metric", base, func(a *attn.Args) { a.Terms.Metric = table(8, 1, 8) }},
		{"metric-missing", "Metric", metric, func(a *attn.Args) { a.Terms.Metric = attn.Tensor{} }},
		{"metric-wrong-rows", "Metric", metric, func(a *attn.Args) { a.Terms.Metric = table(7, 4, 8) }},
		{"metric-wrong-columns", "Metric", metric, func(a *attn.Args) { a.Terms.Metric.D = 7 }},
		{"metric-of-key-heads", "Metric", metric, func(a *attn.Args) { a.Terms.Metric.H = 2 }},
		{"metric-too-short", "Metric", metric, func(a *attn.Args) { a.Terms.Metric.Data = a.Terms.Metric.Data[1:] }},
		{"rope-unasked", "Cos", base, func(a *attn.Args) { a.Terms.Cos = table(11, 1, 4) }},
		{"rope-missing", "Cos", rope, func(a *attn.Args) { a.Terms.Cos, a.Terms.Sin = attn.Tensor{}, attn.Tensor{} }},
		{"rope-too-many-angles", "Cos", rope, func(a *attn.Args) { a.Terms.Cos, a.Terms.Sin = table(11, 1, 5), table(11, 1, 5) }},
		{"rope-sin-missing", "Sin", rope, func(a *attn.Args) { a.Terms.Sin = attn.Tensor{} }},
		{"rope-sin-too-short", "Sin", rope, func(a *attn.Args) { a.Terms.Sin.Data = a.Terms.Sin.Data[1:] }},
		{"rope-keys-past-the-table", "Cos", rope, func(a *attn.Args) { a.Terms.Cos.S, a.Terms.Sin.S = 5, 5 }},
		{"rope-query-before-the-table", "Cos", rope, func(a *attn.Args) { a.QPos = []int32{0, -1} }},
		{"rope-query-past-the-table", "Cos", rope, func(a *attn.Args) { a.QPos = []int32{0, 7} }},
	}
}
