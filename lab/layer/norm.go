package layer

import (
	"fmt"

	"attnlab/attn/cases"
	"attnlab/harness/verify"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// Norm runs an outside case of a normalisation on the layer that package nn has for it, with the
// loops of a set. The finding names nn in place of a kernel.
func (*Layers) Norm(set asm.Level, o *cases.Outside) (f verify.Finding) {
	f = verify.Finding{Kernel: "nn", ISA: set.ISA, Family: o.File, Case: o.Name}
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
	pass, _, err := norm.Plan(nn.On{Products: nn.NewMultiplier(set.Ops, nil)}, nn.Shape{Batch: 1, Seq: n.Rows, Dim: n.Dim})
	if err != nil {
		return f.Broken(err)
	}
	y := pass.Forward(nn.Mat{Data: n.X, Rows: n.Rows, Cols: n.Dim, Stride: n.Dim})
	mean, inverse := pass.(*nn.NormPass).Moments()
	r := n.Judge(y.Data, mean, inverse)
	f.Worst, f.Note = r.Ratio, r.Where
	return f
}
