// Package flash computes exact attention without ever storing a score matrix: online softmax over
// blocks of keys, with memory that does not grow with the length.
//
// The number of queries of a problem alone decides how it is computed. Prefill has queries in the
// lanes of tiles (package prefill). Decode has a few queries in rows, and keys in splits that
// workers share (package decode). Where many query heads share a key head, decode runs prefill's
// tiles over its splits.
//
// The backward pass (tile.Backward) computes the weights a second time, by the same steps, and
// stores no matrix either.
//
// A row's bits are a function of its query and of the keys that it sees, and of nothing else. No
// other row touches its lane; blocks, groups and splits start at absolute key indices; and a
// rescale in one lane multiplies no other. So the number of threads, bundles, batch mates, the
// layout and neighbours in the tile do not change them. A call that wants means, entropies or
// maxima of scores may change an output's last bits: its queries do not include the factor of the
// scores.
package flash

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash/decode"
	"attnlab/kernels/flash/prefill"
	"attnlab/kernels/tile"
)

type kernel struct {
	name    string
	prefill prefill.Kernel
	decode  decode.Kernel
}

// New returns the kernel flash on a set of loops.
func New(ops *asm.Ops) attn.Kernel { return newKernel(asm.Caches())(ops) }

// newKernel returns New for caches of the given sizes in bytes.
func newKernel(l1, l2, last int) func(ops *asm.Ops) kernel {
	return func(ops *asm.Ops) kernel {
		wide := prefill.Kernel{Ops: ops, L1: l1, L2: l2}
		return kernel{
			name:    "flash/" + ops.ISA,
			prefill: wide,
			decode: decode.Kernel{Ops: ops, LLC: last, Tiles: decode.Tiles{
				Floats: wide.Floats,
				Plan: func(p attn.Problem, team *attn.Team, workers int) decode.Walker {
					return wide.PlanFor(p, team, workers)
				},
			}},
		}
	}
}

func (k kernel) Name() (algo, isa string) { return "flash", k.prefill.Ops.ISA }

// Path names the choices that change bits: the path of the loops' tuning, and the sizes of splits.
func (k kernel) Path() string { return k.prefill.Ops.Tuning.Path.String() + "," + decode.Path() }

func (k kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, tile.Have); err != nil {
		return 0, err
	}
	scratch, err := k.forwardBytes(&p, workers)
	if err != nil {
		return 0, err
	}
	back, err := tile.BackwardBytes(&p, k.prefill.Ops, k.prefill.Blocking(&p), workers)
	return scratch + back, err
}

// forwardBytes returns the scratch of a plan without its backward pass.
func (k kernel) forwardBytes(p *attn.Problem, workers int) (int64, error) {
	if decode.Takes(p) {
		return k.decode.Bytes(p, workers)
	}
	return k.prefill.Bytes(p, workers)
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{name: k.name, p: p, scratch: scratch}
	if decode.Takes(&p) {
		pl.forward = k.decode.Plan(p, team)
	} else {
		pl.forward = k.prefill.Plan(p, team)
	}
	pl.back = tile.NewBackward(p, k.prefill.Ops, k.prefill.Blocking(&p), team)
	return pl, nil
}

type plan struct {
	name    string
	guard   attn.Guard
	p       attn.Problem
	scratch int64
	forward interface{ Run(a *attn.Args) }
	back    *tile.Backward
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.Must(pl.name, a)
	pl.forward.Run(a)
}

func (pl *plan) Backward(a *attn.Args, g *attn.Grads) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.MustGrads(pl.name, a, g)
	pl.back.Run(a, g)
}
