package flash

import (
	"fmt"
	"math"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/tile"
)

// Queries of several heads that stand in the lanes of one tile get the bits that they get where each head has keys of its own, which are the same.
func TestMixedHeadsKeepBits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	for _, l := range asmtest.All(t) {
		k, mixed := New(l.Ops), 0
		for name, set := range map[string]func(p *attn.Problem, a *attn.Args){
			"plain":   func(*attn.Problem, *attn.Args) {},
			"argmax":  func(p *attn.Problem, _ *attn.Args) { p.Want |= attn.WantArgMax },
			"causal":  func(p *attn.Problem, _ *attn.Args) { p.Mask = attn.Causal() },
			"window":  func(p *attn.Problem, _ *attn.Args) { p.Mask = attn.Window(30, 5) },
			"types":   func(p *attn.Problem, _ *attn.Args) { p.Q, p.Out = attn.F16, attn.BF16 },
			"softcap": func(p *attn.Problem, _ *attn.Args) { p.Score.Softcap = 2 },
			"rope": func(p *attn.Problem, a *attn.Args) {
				p.Score.Rope = attn.RopeHalves
				a.Terms.Cos, a.Terms.Sin = attn.RopeTables(10000, p.SeqQ+p.SeqKV, p.Dim)
			},
			"sinks": func(p *attn.Problem, a *attn.Args) {
				p.Score.Terms = attn.TermSinks
				a.Terms.Sinks = []float32{0, inf, 1, -3, float32(math.NaN()), 2}
			},
		} {
			for _, nq := range []int{9, 17, 50} {
				few := attn.Problem{Batch: 2, SeqQ: nq, SeqKV: 150, HeadsQ: 6, HeadsKV: 2, Dim: 24, DimV: 40, Lengths: true, Want: attn.WantLSE}
				var terms attn.Args
				set(&few, &terms)
				many := few
				many.HeadsKV = many.HeadsQ
				if tile.UsesParts(&few, l.Ops) != tile.UsesParts(&many, l.Ops) {
					continue
				}
				together, apart := newArgs(t, few, "bshd"), newArgs(t, many, "bhsd")
				together.Terms, apart.Terms = terms.Terms, terms.Terms
				if err := cases.Fill("normal", many, apart, 1); err != nil {
					t.Fatal(err)
				}
				apart.V.Row(0, 7, 0)[3] = inf // in the first key head
				for b := range few.Batch {
					for j := range few.SeqKV {
						for h := range many.HeadsKV {
							from := h / few.Group() * few.Group()
							copy(apart.K.Row(b, j, h), apart.K.Row(b, j, from))
							copy(apart.V.Row(b, j, h), apart.V.Row(b, j, from))
							copy(together.K.Row(b, j, h/few.Group()), apart.K.Row(b, j, from))
							copy(together.V.Row(b, j, h/few.Group()), apart.V.Row(b, j, from))
						}
					}
				}
				together.Q, together.KLen = apart.Q, apart.KLen
				together.KLen[1] = 101
				answer := func(p attn.Problem, team *attn.Team, a *attn.Args) {
					pl, err := k.Plan(p, team)
					if err != nil {
						t.Fatal(err)
					}
					pl.Forward(a)
				}
				answer(many, nil, apart)
				if tile.MixingPays(&few, l.Ops, nq) {
					mixed++
				}
				for _, team := range []*attn.Team{nil, team} {
					answer(few, team, together)
					at := fmt.Sprintf("%s, %s, %d queries", l.Name, name, nq)
					sameRows(t, at, &together.Out, &apart.Out)
					sameRows(t, at+", LSE", &together.Stats.LSE, &apart.Stats.LSE)
					for i, x := range together.Stats.ArgMax {
						if x != apart.Stats.ArgMax[i] {
							t.Errorf("%s: the key of the largest score of row %d is %d, want %d", at, i, x, apart.Stats.ArgMax[i])
							break
						}
					}
				}
			}
		}
		if mixed == 0 && l.Ops.Vec > 1 {
			t.Errorf("%s: no tile of several heads", l.Name)
		}
	}
}
