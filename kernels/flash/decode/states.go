package decode

import (
	"math"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/scalar"
)

// partials are the partial states of queries, except their outputs.
type partials struct {
	asm.Sums
	max   []float32 // the largest score
	first []int32   // its key
	bad   []bool    // the row must be computed by definition
}

func newPartials(n int) partials {
	f := func() []float32 { return make([]float32, n) }
	return partials{asm.Sums{M: f(), L: f(), S: f()}, f(), make([]int32, n), make([]bool, n)}
}

// reset empties state i.
func (s *partials) reset(i int) {
	s.set(i, asm.Unset, 0, 0, float32(math.Inf(-1)), -1, false)
}

// set sets state i. A sum that is NaN makes it bad.
func (s *partials) set(i int, m, l, weighted, largest float32, first int32, bad bool) {
	s.M[i], s.L[i], s.S[i], s.max[i], s.first[i], s.bad[i] = m, l, weighted, largest, first, bad || l != l
}

// copy copies state j of from to state i.
func (s *partials) copy(i int, from *partials, j int) {
	s.set(i, from.M[j], from.L[j], from.S[j], from.max[j], from.first[j], from.bad[j])
}

// states are the partial states of a plan.
type states struct {
	partials
	o []float32 // [state][d_v]
}

func newStates(n, columns int) states { return states{newPartials(n), make([]float32, n*columns)} }

// merged is the state of a query over all its keys.
type merged struct {
	ref, sum, weighted float32
	largest            float32
	key                int
	bad                bool
}

// merge scales the n splits of a query, starting at state at, to a common reference and adds their
// sums, in the order of their keys. It replaces M of each split by the factor of its output.
func (s *partials) merge(at, n int) merged {
	to := merged{ref: asm.Unset, largest: float32(math.Inf(-1)), key: -1}
	for k := at; k < at+n; k++ {
		to.bad = to.bad || s.bad[k]
		if s.L[k] > 0 {
			to.ref = max(to.ref, s.M[k])
		}
		if s.max[k] > to.largest {
			to.largest, to.key = s.max[k], int(s.first[k])
		}
	}
	for k := at; k < at+n; k++ {
		f := float32(0)
		switch {
		case !(s.L[k] > 0):
		case s.M[k] == to.ref:
			f = 1
		default:
			f = float32(math.Exp2(float64(s.M[k]) - float64(to.ref)))
		}
		s.M[k] = f
		if f > 0 { // otherwise the sums are meaningless
			to.sum += float32(f * s.L[k])
			to.weighted += float32(f * s.S[k])
		}
	}
	return to
}

// mergeRow merges the partial states of one query, and writes the row.
func (pl *Plan) mergeRow(worker, task int) {
	p := &pl.p
	b, h, i, exists := pl.queryOf(task)
	if !exists {
		return
	}
	w := pl.workers[worker]
	row := &w.row
	row.At(pl.a, b, i, h)
	at, n := pl.stateOf(pl.rowOf(b, h, i)), pl.schedule.splits
	of := pl.states.merge(at, n)
	if sink := pl.a.Sink(p, h); of.bad || sink != sink || sink > math.MaxFloat32 {
		row.ByDefinition()
		return
	}
	if of.sum > 0 && row.FarSums(float64(of.ref), float64(of.weighted)) {
		row.ByDefinition()
		return
	}
	m, sum, weighted, keep := scalar.AddSink(p, pl.a, h, float64(of.ref), float64(of.sum), float64(of.weighted))
	w.scale[0] = 1
	if sum != 0 {
		w.scale[0] = float32(keep / sum)
	}
	out, o := w.clean[:p.DimV], &w.merge
	o.N, o.C, o.Width, o.Lanes, o.P, o.Scale = 1, p.DimV, n, n, pl.states.M[at:], w.scale[:]
	o.X, o.XStride = out, p.DimV
	o.Y = asm.LineRows(asm.Rows{Data: pl.states.o[at*p.DimV:], Stride: p.DimV})
	pl.Ops.Back.Outer(o)
	if !pl.Ops.Vector.Finite(out) {
		if pl.careful {
			row.ByDefinition()
		} else {
			pl.again.Store(true)
		}
		return
	}
	if sum == 0 {
		clear(out)
	}
	row.Write(out)
	if p.Want == 0 {
		return
	}
	row.Largest(float64(of.largest)/pl.factors.Beta, of.key)
	if sum == 0 {
		row.Stats(attn.LogSum{Ref: math.Inf(-1)}, 0, 0)
	} else {
		row.FromSums(m, sum, weighted)
	}
}
