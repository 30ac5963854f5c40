package cases

import (
	"fmt"

	"attnlab/attn"
)

// linear has feature-map attention: each map, each mask a band can be, lengths, shared key heads,
// and both kinds of normalisation. Identity features are not normalised, because their denominators
// may be anything.
func linear(l *list) {
	of := func(p attn.Problem, lin attn.Linear, m attn.Mask) attn.Problem {
		p.Linear, p.Mask = lin, m
		return p
	}
	kinds := []struct {
		name string
		lin  attn.Linear
	}{
		{"elu", attn.Linear{Feature: attn.EluPlusOne}},
		{"relu", attn.Linear{Feature: attn.ReluPlusOne, Eps: 1e-3}},
		{"identity", attn.Linear{Feature: attn.Identity, Unnormalised: true}},
		{"elu-sum", attn.Linear{Feature: attn.EluPlusOne, Unnormalised: true}},
	}
	for i, k := range kinds {
		for _, m := range []attn.Mask{attn.Full(), attn.Causal(), attn.CausalTopLeft()} {
			for j, n := range [][2]int{{40, 40}, {9, 31}, {31, 9}, {1, 65}, {130, 130}, {65, 1}, {1, 1}} {
				l.add(fmt.Sprintf("%s-%v-%dx%d", k.name, m, n[0], n[1]), of(head(n[0], n[1], 8, 12), k.lin, m)).
					core(m.Band && m.Align == attn.BottomRight && j < 4 && (i == 0 || j == 0) || j == 0 && i < 3)
			}
		}
		for _, d := range [][2]int{{1, 1}, {3, 5}, {59, 64}, {64, 59}, {128, 128}} {
			l.add(fmt.Sprintf("%s-dim-%d-%d", k.name, d[0], d[1]), of(head(35, 35, d[0], d[1]), k.lin, attn.Causal())).core(i == 0 && d[0] == 59)
		}
		p := of(problem(2, 19, 19, 6, 2, 8, 8), k.lin, attn.Causal())
		l.add(k.name+"-gqa", p).core(i == 0)
		l.add(k.name+"-padded", p).in("padded").core(i == 1)
		l.add(k.name+"-packed", p).in("packed")
		for _, m := range []attn.Mask{attn.Full(), attn.Causal()} {
			p := of(problem(3, 20, 45, 2, 1, 8, 8), k.lin, m)
			p.Lengths = true
			l.add(fmt.Sprintf("%s-lengths-%v", k.name, m), p).core(i == 0).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
				a.KLen = []int32{45, 0, 13}
				for b, n := range a.KLen {
					for j := int(n); j < a.K.S; j++ {
						fill(a.K.Row(b, j, 0), Poison)
						fill(a.V.Row(b, j, 0), Poison)
					}
				}
			})
			if m.Band {
				l.add(fmt.Sprintf("%s-positions", k.name), p).with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
					a.KLen, a.QPos = []int32{45, 7, 30}, []int32{-5, 40, 11}
				})
			}
		}
		l.add(k.name+"-below-capacity", of(problem(2, 50, 50, 2, 1, 8, 8), k.lin, attn.Causal())).core(i == 0).
			with(func(_ *attn.Problem, a *attn.Args, _ rnd) { Trim(a, 21, 21) })
		l.add(k.name+"-nan-behind", of(head(33, 33, 8, 8), k.lin, attn.Causal())).core(i == 0).
			with(func(_ *attn.Problem, a *attn.Args, _ rnd) {
				fill(a.K.Row(0, 20, 0), nan)
				fill(a.V.Row(0, 20, 0), nan)
			})
		l.add(k.name+"-large", of(head(33, 33, 8, 8), k.lin, attn.Causal())).with(func(_ *attn.Problem, a *attn.Args, r rnd) {
			normal(&a.Q, r, 30) // elu+1 gives exp(-90) on one side and 90 on the other
			normal(&a.K, r, 30)
		})
	}
	for _, c := range []float64{0.3, -2} {
		p := of(head(33, 33, 8, 8), attn.Linear{Feature: attn.Identity, Unnormalised: true}, attn.Causal())
		p.Score.Scale = c
		l.add(fmt.Sprintf("identity-scale-%v", c), p)
	}
	p := of(head(40, 70, 8, 8), attn.Linear{Feature: attn.EluPlusOne, Eps: 0.5}, attn.Full())
	l.add("eps", p).core(true)
	p.Mask = attn.Window(5, 0)
	l.add("window", p)
	p.Mask = attn.Full().With(attn.BoolBitmap)
	l.add("bool", p).with(func(p *attn.Problem, a *attn.Args, r rnd) { a.Allowed = randomMask(r, 0.6, p.SeqQ, p.SeqKV) })
}
