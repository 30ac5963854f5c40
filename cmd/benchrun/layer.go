package main

import (
	"fmt"
	"math/rand/v2"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
	"attnlab/nn"
)

// layerWorkload is the workload of a layer around a kernel: its products run on the kernel's own
// instruction set or, where that is none of ours, on the fastest of this machine.
func layerWorkload(k attn.Kernel, at run.Point) (*harness.Workload, error) {
	p, err := layerProblem(at)
	if err != nil {
		return nil, err
	}
	scratch, err := k.Check(p, at.Threads)
	if err != nil {
		return nil, err
	}
	slab, own := layerFloats(at, p)
	return &harness.Workload{
		Point: at, Operands: 4 * (slab + own), Scratch: scratch, Count: at.LayerWork,
		Prepare: func() (harness.Job, error) { return prepareLayer(k, at, p, scratch, attn.Alloc[float32](int(slab))) },
	}, nil
}

// layerProblem is what a layer asks its kernel.
func layerProblem(at run.Point) (attn.Problem, error) {
	p, err := at.Problem()
	if at.Layer == run.LayerDecode {
		p.Lengths = true
	} else {
		p.Want |= attn.WantLSE | attn.WantGrad // package nn plans both passes at once
	}
	return p, err
}

// layerWidth is the width of a layer's rows.
func layerWidth(at run.Point) int { return at.HeadsQ * at.Dim }

// layerFloats is how many numbers a layer takes: in the slab its weights, the rows that go in,
// their gradients and, for the bandwidth probe to read as much as a call does, as much as its
// cache; of its own the gradients of its weights, what its passes keep, and its cache.
func layerFloats(at run.Point, p attn.Problem) (slab, own int64) {
	d, kv, rows := int64(layerWidth(at)), int64(at.HeadsKV*at.Dim), at.Tokens()
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

// newLayer makes the layer of a point. It depends on the point's group alone, so that all kernels
// that compete have the same weights.
func newLayer(at run.Point, r *rand.Rand) (nn.Layer, error) {
	mask, err := run.ParseMask(at.Mask)
	if err != nil {
		return nil, err
	}
	if at.Layer == run.LayerMHA {
		l, err := nn.NewAttention("mha", layerWidth(at), at.HeadsQ, at.HeadsKV, false, r)
		if err != nil {
			return nil, err
		}
		l.Mask = mask
		return l, nil
	}
	stack, err := nn.NewStack("block", nn.Config{
		Layers: 1, Dim: layerWidth(at), Heads: at.HeadsQ, KVHeads: at.HeadsKV, Hidden: run.Wider * layerWidth(at), Act: nn.GELU, Mask: mask,
	}, r)
	if err != nil {
		return nil, err
	}
	return stack[:len(stack)-1], nil // the norm behind the last block is not of it
}

// A layerJob is a layer with its inputs in place.
type layerJob struct {
	at      run.Point
	kernel  attn.Kernel
	ops     *asm.Ops
	team    *attn.Team
	slab    []float32
	scratch int64
	problem attn.Problem

	layer nn.Layer
	x, dy nn.Mat
	side  layerSide
	watch watch
}

func prepareLayer(k attn.Kernel, at run.Point, p attn.Problem, scratch int64, slab []float32) (harness.Job, error) {
	r := rand.New(rand.NewPCG(harness.Inputs(at), 1))
	layer, err := newLayer(at, r)
	if err != nil {
		return nil, err
	}
	j := &layerJob{at: at, kernel: k, ops: probed(asm.Levels(), at), team: attn.NewTeam(at.Threads), slab: slab, scratch: scratch, problem: p, layer: layer}
	rest := slab
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
	rows, wide := int(at.Tokens()), layerWidth(at)
	for _, m := range []*nn.Mat{&j.x, &j.dy} {
		*m = nn.Mat{Data: take(rows * wide), Rows: rows, Cols: wide, Stride: wide}
		normal(m.Data, r)
	}
	return j, nil
}

func normal(x []float32, r *rand.Rand) {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
}

func (j *layerJob) Plan() (err error) {
	on := nn.On{Kernel: watchedKernel{j.kernel, &j.watch}, Products: nn.NewMultiplier(j.ops, j.team)}
	j.side, err = newLayerSide(j.layer, on, j.at)
	on.Products.Watch(j.watch.product)
	return err
}

func (j *layerJob) Run(calls int) (harness.Elapsed, error) {
	j.watch.attention, j.watch.products = 0, 0
	took := harness.Time(j.team.Workers(), func() {
		for range calls {
			j.side.call(j.x, j.dy)
		}
	})
	took.Attention, took.Products = j.watch.attention, j.watch.products
	return took, nil
}

func (j *layerJob) Check(rows int, seed uint64) (oracle.Verdict, error) { return j.check(rows, seed) }

func (j *layerJob) Team() *attn.Team { return j.team }
func (j *layerJob) Reads() []float32 { return j.slab }
func (j *layerJob) Scratch() int64   { return j.scratch }

func (j *layerJob) Close() error {
	j.team.Close()
	return nil
}

// A layerSide is a layer planned on a kernel and an instruction set.
type layerSide struct {
	at     run.Point
	pass   nn.Pass
	caches *nn.Caches // of a layer that decodes
	y, dx  nn.Mat     // of the last call
}

// newLayerSide plans a layer for a point and, if it decodes, fills its cache with rows as
// projections of normal ones are, up to the last.
func newLayerSide(layer nn.Layer, on nn.On, at run.Point) (s layerSide, err error) {
	s.at = at
	if at.Layer == run.LayerDecode {
		p, err := at.Problem()
		if err != nil {
			return s, err
		}
		s.caches = &nn.Caches{Capacity: at.SeqKV, Store: p.KV, Page: at.Page}
		on.Caches = s.caches
	}
	if s.pass, _, err = layer.Plan(on, nn.Shape{Batch: at.Batch, Seq: at.SeqQ, Dim: layerWidth(at)}); err != nil {
		return s, fmt.Errorf("plan: %w", err)
	}
	if s.caches == nil {
		return s, nil
	}
	r := rand.New(rand.NewPCG(harness.Inputs(at), 2))
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

// call runs the layer once. The gradients of its weights are added to what is there.
func (s *layerSide) call(x, dy nn.Mat) {
	s.y = s.pass.Forward(x)
	if s.at.Pass == "both" {
		s.dx = s.pass.Backward(dy)
	}
	if s.caches != nil {
		s.caches.Truncate(s.at.SeqKV - 1)
	}
}
