package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"attnlab/kernels/asm"
)

// regression is softmax regression on 200 rows of 3 classes, with columns whose sizes differ by a
// factor of 100.
type regression struct {
	x         Mat
	targets   []int32
	layer     *Linear
	all, one  Pass
	criterion *CrossEntropy
}

func newRegression(t *testing.T) *regression {
	t.Helper()
	const rows, classes = 200, 3
	sizes := []float64{1, 1, 0.1, 0.01}
	r := rand.New(rand.NewPCG(71, 1))
	g := &regression{x: NewMat(rows, len(sizes)), layer: NewLinear("l", len(sizes), classes, false, r)}
	g.layer.W.W.Clear()
	truth := NewMat(len(sizes), classes)
	for i, size := range sizes {
		for j := range classes {
			truth.Row(i)[j] = float32(r.NormFloat64() / size)
		}
	}
	s, logits := Sampler{Temperature: 1, Rand: r}, make([]float32, classes)
	for i := range rows {
		clear(logits)
		for k, size := range sizes {
			g.x.Row(i)[k] = float32(r.NormFloat64() * size)
			for j := range logits {
				logits[j] += g.x.Row(i)[k] * truth.Row(k)[j]
			}
		}
		g.targets = append(g.targets, s.Choose(logits))
	}
	on := On{Products: NewMultiplier(asm.Levels()[0].Ops, nil)}
	var err error
	if g.all, _, err = g.layer.Plan(on, Shape{1, rows, len(sizes)}); err != nil {
		t.Fatal(err)
	}
	if g.one, _, err = g.layer.Plan(on, Shape{1, 1, len(sizes)}); err != nil {
		t.Fatal(err)
	}
	g.criterion = NewCrossEntropy(on, rows, classes)
	return g
}

// gradient computes the gradient of the loss of all rows.
func (g *regression) gradient() (loss float64) {
	ClearGrads(g.layer.Params())
	loss, _, d := g.criterion.Loss(g.all.Forward(g.x), g.targets)
	g.all.Backward(d)
	return loss
}

// observe observes the information: of every outcome, or of the targets alone.
func (g *regression) observe(o *Natural, empirical bool) {
	n := float64(g.x.Rows)
	p := NewMat(1, g.layer.W.W.Cols)
	for i := range g.x.Rows {
		logits := g.one.Forward(g.x.Part(i, 1, 0, g.x.Cols)).Row(0)
		sum := 0.0
		for _, z := range logits {
			sum += math.Exp(float64(z))
		}
		for j, z := range logits {
			p.Row(0)[j] = float32(math.Exp(float64(z)) / sum)
		}
		for y, weight := range p.Row(0) {
			if empirical && y != int(g.targets[i]) {
				continue
			}
			s := NewMat(1, p.Cols) // the gradient of -log p(y)
			copy(s.Data, p.Data)
			s.Data[y]--
			ClearGrads(g.layer.Params())
			g.one.Backward(s)
			if empirical {
				weight = 1
			}
			o.Observe(float64(weight) / n)
		}
	}
}

// TestNatural checks that on a badly conditioned problem a few steps of the natural gradient
// achieve what thousands of steps of the gradient do not, at any rate.
func TestNatural(t *testing.T) {
	natural := func(empirical bool, steps int) float64 {
		g := newRegression(t)
		o, err := NewNatural(g.layer.Params(), 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		for range steps {
			g.observe(o, empirical)
			g.gradient()
			o.Step(1)
		}
		if _, done := o.State(); *done != int64(steps) {
			t.Errorf("%d steps, want %d", *done, steps)
		}
		return g.gradient()
	}
	least := natural(false, 40)
	if begun := newRegression(t).gradient(); math.Abs(begun-math.Log(3)) > 1e-6 || least > begun-0.2 {
		t.Errorf("the loss falls from %v to %v: want it to fall from log 3, by 0.2 at least", begun, least)
	}
	if loss := natural(false, 8); loss > least+1e-4 {
		t.Errorf("after 8 steps the loss is %v, want the least, %v", loss, least)
	}
	if loss := natural(true, 30); loss > least+1e-3 {
		t.Errorf("by the information of the targets alone, after 30 steps it is %v, want about the least, %v", loss, least)
	}
	if again := natural(false, 8); again != natural(false, 8) {
		t.Error("twice the same steps, and another loss")
	}
	for _, rate := range []float64{0.3, 1, 2, 4, 8} {
		g := newRegression(t)
		o := NewSGD(g.layer.Params(), 0)
		for range 3000 {
			g.gradient()
			o.Step(rate)
		}
		if loss := g.gradient(); !(loss > least+0.01) {
			t.Errorf("along the gradient, at a rate of %v, the loss is %v after 3000 steps: this problem, whose least is %v, is not hard", rate, loss, least)
		}
	}
}

// TestNaturalStep checks that a step is (F + damping)^-1 g. F = 2 (1,0)(1,0)^T + (1,1)(1,1)^T with
// a damping of 1 is (4 1, 1 2), and (0,1) solves it for g = (1,2).
func TestNaturalStep(t *testing.T) {
	p := NewParam("p", 1, 2)
	o, err := NewNatural([]*Param{p}, 1)
	if err != nil {
		t.Fatal(err)
	}
	step := func() (says any) {
		defer func() { says = recover() }()
		o.Step(0.5)
		return nil
	}
	for range 2 { // the second time checks that the first was forgotten
		if says := step(); says == nil || !strings.Contains(fmt.Sprint(says), "Observe") {
			t.Errorf("a step without information: %v", says)
		}
		p.W.Clear()
		copy(p.Grad.Data, []float32{1, 0})
		o.Observe(2)
		copy(p.Grad.Data, []float32{1, 1})
		o.Observe(1)
		copy(p.Grad.Data, []float32{1, 2})
		if says := step(); says != nil || math.Abs(float64(p.W.Data[0])) > 1e-7 || math.Abs(float64(p.W.Data[1])+0.5) > 1e-7 {
			t.Errorf("a step to %v, %v; want 0 and -0.5", p.W.Data, says)
		}
	}
	p.Grad.Data[0] = float32(math.NaN())
	o.Observe(1)
	if says := step(); says == nil || !strings.Contains(fmt.Sprint(says), "nn: natural gradient: ") {
		t.Errorf("information that is no number: %v", says)
	}
	for _, bad := range []struct {
		n       int
		damping float64
		want    string
	}{{mostNatural + 1, 1, "want 1 to 2048"}, {0, 1, "want 1 to 2048"}, {3, 0, "want more than 0"}, {3, math.NaN(), "want more than 0"}} {
		if _, err := NewNatural([]*Param{NewParam("p", 1, bad.n)}, bad.damping); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%d parameters, damping %v: %v, want %q", bad.n, bad.damping, err, bad.want)
		}
	}
}
