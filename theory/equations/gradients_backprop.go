package equations

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/calculus"
	"attnlab/theory/scorers"
)

// A backprop is a differentiable problem of the chapter on gradients: attention and a loss, in
// loops over indices as the source documents write it. If dO is given, the loss is sum dO_ib O_ib;
// else it is squares sum O_ib^2.
type backprop struct {
	name        string
	q, k, v     *mat.Dense
	dO          *mat.Dense
	squares     float64 // 0: 1/2
	scale, temp float64 // as in attn.Score
	mask        attn.Mask
	show        func(i, j int) bool // what mask shows; nil: all
	dH, dLSE    []float64           // gradients by entropy and LSE of the rows, or nil
}

// ex1Backprop returns the worked example, whose loss is half the squared norm of the output.
func ex1Backprop() backprop {
	q, k, v := ex1()
	return backprop{name: "EX1", q: q, k: k, v: v}
}

// someBackprop returns a random problem with a random gradient by its output.
func someBackprop(c *Check, name string, nq, nk, d, dv int) backprop {
	return backprop{name: name, q: c.Normal(nq, d), k: c.Normal(nk, d), v: c.Normal(nk, dv), dO: c.Normal(nq, dv)}
}

// causal returns the problem under a causal mask that aligns the last query with the last key.
func (b backprop) causal() backprop {
	nq, nk, _, _ := b.dims()
	b.mask, b.show = attn.Causal(), func(i, j int) bool { return j <= nk-nq+i }
	return b
}

// masked returns the problem under a given mask.
func (b backprop) masked(show func(i, j int) bool) backprop {
	b.mask, b.show = attn.Full().With(attn.BoolBitmap), show
	return b
}

// heated returns the problem at a given temperature.
func (b backprop) heated(temp float64) backprop {
	b.temp = temp
	return b
}

// single returns the problem with all operands rounded to float32.
func (b backprop) single() backprop {
	b.q, b.k, b.v = bridge.Float32(b.q), bridge.Float32(b.k), bridge.Float32(b.v)
	_, o := b.forward()
	b.dO = bridge.Float32(b.upstream(o))
	return b
}

// backpropCases returns problems of several shapes, masks and temperatures.
func backpropCases(c *Check) []backprop {
	sees := make(map[[2]int]bool)
	for i := range 4 {
		for j := range 6 {
			sees[[2]int{i, j}] = i != 2 && c.Rand.IntN(3) > 0 // query 2 sees no key
		}
	}
	return []backprop{
		someBackprop(c, "3 queries, 5 keys", 3, 5, 4, 2),
		someBackprop(c, "5 queries, 3 keys", 5, 3, 2, 6),
		someBackprop(c, "one query, T = 1/2", 1, 4, 3, 3).heated(0.5),
		someBackprop(c, "one key", 4, 1, 3, 2),
		someBackprop(c, "causal", 4, 4, 4, 4).causal(),
		someBackprop(c, "causal, T = 2", 3, 6, 2, 3).causal().heated(2),
		someBackprop(c, "a mask with a blind row, T = 1/2", 4, 6, 3, 2).masked(func(i, j int) bool { return sees[[2]int{i, j}] }).heated(0.5),
	}
}

func (b backprop) dims() (nq, nk, d, dv int) {
	nq, d = b.q.Dims()
	nk, dv = b.v.Dims()
	return nq, nk, d, dv
}

func (b backprop) factor() float64 {
	if b.scale != 0 {
		return b.scale
	}
	_, d := b.q.Dims()
	return 1 / math.Sqrt(float64(d))
}

func (b backprop) temperature() float64 {
	if b.temp != 0 {
		return b.temp
	}
	return 1
}

// forward returns A_ij = exp(S_ij/T) / sum_j exp(S_ij/T) with S_ij = scale sum_a Q_ia K_ja, and
// O_ib = sum_j A_ij V_jb.
func (b backprop) forward() (a, o *mat.Dense) {
	nq, nk, _, dv := b.dims()
	a, o = mat.NewDense(nq, nk, nil), mat.NewDense(nq, dv, nil)
	for i := range nq {
		row, out, z := a.RawRowView(i), o.RawRowView(i), 0.0
		for j := range row {
			if b.show != nil && !b.show(i, j) {
				continue
			}
			s, k := 0.0, b.k.RawRowView(j)
			for e, x := range b.q.RawRowView(i) {
				s += x * k[e]
			}
			row[j] = math.Exp(b.factor() * s / b.temperature())
			z += row[j]
		}
		for j := range row {
			if row[j] == 0 {
				continue
			}
			row[j] /= z
			for e, x := range b.v.RawRowView(j) {
				out[e] += row[j] * x
			}
		}
	}
	return a, o
}

// upstream returns dO.
func (b backprop) upstream(o *mat.Dense) *mat.Dense {
	if b.dO != nil {
		return b.dO
	}
	var to mat.Dense
	to.Scale(2*b.coefficient(), o)
	return &to
}

// coefficient returns the coefficient of the squares.
func (b backprop) coefficient() float64 {
	if b.squares != 0 {
		return b.squares
	}
	return 0.5
}

// loss returns the loss.
func (b backprop) loss() float64 {
	_, o := b.forward()
	total := 0.0
	for i, x := range o.RawMatrix().Data {
		if b.dO != nil {
			total += b.dO.RawMatrix().Data[i] * x
		} else {
			total += b.coefficient() * x * x
		}
	}
	return total
}

// differences returns the gradients by central differences of step h.
func (b backprop) differences(h float64) calculus.Gradients {
	by := func(x *mat.Dense, put func(b *backprop, x *mat.Dense)) *mat.Dense {
		return calculus.NumericalGradient(func(x *mat.Dense) float64 {
			moved := b
			put(&moved, x)
			return moved.loss()
		}, x, h)
	}
	return calculus.Gradients{
		DQ: by(b.q, func(b *backprop, x *mat.Dense) { b.q = x }),
		DK: by(b.k, func(b *backprop, x *mat.Dense) { b.k = x }),
		DV: by(b.v, func(b *backprop, x *mat.Dense) { b.v = x }),
	}
}

// five returns the five steps of the source documents' backward pass:
//
//	dV_jb = sum_i A_ij dO_ib    dA_ij = sum_b dO_ib V_jb
//	dS_ij = A_ij (dA_ij - sum_k A_ik dA_ik) / T
//	dQ_ia = scale sum_j dS_ij K_ja    dK_ja = scale sum_i dS_ij Q_ia
func (b backprop) five(c *Check) *calculus.Staged {
	nq, nk, d, dv := b.dims()
	a, o := b.forward()
	dO := b.upstream(o)
	s := &calculus.Staged{
		DV: mat.NewDense(nk, dv, nil), DA: mat.NewDense(nq, nk, nil), DS: mat.NewDense(nq, nk, nil), DQ: mat.NewDense(nq, d, nil), DK: mat.NewDense(nk, d, nil),
	}
	misprint := c.Flip("rowsum(dA)")
	minus, scale, rate := c.Sign("minus", 1), c.Factor("scale", b.factor()), c.Factor("1/T", 1/b.temperature())
	for i := range nq {
		ofV, ofK := c.Index("query of dV", i, nq), c.Index("query of dK", i, nq)
		sum := 0.0
		for j := range nk {
			for e := range dv {
				gradAdd(s.DV, j, e, a.At(i, j)*dO.At(ofV, e))
				gradAdd(s.DA, i, j, dO.At(i, e)*b.v.At(j, e))
			}
			if misprint {
				sum += s.DA.At(i, j)
			} else {
				sum += a.At(i, j) * s.DA.At(i, j)
			}
		}
		for j := range nk {
			s.DS.Set(i, j, rate*a.At(i, j)*(s.DA.At(i, j)-minus*sum))
			for e := range d {
				gradAdd(s.DQ, i, e, scale*s.DS.At(i, j)*b.k.At(j, e))
				gradAdd(s.DK, j, e, scale*s.DS.At(i, j)*b.q.At(ofK, e))
			}
		}
	}
	return s
}

// byScores returns dS without marking ingredients. Later steps begin with it.
func (b backprop) byScores() *mat.Dense {
	nq, nk, _, _ := b.dims()
	a, o := b.forward()
	dO := b.upstream(o)
	dS := mat.NewDense(nq, nk, nil)
	for i := range nq {
		for j := range nk {
			x := 0.0
			for e, g := range dO.RawRowView(i) {
				x += g * (b.v.At(j, e) - o.At(i, e))
			}
			dS.Set(i, j, a.At(i, j)*x/b.temperature())
		}
	}
	return dS
}

// decompose returns the forward pass computed by package scorers.
func (b backprop) decompose() *scorers.Decomposition {
	return scorers.Attend(scorers.Dot{Scale: b.scale}, b.q, b.k, b.v, scorers.Options{Mask: b.show, Temp: b.temp})
}

// staged returns the backward pass computed by package calculus.
func (b backprop) staged() *calculus.Staged {
	d := b.decompose()
	return calculus.Backward(d, b.q, b.k, b.v, b.scale, b.upstream(d.Output))
}

// ask returns an Attention's gradients. The operands must be exact in float32.
func (b backprop) ask(c *Check, at bridge.Attention) *bridge.Answer {
	nq, nk, _, _ := b.dims()
	call := bridge.Call{Q: b.q, K: b.k, V: b.v, DO: b.dO, Problem: attn.Problem{Mask: b.mask, Score: attn.Score{Scale: b.scale, Temp: b.temp}}}
	if b.mask.Bitmap == attn.BoolBitmap {
		shows := make([]bool, 0, nq*nk)
		for i := range nq {
			for j := range nk {
				shows = append(shows, b.show(i, j))
			}
		}
		bits, err := attn.BoolMask(shows, nq, nk)
		c.Must(err)
		call.Args.Allowed = bits
	}
	if b.dH != nil {
		call.DEntropy = mat.NewDense(nq, 1, b.dH)
	}
	if b.dLSE != nil {
		call.DLSE = mat.NewDense(nq, 1, b.dLSE)
	}
	return c.Attend(at, call)
}

// nearStages demands that every stage of two backward passes agrees.
func nearStages(c *Check, what string, got, want *calculus.Staged, bound float64) {
	c.NearMat(what+": dV", got.DV, want.DV, bound)
	c.NearMat(what+": dA", got.DA, want.DA, bound)
	c.NearMat(what+": dS", got.DS, want.DS, bound)
	c.NearMat(what+": dQ", got.DQ, want.DQ, bound)
	c.NearMat(what+": dK", got.DK, want.DK, bound)
}

// tolerableGradients demands that an Attention's gradients are want, within the error of float32.
func tolerableGradients(c *Check, what string, ans *bridge.Answer, want calculus.Gradients) {
	c.Tolerable(what+": dQ", ans.DQ, want.DQ, gradNoise)
	c.Tolerable(what+": dK", ans.DK, want.DK, gradNoise)
	c.Tolerable(what+": dV", ans.DV, want.DV, gradNoise)
}

// gradNoise is the error that a float64 sum of a few numbers near 1 may have.
const gradNoise = 1e-14

// gradAdd adds x to an element.
func gradAdd(m *mat.Dense, i, j int, x float64) { m.Set(i, j, m.At(i, j)+x) }

// gradUnit returns the n by n identity matrix.
func gradUnit(n int) *mat.Dense {
	m := mat.NewDense(n, n, nil)
	for i := range n {
		m.Set(i, i, 1)
	}
	return m
}

// gradDelta returns 1 where two indices are equal, and 0 elsewhere.
func gradDelta(i, j int) float64 {
	if i == j {
		return 1
	}
	return 0
}

// gradSize returns the largest absolute element of some matrices, or 1 if that is less. Errors are
// relative to it.
func gradSize(ms ...*mat.Dense) float64 {
	size := 1.0
	for _, m := range ms {
		size = max(size, mat.Max(m), -mat.Min(m))
	}
	return size
}
