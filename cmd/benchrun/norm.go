package main

import (
	"fmt"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// layersName stands for package nn where findings have the name of a kernel.
const layersName = "nn"

// levelsOf are the instruction sets among those of the picked kernels that layers run on: if there
// is none, the best one of this machine.
func levelsOf(picked []attn.Kernel) (some []asm.Level) {
	var best asm.Level
	for _, l := range asm.Levels() {
		if !l.Available {
			continue
		}
		best = l // they stand in order of speed
		for _, k := range picked {
			if _, isa := k.Name(); isa == l.ISA {
				some = append(some, l)
				break
			}
		}
	}
	if some == nil {
		some = []asm.Level{best}
	}
	return some
}

// tryNorm answers a case of a normalisation with the layer that package nn has for it.
func tryNorm(l asm.Level, o *cases.Outside) (f harness.Finding) {
	f = harness.Finding{Kernel: layersName, ISA: l.ISA, Family: o.File, Case: o.Name}
	defer func() {
		if p := recover(); p != nil {
			f = f.Broken(fmt.Errorf("panic: %v", p))
		}
	}()
	n := o.Norm
	row := func(name string, x []float32) *nn.Param {
		p := nn.NewParam(name, 1, n.Dim)
		copy(p.W.Data, x)
		return p
	}
	norm := &nn.Norm{Gain: row("scale", n.Gain), Centred: n.Centred, Eps: n.Eps}
	if n.Bias != nil {
		norm.Bias = row("bias", n.Bias)
	}
	pass, _, err := norm.Plan(nn.On{Products: nn.NewMultiplier(l.Ops, nil)}, nn.Shape{Batch: 1, Seq: n.Rows, Dim: n.Dim})
	if err != nil {
		return f.Broken(err)
	}
	y := pass.Forward(nn.Mat{Data: n.X, Rows: n.Rows, Cols: n.Dim, Stride: n.Dim})
	mean, inverse := pass.(*nn.NormPass).Moments()
	r := n.Judge(y.Data, mean, inverse)
	f.Worst, f.Note = r.Ratio, r.Where
	return f
}
