package flash

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash/flashtest"
	"attnlab/kernels/tile"
)

// TestJoinedHeadsKeepBits checks that queries of several heads in the lanes of one tile have the
// bits that they have where each head has its own copy of the shared keys.
func TestJoinedHeadsKeepBits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	for _, l := range asmtest.All(t) {
		if testing.Short() && l.Core { // like asmtest.Levels, the fastest set alone
			continue
		}
		k, joined := New(l.Ops), 0
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
				a.Terms.Sinks = []float32{0, flashtest.Inf, 1, -3, float32(math.NaN()), 2}
			},
		} {
			for _, nq := range []int{9, 17, 50} {
				few := attn.Problem{Batch: 2, SeqQ: nq, SeqKV: 150, HeadsQ: 6, HeadsKV: 2, Dim: 24, DimV: 40, Lengths: true, Want: attn.WantLSE}
				var terms attn.Args
				set(&few, &terms)
				many := few
				many.HeadsKV = many.HeadsQ
				if packs(&few, l.Ops) != packs(&many, l.Ops) {
					continue
				}
				together, apart := flashtest.NewArgs(t, few, "bshd"), flashtest.NewArgs(t, many, "bhsd")
				together.Terms, apart.Terms = terms.Terms, terms.Terms
				if err := cases.Fill("normal", many, apart, 1); err != nil {
					t.Fatal(err)
				}
				apart.V.Row(0, 7, 0)[3] = flashtest.Inf // in the first key head
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
				if tile.JoiningPays(&few, l.Ops, nq) {
					joined++
				}
				for _, team := range []*attn.Team{nil, team} {
					answer(few, team, together)
					at := fmt.Sprintf("%s, %s, %d queries", l.Name, name, nq)
					flashtest.SameRows(t, at, &together.Out, &apart.Out)
					flashtest.SameRows(t, at+", LSE", &together.Stats.LSE, &apart.Stats.LSE)
					for i, x := range together.Stats.ArgMax {
						if x != apart.Stats.ArgMax[i] {
							t.Errorf("%s: the key of the largest score of row %d is %d, want %d", at, i, x, apart.Stats.ArgMax[i])
							break
						}
					}
				}
			}
		}
		if joined == 0 && l.Ops.Shape.Vec > 1 {
			t.Errorf("%s: no tile of several heads", l.Name)
		}
	}
}

// packs reports whether a problem's operands are packed.
func packs(p *attn.Problem, ops *asm.Ops) bool {
	pack := tile.Packing(p, ops, asm.Forward)
	return pack.Size(asm.Keys, ops.Shape.Group, p.Dim) > 0
}

// tileSplit is the number of keys in a KV split of tiles.
const tileSplit = 4096

// TestTilesOfSplits checks many queries that share a key head, which go through splits of its keys
// in tiles. They must have the outputs of rows, up to rounding, and the same bits for any number of
// workers, in pages or not, and where values are not finite.
func TestTilesOfSplits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	const largest = attn.WantMax | attn.WantArgMax
	for _, l := range asmtest.Levels(t) {
		for _, c := range []struct {
			nq, group int
			mask      attn.Mask
			kv        attn.DType
			terms     attn.Terms
			want      attn.Want
		}{
			{1, 40, attn.Full(), attn.F32, 0, largest},
			{4, 8, attn.Causal(), attn.F32, attn.TermSinks, largest},
			{8, 12, attn.Window(900, 0), attn.I8, 0, largest},
			{8, 16, attn.Full(), attn.F32, 0, 0}, // amx packs
		} {
			if testing.Short() && c.group > 12 {
				continue
			}
			p := attn.Problem{
				Batch: 2, SeqQ: c.nq, SeqKV: 2*tileSplit + 76, HeadsQ: 2 * c.group, HeadsKV: 2, Dim: 24, DimV: 40, Mask: c.mask, KV: c.kv, Lengths: true,
				Want: attn.WantLSE | c.want,
			}
			p.Score.Terms = c.terms
			if want := asmtest.Packs(l.Ops) && c.want == 0; packs(&p, l.Ops) != want {
				t.Fatalf("%s, %d queries of %d heads: packed %v, want %v", l.ISA, c.nq, c.group, !want, want)
			}
			a, again := flashtest.NewArgs(t, p, "bshd"), flashtest.NewArgs(t, p, "bshd")
			for _, a := range []*attn.Args{a, again} {
				if err := cases.Fill("normal", p, a, 1); err != nil {
					t.Fatal(err)
				}
				a.KLen[1] = tileSplit + 5
			}
			at := fmt.Sprintf("%s, %d queries of %d heads, %v", l.ISA, c.nq, c.group, c.mask)
			for _, careful := range []bool{false, true} {
				if careful && (c.kv != attn.F32 || c.group > 20) { // rows by definition take long
					break
				}
				if careful {
					a.V.Row(0, tileSplit+9, 1)[3], again.V.Row(0, tileSplit+9, 1)[3] = flashtest.Inf, flashtest.Inf
				}
				forward(t, l.Ops, p, nil, a)
				forward(t, l.Ops, p, team, again)
				flashtest.SameRows(t, at, &again.Out, &a.Out)
				flashtest.SameRows(t, at, &again.Stats.LSE, &a.Stats.LSE)

				pages := p
				pages.Page = 64
				paged := flashtest.NewArgs(t, pages, "bhsd")
				flashtest.FillPages(&pages, paged, a)
				paged.Q, paged.KLen, paged.Terms = a.Q, a.KLen, a.Terms
				forward(t, l.Ops, pages, team, paged)
				flashtest.SameRows(t, at+", in pages", &paged.Out, &a.Out)

				rows := p
				rows.Score.Terms |= attn.TermALiBi // with slope 0; this makes them rows
				again.Terms.Slopes = make([]float32, p.HeadsQ)
				forward(t, l.Ops, rows, nil, again)
				again.Terms.Slopes = nil
				for b := range p.Batch {
					for i := range c.nq {
						for h := range p.HeadsQ {
							if c.want != 0 {
								if x, y := a.Stats.Max.Row(b, i, h)[0], again.Stats.Max.Row(b, i, h)[0]; !near(x, y) {
									t.Fatalf("%s: the largest score of query %d of head %d is %v, want %v", at, i, h, x, y)
								}
							}
							for col, x := range a.Out.Row(b, i, h) {
								if y := again.Out.Row(b, i, h)[col]; !near(x, y) {
									t.Fatalf("%s: column %d of query %d of head %d is %v, want %v", at, col, i, h, x, y)
								}
							}
						}
					}
				}
				if !slices.Equal(a.Stats.ArgMax, again.Stats.ArgMax) {
					t.Errorf("%s: other keys of the largest scores", at)
				}
			}
		}
	}
}

// forward computes one call.
func forward(t *testing.T, ops *asm.Ops, p attn.Problem, team *attn.Team, a *attn.Args) {
	t.Helper()
	pl, err := New(ops).Plan(p, team)
	if err != nil {
		t.Fatal(err)
	}
	pl.Forward(a)
}

// near reports whether two numbers of about 1 are the same up to rounding.
func near(x, y float32) bool { return flashtest.Same(x, y) || math.Abs(float64(x)-float64(y)) < 1e-5 }
