package main

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
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// check verifies a layer in three ways, of which the worst counts:
//
//   - its attention, in the call that it makes, both ways: sampled rows against the definition, as of a kernel alone;
//   - every matrix product of the call: sampled elements against sums in float64, within u (√n+4) Σ|a||b|, n being the terms;
//   - all of it, on its first rows: output and all gradients against those of the same layer on naive attention and portable loops. A number may differ by
//     2u (√m+32) of the largest in its matrix, m being the longest sum: some roundings of either side. What is done element by element is compared here alone.
func (j *layerJob) check(rows int, seed uint64) (oracle.Verdict, error) {
	judge := &layerJudge{rows: rows, seed: seed, rand: rand.New(rand.NewPCG(seed, 3))}
	clearGrads(j.layer)
	j.watch.judge = judge
	j.side.call(j.x, j.dy)
	j.watch.judge = nil
	return judge.Verdict, errors.Join(judge.err, j.compare(judge))
}

func clearGrads(l nn.Layer) {
	for _, p := range l.Params() {
		p.Grad.Clear()
	}
}

// A layerJudge compares the parts of a call as they come.
type layerJudge struct {
	oracle.Verdict
	rows     int
	seed     uint64
	rand     *rand.Rand
	sample   []oracle.Index // rows of attention
	products int
	err      error
}

func (j *layerJudge) take(what string, v oracle.Verdict, err error) {
	j.err = errors.Join(j.err, err)
	j.Rows += v.Rows
	if !(v.Worst <= j.Worst) {
		j.Worst, j.Where = v.Worst, what+v.Where
	}
}

func (j *layerJudge) forward(p attn.Problem, a *attn.Args) {
	o, err := oracle.New(p, a)
	if err != nil {
		j.take("", oracle.Verdict{}, err)
		return
	}
	j.sample = oracle.Sample(&p, a, j.rows, j.seed)
	j.take("attention: ", o.Judge(j.sample), nil)
}

// backward has the pass run again for the gradients of the sampled rows alone, and then as it was.
func (j *layerJudge) backward(p attn.Problem, plan attn.Differentiable, a *attn.Args, g *attn.Grads) {
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
	v.Rows = 0 // they are counted
	j.take("attention, backward: ", v, err)
	plan.Backward(a, g)
}

// elementsToCheck is how many elements of a product are compared, besides the first and the last.
const elementsToCheck = 64

// unit is half of the distance between 1 and the next float32.
const unit = 0x1p-24

// product compares elements of a product with sums in float64. One that is added to what was there
// was added to zeros.
func (j *layerJudge) product(p nn.Product) {
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

// twinRows is how many rows of a layer are compared with those of another: no more than take a
// second or two on portable loops.
func twinRows(at run.Point) int { return int(max(8, min(64, 1<<31/(6*at.Weights())))) }

// compare holds the layer, on its first rows, to one of naive attention and portable loops.
func (j *layerJob) compare(judge *layerJudge) error {
	small := j.at
	small.Batch, small.SeqKV, small.Store, small.Page = 1, min(j.at.SeqKV, twinRows(j.at)), attn.F32.String(), 0
	if small.SeqQ != 1 {
		small.SeqQ = small.SeqKV
	}
	naive, err := kernels.ByName("naive", "go")
	if err != nil {
		return err
	}
	x, dy := j.x.First(small.SeqQ), j.dy.First(small.SeqQ)
	answer := func(k attn.Kernel, ops *asm.Ops) (numbers []nn.Mat, err error) {
		side, err := newLayerSide(j.layer, nn.On{Kernel: k, Products: nn.NewMultiplier(ops, j.team)}, small)
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
	want, err := answer(naive, asm.Levels()[0].Ops)
	if err != nil {
		return err
	}
	longest := max(small.SeqKV, layerWidth(small))
	if small.Layer != run.LayerMHA {
		longest = max(longest, run.Wider*layerWidth(small))
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
			if size < part*largest(want[1]) { // it is 0 but for roundings
				size = largest(want[1])
			}
		}
		for row := range want[i].Rows {
			for col, x := range want[i].Row(row) {
				if ratio := oracle.Ratio(float64(got[i].Row(row)[col]), float64(x), part*size); !(ratio <= judge.Worst) {
					judge.Worst = ratio
					judge.Where = fmt.Sprintf("%s, on %d rows: element %d, %d is %v, and %v on naive attention and portable loops", name, small.SeqQ, row, col, got[i].Row(row)[col], x)
				}
			}
		}
	}
	return nil
}

// largest is the size of the largest element.
func largest(m nn.Mat) (size float64) {
	for i := range m.Rows {
		for _, x := range m.Row(i) {
			size = max(size, math.Abs(float64(x)))
		}
	}
	return size
}
