package kernels_test

import (
	"fmt"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash"
	"attnlab/kernels/linear"
	"attnlab/kernels/naive"
	"attnlab/kernels/tiled"
	"attnlab/nn"
)

// hooked returns portable loops, some of which call *hook first. Each kind of call runs one of
// these.
func hooked(hook *func()) *asm.Ops {
	o := asm.Go()
	load, weigh, elu, outer := o.Vector.Load, o.Decode.Weigh, o.Vector.Elu, o.Back.Outer
	o.Vector.Load = func(m *asm.Move) { (*hook)(); load(m) }
	o.Decode.Weigh = func(w *asm.Weigh) { (*hook)(); weigh(w) }
	o.Vector.Elu = func(to, from []float32, ahead uintptr) { (*hook)(); elu(to, from, ahead) }
	o.Back.Outer = func(c *asm.Outer) { (*hook)(); outer(c) }
	return o
}

// said returns the text that a call panics with.
func said(call func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	call()
	return ""
}

// TestPlanInUse checks that a plan refuses a second call while one is running, and that it is free
// again when the call has ended, also by a panic.
func TestPlanInUse(t *testing.T) {
	type calls map[string]func()
	// hold begins each call of second while each call of running is running. inside makes the next
	// call run its argument.
	hold := func(t *testing.T, running, second calls, inside func(func())) {
		for outer, call := range running {
			for inner, again := range second {
				texts := []string{}
				inside(func() {
					inside(func() {}) // once: a plan that does not refuse would recurse for ever
					texts = append(texts, said(again))
				})
				call()
				inside(func() {})
				if len(texts) == 0 {
					t.Errorf("nothing ran inside %s", outer)
				}
				for _, text := range texts {
					if !strings.Contains(text, "in use by another call") {
						t.Fatalf("%s during %s: panics with %q, want a refusal because the plan is in use", inner, outer, text)
					}
				}
			}
		}
		for name, call := range second {
			if text := said(call); text != "" {
				t.Errorf("%s after the others: %s", name, text)
			}
		}
	}

	hook := func() {}
	ops := hooked(&hook)
	inside := func(f func()) { hook = f }
	for _, k := range []attn.Kernel{flash.New(ops), tiled.New(ops), linear.New(ops)} {
		algo, _ := k.Name()
		op := attn.OpsOf(k)[0]
		for _, nq := range []int{1, 30} {
			p := attn.Problem{Batch: 2, SeqQ: nq, SeqKV: 30, HeadsQ: 2, HeadsKV: 1, Dim: 8, DimV: 8, Mask: attn.Causal(), Want: attn.WantGrad}
			if p.Op = op; op == attn.OpLinear {
				p.SeqKV = nq // a state needs as many keys as queries
			}
			t.Run(fmt.Sprintf("%s/%d", algo, nq), func(t *testing.T) {
				plan, all := everyCall(t, k, p)
				hold(t, all, all, inside)
				if text := said(func() { plan.Forward(nil) }); text == "" {
					t.Error("a call without operands did not panic")
				}
				for name, call := range all {
					if text := said(call); text != "" {
						t.Errorf("%s after a call that panicked: %s", name, text)
					}
				}
			})
		}
	}
	t.Run("naive", func(t *testing.T) {
		p := attn.Problem{Batch: 2, SeqQ: 3, SeqKV: 4, HeadsQ: 2, HeadsKV: 1, Dim: 8, DimV: 8, Want: attn.WantGrad}
		plan, all := everyCall(t, naive.New(), p)
		hold(t, calls{"Backward": all["Backward"]}, all, func(f func()) { plan.(naive.Staged).Watch(func(naive.Stages) { f() }) })
	})
	t.Run("product", func(t *testing.T) {
		m := nn.NewMultiplier(ops, nil)
		p := nn.Product{A: nn.NewMat(20, 20), B: nn.NewMat(20, 20), C: nn.NewMat(20, 20)}
		all := calls{"Do": func() { m.Do(p) }}
		hold(t, all, all, inside)
	})
}

// everyCall returns a plan of a kernel, and one function for each kind of call that it supports.
func everyCall(t *testing.T, k attn.Kernel, p attn.Problem) (attn.Plan, map[string]func()) {
	t.Helper()
	plan, err := k.Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := cases.NewGrads(p, a, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.FillGrads(g, 1)
	all := map[string]func(){
		"Forward":  func() { plan.Forward(a) },
		"Backward": func() { plan.(attn.Differentiable).Backward(a, g) },
	}
	if p.Carries() {
		carried := *a
		carried.StateOut = make([]float32, p.StateLen())
		carried.StateIn = carried.StateOut
		all["Forward with a state"] = func() { plan.Forward(&carried) }
	}
	return plan, all
}
