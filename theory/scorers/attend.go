package scorers

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/gibbs"
)

// Options sets how weights follow from scores.
type Options struct {
	Mask func(i, j int) bool // reports whether query i sees key j; nil shows all keys
	Temp float64             // 0 means 1, attn.Frozen T -> 0, and +Inf uniform weights
}

// A Decomposition holds every stage of attention.
type Decomposition struct {
	Raw          *mat.Dense // scores before the mask
	Scores       *mat.Dense // scores, -Inf for hidden keys
	Weights      *mat.Dense // 0 for hidden keys
	Output       *mat.Dense
	LogPartition []float64 // of each query
	Temp         float64   // the temperature: positive, +Inf, or attn.Frozen
}

// Attend returns attention with the given scorer. v has a row for each row of k.
func Attend(s Scorer, q, k, v mat.Matrix, o Options) *Decomposition {
	nk, _ := k.Dims()
	if r, _ := v.Dims(); r != nk {
		panic(fmt.Sprintf("scorers: K has %d rows and V has %d, want one value for each key", nk, r))
	}
	return Decompose(s.Scores(q, k), v, o)
}

// Decompose returns attention from given scores. v has a row for each column of raw.
func Decompose(raw, v mat.Matrix, o Options) *Decomposition {
	d := &Decomposition{Raw: mat.DenseCopyOf(raw), Scores: o.hide(raw), Temp: o.Temp}
	if d.Temp == 0 {
		d.Temp = 1
	}
	d.Weights = gibbs.SoftmaxRows(d.Scores, o.gibbs())
	d.LogPartition = gibbs.LogPartitionRows(d.Scores, o.gibbs())
	d.Output = Output(d.Weights, v)
	return d
}

// Weights returns A_ij = exp(s_ij / T) / sum_j exp(s_ij / T) over the visible keys.
func Weights(raw mat.Matrix, o Options) *mat.Dense { return gibbs.SoftmaxRows(o.hide(raw), o.gibbs()) }

// Output returns O_ib = sum_j A_ij v_jb. A key of weight 0 adds nothing, even if its value is NaN.
func Output(weights, v mat.Matrix) *mat.Dense {
	nq, nk := weights.Dims()
	r, dv := v.Dims()
	if r != nk {
		panic(fmt.Sprintf("scorers: weights are for %d keys and V has %d rows, want one value for each key", nk, r))
	}
	to := mat.NewDense(nq, dv, nil)
	for j := range nk {
		value := mat.Row(nil, j, v)
		for i := range nq {
			if w := weights.At(i, j); w != 0 {
				floats.AddScaled(to.RawRowView(i), w, value)
			}
		}
	}
	return to
}

// AttendBatch returns Attend of each entry of a batch, or of each head, with the options that o
// returns for the entry. A nil o means the zero Options.
func AttendBatch(s Scorer, q, k, v []*mat.Dense, o func(entry int) Options) []*Decomposition {
	if len(q) != len(k) || len(k) != len(v) {
		panic(fmt.Sprintf("scorers: got %d entries of Q, %d of K and %d of V, want equal numbers", len(q), len(k), len(v)))
	}
	all := make([]*Decomposition, len(q))
	for b := range q {
		var options Options
		if o != nil {
			options = o(b)
		}
		all[b] = Attend(s, q[b], k[b], v[b], options)
	}
	return all
}

// Partition returns Z_i = exp(log Z_i). It is +Inf where Z_i overflows float64; LogPartition does
// not overflow.
func (d *Decomposition) Partition() []float64 {
	z := make([]float64, len(d.LogPartition))
	for i, x := range d.LogPartition {
		z[i] = math.Exp(x)
	}
	return z
}

// hide puts -Inf in place of the scores of hidden keys.
func (o Options) hide(raw mat.Matrix) *mat.Dense {
	if o.Mask == nil {
		return mat.DenseCopyOf(raw)
	}
	return gibbs.MaskRows(raw, o.Mask)
}

// gibbs returns the temperature as package gibbs defines it, where 0 is the limit T -> 0.
func (o Options) gibbs() float64 {
	switch o.Temp {
	case 0:
		return 1
	case attn.Frozen:
		return 0
	}
	return o.Temp
}
