package mutants

import (
	"errors"
	"math"
	"runtime"
	"slices"

	"attnlab/attn"
)

// A wrapper changes the problem or the operands before a healthy kernel gets them.
type wrapper struct {
	name    string
	check   func(k attn.Kernel, p attn.Problem, workers int) (int64, error) // nil: the kernel's
	problem func(p *attn.Problem)                                           // nil: no change
	// edits a copy; nil: no change
	call func(w *wrapperPlan, a *attn.Args)
}

func wrappers() []Mutant {
	var all []Mutant
	add := func(name, why string, w wrapper) {
		w.name = name
		all = append(all, Mutant{Name: name, Why: why, Kernel: w, Claims: blockedClaims})
	}
	problem := func(name, why string, f func(p *attn.Problem)) { add(name, why, wrapper{problem: f}) }
	call := func(name, why string, f func(w *wrapperPlan, a *attn.Args)) { add(name, why, wrapper{call: f}) }

	problem("scale_missing", "scores are not divided by the root of the dimension", func(p *attn.Problem) { p.Score.Scale = 1 })
	problem("scale_squared", "scores are scaled twice", func(p *attn.Problem) { p.Score.Scale = p.Scale() * p.Scale() })
	problem("scale_by_values", "the scale is taken from the width of the values", func(p *attn.Problem) {
		if p.Score.Scale == 0 && p.DimV > 0 {
			p.Score.Scale = 1 / math.Sqrt(float64(p.DimV))
		}
	})
	problem("temperature_ignored", "scores are not divided by the temperature", func(p *attn.Problem) { p.Score.Temp = 0 })
	problem("temperature_inverted", "scores are multiplied by the temperature", func(p *attn.Problem) {
		if t := p.Score.Temp; t > 0 && !math.IsInf(t, 1) {
			p.Score.Temp = 1 / t
		}
	})
	problem("causal_off_by_one", "a query sees the key after its own", func(p *attn.Problem) {
		if p.Mask.Band && p.Mask.Left == attn.Unbounded && p.Mask.Right == 0 {
			p.Mask.Right = 1
		}
	})
	problem("causal_ignored", "every query sees every key", func(p *attn.Problem) { p.Mask = attn.Mask{Bitmap: p.Mask.Bitmap, Block: p.Mask.Block} })
	problem("topleft_for_bottomright", "the first query is at the position of the first key", func(p *attn.Problem) { p.Mask.Align = attn.TopLeft })
	problem("bottomright_for_topleft", "the last query is at the position of the last key", func(p *attn.Problem) { p.Mask.Align = attn.BottomRight })
	problem("window_long", "a window reaches one key further back: it counts the query itself", func(p *attn.Problem) {
		if p.Mask.Band && p.Mask.Left >= 0 {
			p.Mask.Left++
		}
	})
	problem("window_short", "a window reaches one key less far back", func(p *attn.Problem) {
		if p.Mask.Band && p.Mask.Left > 0 {
			p.Mask.Left--
		}
	})
	problem("window_right_ignored", "a window shows no key after the query", func(p *attn.Problem) { p.Mask.Right = 0 })
	problem("window_right_long", "a window shows one key too many after the query", func(p *attn.Problem) {
		if p.Mask.Band && p.Mask.Left >= 0 && p.Mask.Right >= 0 {
			p.Mask.Right++
		}
	})
	problem("window_right_short", "a window shows one key too few after the query", func(p *attn.Problem) {
		if p.Mask.Band && p.Mask.Right > 0 {
			p.Mask.Right--
		}
	})
	problem("softcap_ignored", "scores are not limited by the softcap", func(p *attn.Problem) { p.Score.Softcap = 0 })
	problem("rope_halves_for_pairs", "elements form pairs half a row apart, not with their neighbours", func(p *attn.Problem) {
		if p.Score.Rope == attn.RopeInterleaved {
			p.Score.Rope = attn.RopeHalves
		}
	})
	add("sinks_ignored", "the sink takes no weight", wrapper{
		problem: func(p *attn.Problem) { p.Score.Terms &^= attn.TermSinks },
		call:    func(_ *wrapperPlan, a *attn.Args) { a.Terms.Sinks = nil },
	})
	call("alibi_mirrored", "ALiBi favours keys that are far away", func(_ *wrapperPlan, a *attn.Args) {
		slopes := slices.Clone(a.Terms.Slopes)
		for h := range slopes {
			slopes[h] = -slopes[h]
		}
		a.Terms.Slopes = slopes
	})
	problem("window_left_ignored", "a window has no end", func(p *attn.Problem) {
		if p.Mask.Band {
			p.Mask.Left = attn.Unbounded
		}
	})
	add("bias_ignored", "the bias is not added", wrapper{
		problem: func(p *attn.Problem) { p.Score.Terms &^= attn.TermBias },
		call:    func(_ *wrapperPlan, a *attn.Args) { a.Terms.Bias = attn.Tensor{} },
	})
	add("mask_ignored", "the element mask is ignored", wrapper{
		problem: func(p *attn.Problem) { p.Mask.Bitmap, p.Mask.Block = attn.NoBitmap, 0 },
		call:    func(_ *wrapperPlan, a *attn.Args) { a.Allowed = attn.Bits{} },
	})
	lengths := func(p *attn.Problem) { p.Lengths = true }
	add("last_key_dropped", "the last key in use is left out", wrapper{problem: lengths, call: func(w *wrapperPlan, a *attn.Args) {
		w.place(a)
		for b := range w.klen {
			w.klen[b] = max(w.klen[b]-1, 0)
		}
	}})
	add("stale_key", "the key after the last one in use is visible", wrapper{problem: lengths, call: func(w *wrapperPlan, a *attn.Args) {
		if w.p.Ragged || a.KLen == nil {
			return
		}
		w.place(a)
		for b := range w.klen {
			w.klen[b] = min(w.klen[b]+1, int32(w.room(a)))
		}
	}})
	add("position_off_by_one", "queries are positioned one key too far", wrapper{problem: lengths, call: func(w *wrapperPlan, a *attn.Args) {
		w.place(a)
		for b := range w.qpos {
			w.qpos[b]++
		}
	}})
	add("lengths_ignored", "every key of the cache is in use", wrapper{problem: lengths, call: func(w *wrapperPlan, a *attn.Args) {
		w.place(a)
		a.KLen = nil
	}})
	call("positions_ignored", "queries are always positioned at the end", func(_ *wrapperPlan, a *attn.Args) { a.QPos = nil })
	call("keys_of_batch_0", "every batch entry reads the keys of the first", func(_ *wrapperPlan, a *attn.Args) { a.K.SB = 0 })
	call("values_of_head_0", "every head reads the values of the first", func(_ *wrapperPlan, a *attn.Args) { a.V.SH = 0 })
	call("lse_forgotten", "LSE is not written", func(_ *wrapperPlan, a *attn.Args) { a.Stats.LSE = attn.Tensor{} })
	call("last_query_forgotten", "the last query has no output", func(w *wrapperPlan, a *attn.Args) {
		if w.p.Mask == attn.Full() && w.p.Score.Terms == 0 && !w.p.Ragged {
			for _, t := range [...]*attn.Tensor{&a.Q, &a.Out, &a.Stats.LSE, &a.Stats.Mean, &a.Stats.Entropy, &a.Stats.Max} {
				t.S = max(t.S-1, 0)
			}
			a.Stats.ArgMax = nil
		}
	})

	softmax := func(p *attn.Problem) { p.Op, p.Linear = attn.OpSoftmax, attn.Linear{} }
	add("accepts_linear", "linear problems are accepted and computed as softmax", wrapper{
		problem: softmax,
		check: func(k attn.Kernel, p attn.Problem, workers int) (int64, error) {
			softmax(&p)
			return k.Check(p, workers)
		},
	})
	add("refuses_windows", "a claimed ability is refused", wrapper{check: func(k attn.Kernel, p attn.Problem, workers int) (int64, error) {
		if err := p.Require("refuses_windows", blockedClaims&^attn.NeedWindow); err != nil {
			return 0, err
		}
		return k.Check(p, workers)
	}})
	add("vague_refusal", "a refusal does not say what is missing", wrapper{check: func(k attn.Kernel, p attn.Problem, workers int) (int64, error) {
		n, err := k.Check(p, workers)
		if errors.Is(err, attn.ErrUnsupported) {
			err = attn.ErrUnsupported
		}
		return n, err
	}})
	add("check_allocates", "Check makes a buffer to see whether it fits", wrapper{
		check: func(k attn.Kernel, p attn.Problem, workers int) (int64, error) {
			runtime.KeepAlive(make([]float32, min(max(p.SeqQ, 0), 1<<20)))
			return k.Check(p, workers)
		},
	})
	whole := func(p *attn.Problem) {
		if p.HeadsKV > 0 {
			p.HeadsQ -= p.HeadsQ % p.HeadsKV
		}
	}
	add("takes_any_heads", "heads that do not divide are rounded, not refused", wrapper{
		problem: whole,
		check: func(k attn.Kernel, p attn.Problem, workers int) (int64, error) {
			whole(&p)
			return k.Check(p, workers)
		},
	})
	return all
}

func (w wrapper) inner() attn.Kernel { return blocked{w.name, healthy, nil} }

func (w wrapper) Name() (algo, is string) { return w.name, isa }

func (w wrapper) Check(p attn.Problem, workers int) (int64, error) {
	if w.check != nil {
		return w.check(w.inner(), p, workers)
	}
	return w.inner().Check(p, workers)
}

func (w wrapper) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if _, err := w.Check(p, team.Workers()); err != nil {
		return nil, err
	}
	q := p
	if w.problem != nil {
		w.problem(&q)
	}
	inner, err := w.inner().Plan(q, team)
	if err != nil {
		return nil, err
	}
	return &wrapperPlan{wrapper: w, Plan: inner, p: p, klen: make([]int32, p.Batch), qpos: make([]int32, p.Batch)}, nil
}

type wrapperPlan struct {
	wrapper
	attn.Plan
	p          attn.Problem // the problem before the change
	a          attn.Args    // the edited copy
	klen, qpos []int32
}

func (w *wrapperPlan) Forward(a *attn.Args) {
	w.p.Must(w.name, a)
	w.a = *a
	if w.call != nil {
		w.call(w, &w.a)
	}
	w.Plan.Forward(&w.a)
}

// place sets KLen and QPos to the lengths and positions that the operands imply, for a call to
// edit.
func (w *wrapperPlan) place(a *attn.Args) {
	for b := range w.klen {
		w.klen[b], w.qpos[b] = int32(a.Keys(&w.p, b)), int32(a.Pos(&w.p, b))
	}
	a.KLen, a.QPos = w.klen, w.qpos
}

// room returns the number of key rows of a batch entry, in use or not, if the call is not ragged.
func (w *wrapperPlan) room(a *attn.Args) int {
	if w.p.Page != 0 {
		return w.p.SeqKV
	}
	return a.K.S
}
