package attn_test

import (
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// grads lays out the gradients of a call.
func grads(p attn.Problem, a *attn.Args, layout string) *attn.Grads {
	g, err := cases.NewGrads(p, a, layout, nil)
	if err != nil {
		panic(err)
	}
	return g
}

func TestCheckGradsNamesTheOperand(t *testing.T) {
	for _, op := range attn.Ops() {
		for _, bad := range cases.BadGrads(op) {
			a := call(bad.Problem)
			g := grads(bad.Problem, a, "bhsd")
			if err := bad.Problem.CheckGrads(a, g); err != nil {
				t.Errorf("%v %s: before it is broken: %v", op, bad.Name, err)
			}
			bad.Break(a, g)
			if err := bad.Problem.CheckGrads(a, g); err == nil || !strings.Contains(err.Error(), bad.Operand) {
				t.Errorf("%v %s: error %v, want one that names %s", op, bad.Name, err, bad.Operand)
			}
		}
	}
	p := attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 2}
	if err := p.CheckGrads(call(p), new(attn.Grads)); err == nil || !strings.Contains(err.Error(), "Want") {
		t.Errorf("a problem without WantGrad: %v", err)
	}
	p.Want = attn.WantGrad
	if err := p.CheckGrads(call(p), nil); err == nil || !strings.Contains(err.Error(), "grads") {
		t.Errorf("no Grads: %v", err)
	}
}

// TestCheckGradsTakesWhatIsRight checks that gradients of every layout pass CheckGrads, also as
// views of one slab, and that CheckGrads allocates nothing.
func TestCheckGradsTakesWhatIsRight(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 5, SeqKV: 5, HeadsQ: 4, HeadsKV: 2, Dim: 3, DimV: 7, Want: attn.WantGrad | attn.WantEntropy}
	p.Score.Terms = attn.TermBias | attn.TermALiBi | attn.TermSinks | attn.TermRelative | attn.TermMetric
	for _, layout := range cases.Layouts() {
		a, err := cases.NewArgs(p, layout, nil)
		if err != nil {
			t.Fatal(err)
		}
		g := grads(p, a, layout)
		if err := p.CheckGrads(a, g); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
		if n := testing.AllocsPerRun(1, func() { _ = p.CheckGrads(a, g) }); n != 0 {
			t.Errorf("%s: %v allocations", layout, n)
		}
	}
}

// TestGradientsRefused checks that problems without a defined gradient are refused with the reason.
func TestGradientsRefused(t *testing.T) {
	for text, edit := range map[string]func(p *attn.Problem){
		"f16":         func(p *attn.Problem) { p.Q = attn.F16 },
		"bf16":        func(p *attn.Problem) { p.Out = attn.BF16 },
		"int8":        func(p *attn.Problem) { p.KV = attn.I8 },
		"pages":       func(p *attn.Problem) { p.Page = 16 },
		"temperature": func(p *attn.Problem) { p.Score.Temp = attn.Frozen },
	} {
		p := attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 2, DimV: 2, Want: attn.WantGrad}
		if edit(&p); p.Validate() == nil || !strings.Contains(p.Validate().Error(), text) {
			t.Errorf("%s: %v", text, p.Validate())
		}
	}
}
