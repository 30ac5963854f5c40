package layer

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// check verifies a layer in three ways and returns the worst of the three:
//
//   - Attention. Sampled rows of the layer's own calls, forward and backward, are compared with the
//     definition, as those of a kernel alone are.
//   - Products. Sampled elements of every matrix product are compared with sums in float64. The
//     tolerance is u (√n+4) Σ|a||b|, where n is the number of terms.
//   - The whole layer, on its first rows. Output and gradients are compared with those of the same
//     layer on the reference kernel and portable loops. The tolerance is 2u (√m+32) of the largest
//     number in the matrix, where m is the length of the longest sum: some roundings on either
//     side. Only this compares what is computed element by element.
func (j *job) check(rows int, seed uint64) (oracle.Verdict, error) {
	verdict := &judge{rows: rows, seed: seed, rand: rand.New(rand.NewPCG(seed, 3))}
	clearGrads(j.layer)
	j.watch.judge = verdict
	j.side.call(j.x, j.dy)
	j.watch.judge = nil
	return verdict.Verdict, errors.Join(verdict.err, j.compare(verdict))
}

// clearGrads sets all gradients of a layer's weights to zero.
func clearGrads(l nn.Layer) {
	for _, p := range l.Params() {
		p.Grad.Clear()
	}
}

// A judge compares the results of a call as they are computed.
type judge struct {
	oracle.Verdict
	rows     int
	seed     uint64
	rand     *rand.Rand
	sample   []oracle.Index // the rows of attention that are compared
	products int
	err      error
}

// take adds what one comparison found.
func (j *judge) take(what string, v oracle.Verdict, err error) {
	j.err = errors.Join(j.err, err)
	j.Rows += v.Rows
	if !(v.Worst <= j.Worst) {
		j.Worst, j.Where = v.Worst, what+v.Where
	}
}

// forward compares sampled rows of a call's output.
func (j *judge) forward(p attn.Problem, a *attn.Args) {
	o, err := oracle.New(p, a)
	if err != nil {
		j.take("", oracle.Verdict{}, err)
		return
	}
	j.sample = oracle.Sample(&p, a, j.rows, j.seed)
	j.take("attention: ", o.Judge(j.sample), nil)
}

// backward compares the gradients of the sampled rows. It runs the pass again with the gradients of
// the other rows set to zero, and then once more as it was.
func (j *judge) backward(p attn.Problem, plan attn.Differentiable, a *attn.Args, g *attn.Grads) {
	o, err := oracle.New(p, a)
	if err != nil {
		j.take("", oracle.Verdict{}, err)
		return
	}
	thin := *g
	thin.Out = attn.New(attn.BSHD, g.Out.B, g.Out.S, g.Out.H, g.Out.D)
	cases.Rows(&g.Out, func(b, s, h int, row []float32) { copy(thin.Out.Row(b, s, h), row) })
	oracle.Thin(&p, a, &thin, j.sample)
	plan.Backward(a, &thin)
	v, err := o.JudgeGrads(&thin)
	v.Rows = 0 // forward has counted them
	j.take("attention, backward: ", v, err)
	plan.Backward(a, g)
}

// elementsToCheck is the number of elements of a product that are compared, in addition to the
// first and the last.
const elementsToCheck = 64

// unit is the unit roundoff u of float32: half the distance between 1 and the next number.
const unit = 0x1p-24

// product compares elements of a product with sums in float64. A product that adds to its
// destination is right too: the gradients it adds to were cleared.
func (j *judge) product(p nn.Product) {
	j.products++
	at := func(m nn.Mat, i, k int, transposed bool) float64 {
		if transposed {
			i, k = k, i
		}
		return float64(m.Data[i*m.Stride+k])
	}
	terms := p.A.Cols
	if p.AT {
		terms = p.A.Rows
	}
	if p.C.Rows*p.C.Cols == 0 {
		return
	}
	for n := range elementsToCheck + 2 {
		row, col := j.rand.IntN(p.C.Rows), j.rand.IntN(p.C.Cols)
		switch n {
		case 0:
			row, col = 0, 0
		case 1:
			row, col = p.C.Rows-1, p.C.Cols-1
		}
		want, size := 0.0, 0.0
		for k := range terms {
			x := at(p.A, row, k, p.AT) * at(p.B, k, col, p.BT)
			want, size = want+x, size+math.Abs(x)
		}
		got := p.C.Row(row)[col]
		ratio := oracle.Ratio(float64(got), want, unit*(math.Sqrt(float64(terms))+4)*size)
		if !(ratio <= j.Worst) {
			j.Worst, j.Where = ratio, fmt.Sprintf("product %d, into %v: element %d, %d is %v, want %v", j.products, p.C, row, col, got, want)
		}
	}
}

// twinRows returns the number of rows on which two layers are compared: at most 64, and fewer for
// large layers, so that the portable loops take a second or two.
func twinRows(at run.Point) int { return int(max(8, min(64, 1<<31/(6*at.Weights())))) }

// compare compares the layer, on its first rows, with the same layer on the reference kernel and
// portable loops.
func (j *job) compare(verdict *judge) error {
	small := j.at
	small.Batch, small.SeqKV, small.Store, small.Page = 1, min(j.at.SeqKV, twinRows(j.at)), attn.F32.String(), 0
	if small.SeqQ != 1 {
		small.SeqQ = small.SeqKV
	}
	x, dy := j.x.First(small.SeqQ), j.dy.First(small.SeqQ)
	answer := func(k attn.Kernel, ops *asm.Ops) (numbers []nn.Mat, err error) {
		side, err := newSide(j.layer, nn.On{Kernel: k, Products: nn.NewMultiplier(ops, j.team)}, small)
		if err != nil {
			return nil, err
		}
		clearGrads(j.layer)
		side.call(x, dy)
		if numbers = append(numbers, side.y); small.Pass == "both" {
			numbers = append(numbers, side.dx)
			for _, p := range j.layer.Params() {
				grad := p.Grad
				grad.Data = slices.Clone(grad.Data)
				numbers = append(numbers, grad)
			}
		}
		return numbers, nil
	}
	got, err := answer(j.kernel, j.ops)
	if err != nil {
		return err
	}
	want, err := answer(j.reference, j.portable)
	if err != nil {
		return err
	}
	longest := max(small.SeqKV, width(small))
	if small.Layer != run.LayerMHA {
		longest = max(longest, run.Wider*width(small))
	}
	part := 2 * unit * (math.Sqrt(float64(longest)) + 32)
	for i := range want {
		name := "the output"
		size := largest(want[i])
		switch {
		case i == 1:
			name = "the gradient of the input"
		case i > 1:
			name = "the gradient of " + j.layer.Params()[i-2].Name
			if size < part*largest(want[1]) { // all its elements are roundings of 0
				size = largest(want[1])
			}
		}
		for row := range want[i].Rows {
			for col, x := range want[i].Row(row) {
				if ratio := oracle.Ratio(float64(got[i].Row(row)[col]), float64(x), part*size); !(ratio <= verdict.Worst) {
					verdict.Worst = ratio
					verdict.Where = fmt.Sprintf("%s, on %d rows: element %d, %d is %v, want %v, as on the reference kernel and portable loops", name, small.SeqQ, row, col, got[i].Row(row)[col], x)
				}
			}
		}
	}
	return nil
}

// largest returns the absolute value of the largest element.
func largest(m nn.Mat) (size float64) {
	for i := range m.Rows {
		for _, x := range m.Row(i) {
			size = max(size, math.Abs(float64(x)))
		}
	}
	return size
}
