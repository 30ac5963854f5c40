package verify

import "attnlab/attn"

// singles are problems that each need one ability besides the operation itself.
var singles = [...]struct {
	need attn.Needs
	ask  func(p *attn.Problem)
}{
	{attn.NeedWindow, func(p *attn.Problem) { p.Mask = attn.Window(1, 0) }},
	{attn.NeedBool, func(p *attn.Problem) { p.Mask.Bitmap = attn.BoolBitmap }},
	{attn.NeedPacked, func(p *attn.Problem) { p.Mask.Bitmap = attn.PackedBitmap }},
	{attn.NeedBlock, func(p *attn.Problem) { p.Mask = p.Mask.WithBlocks(2) }},
	{attn.NeedTemp, func(p *attn.Problem) { p.Score.Temp = 2 }},
	{attn.NeedSoftcap, func(p *attn.Problem) { p.Score.Softcap = 1 }},
	{attn.NeedBias, func(p *attn.Problem) { p.Score.Terms = attn.TermBias }},
	{attn.NeedALiBi, func(p *attn.Problem) { p.Score.Terms = attn.TermALiBi }},
	{attn.NeedSinks, func(p *attn.Problem) { p.Score.Terms = attn.TermSinks }},
	{attn.NeedRelative, func(p *attn.Problem) { p.Score.Terms = attn.TermRelative }},
	{attn.NeedMetric, func(p *attn.Problem) { p.Score.Terms = attn.TermMetric }},
	{attn.NeedRope, func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }},
	{attn.NeedTypes, func(p *attn.Problem) { p.KV = attn.F16 }},
	{attn.NeedLengths, func(p *attn.Problem) { p.Lengths = true }},
	{attn.NeedRagged, func(p *attn.Problem) { p.Ragged = true }},
	{attn.NeedPages, func(p *attn.Problem) { p.Page = 16 }},
	{attn.NeedLSE, func(p *attn.Problem) { p.Want = attn.WantLSE }},
	{attn.NeedMean, func(p *attn.Problem) { p.Want = attn.WantMean }},
	{attn.NeedEntropy, func(p *attn.Problem) { p.Want = attn.WantEntropy }},
	{attn.NeedMax, func(p *attn.Problem) { p.Want = attn.WantMax }},
	{attn.NeedArgMax, func(p *attn.Problem) { p.Want = attn.WantArgMax }},
	{attn.NeedWeights, func(p *attn.Problem) { p.Want = attn.WantWeights }},
	{attn.NeedScores, func(p *attn.Problem) { p.Want = attn.WantScores }},
	{attn.NeedGrad, func(p *attn.Problem) { p.Want = attn.WantGrad }},
	{attn.NeedHeadGate, recurrent(func(l *attn.Linear) { l.Gate = attn.HeadGate })},
	{attn.NeedKeyGate, recurrent(func(l *attn.Linear) { l.Gate = attn.KeyGate })},
	{attn.NeedDelta, recurrent(func(l *attn.Linear) { l.Delta = true })},
	{attn.NeedNorm, recurrent(func(l *attn.Linear) { l.Norm = attn.NormSum })},
	{attn.NeedHeadsV, recurrent(func(l *attn.Linear) { l.HeadsV = 1 })},
	{attn.NeedSnapshots, recurrent(func(l *attn.Linear) { l.Snapshots = 2 })},
}

// recurrent makes a problem causal and unnormalised, as every rule allows, and sets its rule.
func recurrent(set func(l *attn.Linear)) func(p *attn.Problem) {
	return func(p *attn.Problem) {
		p.Mask, p.Linear.Unnormalised = attn.Causal(), true
		set(&p.Linear)
	}
}

// Powers returns the abilities of a kernel. A kernel of this module is asked for one at a time. A
// Foreign kernel may refuse any problem, so its own claims count.
func Powers(k attn.Kernel) attn.Needs {
	if f, ok := k.(attn.Foreign); ok {
		return f.Claims()
	}
	var have attn.Needs
	for _, op := range attn.OpsOf(k) {
		plain := attn.Problem{Op: op, Batch: 1, SeqQ: 4, SeqKV: 4, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 8}
		have |= op.Need()
		for _, s := range singles {
			p := plain
			s.ask(&p)
			if _, err := k.Check(p, 1); err == nil {
				have |= s.need
			}
		}
	}
	return have
}
