package nn

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/kernels/asm"
)

// TestCrossEntropy checks the loss and its gradient against their equation, and that rows without a
// target do not count.
func TestCrossEntropy(t *testing.T) {
	eachISA(t, func(t *testing.T, ops *asm.Ops) {
		r := rand.New(rand.NewPCG(11, 1))
		x, targets := random(r, 70, 5, 2), make([]int32, 70)
		for i := range targets {
			targets[i] = int32(r.IntN(6)) - 1
		}
		x.Row(3)[0], targets[3] = 1e4, 1 // its exp would overflow
		c := NewCrossEntropy(On{Products: NewMultiplier(ops, nil)}, 70, 5)
		got, right, dx := c.Loss(x, targets)
		x64 := wide(x)
		value := func() float64 {
			sum, n := 0.0, 0.0
			for i, row := range x64 {
				if targets[i] < 0 {
					continue
				}
				n++
				top, z := math.Inf(-1), 0.0
				for _, v := range row {
					top = math.Max(top, v)
				}
				for _, v := range row {
					z += math.Exp(v - top)
				}
				sum += math.Log(z) + top - row[targets[i]]
			}
			return sum / n
		}
		if want := value(); math.Abs(got-want) > 1e-12*want {
			t.Errorf("loss %v, want %v", got, want)
		}
		wantRight := 0
		for i, row := range x64 {
			best := 0
			for j := range row {
				if row[j] > row[best] {
					best = j
				}
			}
			if int(targets[i]) == best {
				wantRight++
			}
		}
		if right != wantRight || right == 0 {
			t.Errorf("%d right, want %d", right, wantRight)
		}
		near(t, "gradient", dx, differences(x64, value), 0)
		team := attn.NewTeam(2)
		defer team.Close()
		if again, _, _ := NewCrossEntropy(On{Products: NewMultiplier(ops, team)}, 70, 5).Loss(x, targets); again != got {
			t.Errorf("%v on two workers, %v on one", again, got)
		}
		if n := testing.AllocsPerRun(2, func() { c.Loss(x, targets) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestEmbedding(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	e := NewEmbedding("e", 4, 3, 5, r)
	p, err := e.Plan(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 3, 1, 0, 1, 3}
	y := p.Forward(tokens)
	dy := random(r, 6, 5, 0)
	p.Backward(dy)
	for i, token := range tokens {
		for c, got := range y.Row(i) {
			if want := e.Token.W.Row(int(token))[c] + e.Position.W.Row(i % 3)[c]; got != want {
				t.Fatalf("row %d, column %d is %v, want %v", i, c, got, want)
			}
		}
	}
	for c := range 5 {
		if got, want := e.Token.Grad.Row(1)[c], dy.Row(0)[c]+dy.Row(2)[c]+dy.Row(4)[c]; got != want {
			t.Errorf("gradient of token 1, column %d is %v, want %v", c, got, want)
		}
		if got, want := e.Position.Grad.Row(2)[c], dy.Row(2)[c]+dy.Row(5)[c]; got != want {
			t.Errorf("gradient of position 2, column %d is %v, want %v", c, got, want)
		}
		if e.Token.Grad.Row(2)[c] != 0 {
			t.Errorf("token 2, which is not there, has a gradient")
		}
	}
	if _, err := e.Plan(1, 4); !errors.Is(err, ErrShape) {
		t.Errorf("a sequence longer than the table: %v", err)
	}
	for _, bad := range [][]int32{{0, 0, 0, 0, 0, 4}, {0, 0, 0, 0, 0, -1}, {0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("tokens %v: no panic", bad)
				}
			}()
			p.Forward(bad)
		}()
	}
}

// TestOptimisers checks that every optimiser reaches the minimum of a bowl, and that SGD with
// momentum and Adam take the steps of their equations.
func TestOptimisers(t *testing.T) {
	for name, make := range map[string]func([]*Param) Optimiser{
		"sgd":      func(p []*Param) Optimiser { return NewSGD(p, 0) },
		"momentum": func(p []*Param) Optimiser { return NewSGD(p, 0.9) },
		"adam":     func(p []*Param) Optimiser { return NewAdam(p, 0) },
	} {
		p := NewParam("p", 2, 3)
		list := []*Param{p}
		o := make(list)
		s := Schedule{Rate: 0.1, Warmup: 5, Steps: 400}
		for step := range s.Steps {
			ClearGrads(list)
			for i := range p.W.Data {
				p.Grad.Data[i] = p.W.Data[i] - float32(i)
			}
			o.Step(s.At(step))
		}
		for i, x := range p.W.Data {
			if math.Abs(float64(x)-float64(i)) > 1e-3 {
				t.Errorf("%s: element %d came to %v, want %d", name, i, x, i)
			}
		}
		if _, steps := o.State(); *steps != s.Steps {
			t.Errorf("%s: %d steps, want %d", name, *steps, s.Steps)
		}
	}
	p := NewParam("p", 1, 1)
	p.W.Data[0], p.Grad.Data[0] = 2, 0.5
	a := NewAdam([]*Param{p}, 0.1)
	a.Step(0.01) // Adam's first step is the rate, whatever the gradient, plus the decay
	if want := 2 - 0.01*(1+0.1*2); math.Abs(float64(p.W.Data[0])-want) > 1e-6 {
		t.Errorf("after a step of Adam %v, want %v", p.W.Data[0], want)
	}
	m := NewSGD([]*Param{p}, 0.5)
	p.W.Data[0], p.Grad.Data[0] = 0, 1
	m.Step(1)
	m.Step(1)
	if p.W.Data[0] != -2.5 {
		t.Errorf("after two steps with momentum %v, want -2.5", p.W.Data[0])
	}
}

func TestClipAndSchedule(t *testing.T) {
	a, b := NewParam("a", 1, 1), NewParam("b", 1, 1)
	a.Grad.Data[0], b.Grad.Data[0] = 3, 4
	if norm := ClipGrads([]*Param{a, b}, 1); norm != 5 || math.Abs(float64(a.Grad.Data[0])-0.6) > 1e-6 || math.Abs(float64(b.Grad.Data[0])-0.8) > 1e-6 {
		t.Errorf("norm %v, then %v and %v; want 5, 0.6, 0.8", norm, a.Grad.Data[0], b.Grad.Data[0])
	}
	if norm := ClipGrads([]*Param{a, b}, 2); math.Abs(norm-1) > 1e-6 || math.Abs(float64(a.Grad.Data[0])-0.6) > 1e-6 {
		t.Errorf("norm %v, then %v; want 1, 0.6", norm, a.Grad.Data[0])
	}
	s := Schedule{Rate: 1, Least: 0.1, Warmup: 4, Steps: 13}
	for step, want := range map[int64]float64{0: 0.25, 3: 1, 4: 1, 8: 0.55, 12: 0.1, 20: 0.1} {
		if got := s.At(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("rate at %d is %v, want %v", step, got, want)
		}
	}
}
