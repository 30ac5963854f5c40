// Package layer makes workloads of layers: the harness times a layer of package nn, and the kernel
// that is measured computes the attention inside it.
//
// The matrix products of a layer run on the kernel's own instruction set or, if the kernel is built
// on none of the lab's sets, on the fastest set of this machine.
package layer

import (
	"fmt"
	"math/rand/v2"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
	"attnlab/lab/sets"
	"attnlab/nn"
)

// Layers makes workloads of layers, on the instruction sets it is handed.
type Layers struct {
	Sets sets.Sets
	// Reference is a simple exact kernel. A layer that is verified is compared with the same layer
	// on Reference and on the portable set.
	Reference attn.Kernel
}

// Workload returns the workload of the layer at a point, around a kernel.
func (l *Layers) Workload(k attn.Kernel, at run.Point) (*harness.Workload, error) {
	p, err := problem(at)
	if err != nil {
		return nil, err
	}
	scratch, err := k.Check(p, at.Threads)
	if err != nil {
		return nil, err
	}
	slab, own := floats(at, p)
	return &harness.Workload{
		Point: at, Operands: 4 * (slab + own), Scratch: scratch, Count: at.LayerWork,
		Prepare: func() (harness.Job, error) {
			j := &job{
				at: at, kernel: k, ops: l.Sets.For(at.ISA), reference: l.Reference, portable: l.Sets.For(l.Sets[0].ISA),
				slab: attn.Alloc[float32](int(slab)), scratch: scratch,
			}
			return j, j.prepare()
		},
	}, nil
}

// problem returns the problem that a layer asks of its kernel.
func problem(at run.Point) (attn.Problem, error) {
	p, err := at.Problem()
	if at.Layer == run.LayerDecode {
		p.Lengths = true
	} else {
		p.Want |= attn.WantLSE | attn.WantGrad // package nn plans both passes at once
	}
	return p, err
}

// width returns the width of a layer's rows.
func width(at run.Point) int { return at.HeadsQ * at.Dim }

// floats returns how many numbers a layer holds.
//
//	slab   its weights, the rows that go in, and their gradients
//	own    the gradients of its weights, what its passes keep, and its cache
//
// The slab of a layer that decodes is larger by the size of its cache: the bandwidth probe reads
// the slab, and so reads as many bytes as a call does.
func floats(at run.Point, p attn.Problem) (slab, own int64) {
	d, kv, rows := int64(width(at)), int64(at.HeadsKV*at.Dim), at.Tokens()
	weights := at.Weights()
	each := 8*d + 4*kv + int64(at.HeadsQ)
	if at.Layer != run.LayerMHA {
		weights += 4 * d // of two norms
		each += (5+5+8)*d + 4*d + 4*d
	}
	slab, own = weights+2*rows*d, weights+rows*each
	if at.Layer == run.LayerDecode {
		cache := 2 * int64(at.Batch) * int64(at.SeqKV) * kv
		switch p.KV {
		case attn.F16, attn.BF16:
			cache /= 2
		case attn.I8:
			cache = cache/4 + cache/int64(at.Dim)
		}
		slab, own = slab+cache, own+cache
	}
	return slab, own
}

// build returns the layer of a point. Its weights depend on the point's group alone, so all kernels
// that are compared have the same ones.
func build(at run.Point, r *rand.Rand) (nn.Layer, error) {
	mask, err := run.ParseMask(at.Mask)
	if err != nil {
		return nil, err
	}
	if at.Layer == run.LayerMHA {
		l, err := nn.NewAttention("mha", width(at), at.HeadsQ, at.HeadsKV, false, r)
		if err != nil {
			return nil, err
		}
		l.Mask = mask
		return l, nil
	}
	stack, err := nn.NewStack("block", nn.Config{
		Layers: 1, Dim: width(at), Heads: at.HeadsQ, KVHeads: at.HeadsKV, Hidden: run.Wider * width(at), Act: nn.GELU, Mask: mask,
	}, r)
	if err != nil {
		return nil, err
	}
	return stack[:len(stack)-1], nil // without the norm that follows the last block
}

// A job is a layer with its inputs in place.
type job struct {
	at        run.Point
	kernel    attn.Kernel
	ops       *asm.Ops
	reference attn.Kernel
	portable  *asm.Ops
	team      *attn.Team
	slab      []float32
	scratch   int64

	layer nn.Layer
	x, dy nn.Mat
	side  side
	watch watch
}

// prepare builds the layer and lays its weights and inputs out in the slab.
func (j *job) prepare() error {
	r := rand.New(rand.NewPCG(harness.InputSeed(j.at), 1))
	layer, err := build(j.at, r)
	if err != nil {
		return err
	}
	j.layer, j.team = layer, attn.NewTeam(j.at.Threads)
	rest := j.slab
	take := func(n int) []float32 {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	for _, p := range layer.Params() {
		w := take(len(p.W.Data))
		copy(w, p.W.Data)
		p.W.Data = w
	}
	rows, wide := int(j.at.Tokens()), width(j.at)
	for _, m := range []*nn.Mat{&j.x, &j.dy} {
		*m = nn.Mat{Data: take(rows * wide), Rows: rows, Cols: wide, Stride: wide}
		normal(m.Data, r)
	}
	return nil
}

// normal fills x with normally distributed numbers.
func normal(x []float32, r *rand.Rand) {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
}

// Plan implements [harness.Job].
func (j *job) Plan() (err error) {
	on := nn.On{Kernel: watchedKernel{j.kernel, &j.watch}, Products: nn.NewMultiplier(j.ops, j.team)}
	j.side, err = newSide(j.layer, on, j.at)
	on.Products.Watch(j.watch.product)
	return err
}

// Run implements [harness.Job].
func (j *job) Run(calls int) (harness.Elapsed, error) {
	j.watch.attention, j.watch.products = 0, 0
	took := harness.Time(j.team.Workers(), func() {
		for range calls {
			j.side.call(j.x, j.dy)
		}
	})
	took.Attention, took.Products = j.watch.attention, j.watch.products
	return took, nil
}

// Check implements [harness.Job].
func (j *job) Check(rows int, seed uint64) (oracle.Verdict, error) { return j.check(rows, seed) }

// Team implements [harness.Job].
func (j *job) Team() *attn.Team { return j.team }

// Reads implements [harness.Job].
func (j *job) Reads() []float32   { return j.slab }
func (j *job) Updates() []float32 { return nil }

// Scratch implements [harness.Job].
func (j *job) Scratch() int64 { return j.scratch }

// Close implements [harness.Job].
func (j *job) Close() error {
	j.team.Close()
	return nil
}

// A side is a layer planned on a kernel and an instruction set.
type side struct {
	at     run.Point
	pass   nn.Pass
	caches *nn.Caches // of a layer that decodes
	y, dx  nn.Mat     // of the last call
}

// newSide plans a layer for a point. The cache of a layer that decodes is filled up to its last
// row, with normally distributed numbers, as projections of normal rows are.
func newSide(layer nn.Layer, on nn.On, at run.Point) (s side, err error) {
	s.at = at
	if at.Layer == run.LayerDecode {
		p, err := at.Problem()
		if err != nil {
			return s, err
		}
		s.caches = &nn.Caches{Capacity: at.SeqKV, Store: p.KV, Page: at.Page}
		on.Caches = s.caches
	}
	if s.pass, _, err = layer.Plan(on, nn.Shape{Batch: at.Batch, Seq: at.SeqQ, Dim: width(at)}); err != nil {
		return s, fmt.Errorf("plan: %w", err)
	}
	if s.caches == nil {
		return s, nil
	}
	r := rand.New(rand.NewPCG(harness.InputSeed(at), 2))
	for left := at.SeqKV - 1; left > 0; {
		rows := min(left, 256)
		k, v := nn.NewMat(at.Batch*rows, at.HeadsKV*at.Dim), nn.NewMat(at.Batch*rows, at.HeadsKV*at.Dim)
		normal(k.Data, r)
		normal(v.Data, r)
		if err := s.caches.Append(0, k, v); err != nil {
			return s, err
		}
		left -= rows
	}
	return s, nil
}

// call runs the layer once. It adds the gradients of the weights to what their matrices hold.
func (s *side) call(x, dy nn.Mat) {
	s.y = s.pass.Forward(x)
	if s.at.Pass == "both" {
		s.dx = s.pass.Backward(dy)
	}
	if s.caches != nil {
		s.caches.Truncate(s.at.SeqKV - 1)
	}
}
