// Package tiled computes attention as two blocked matrix products with a softmax in between: S = K
// Q^T for a whole head, a two-pass softmax over it, O = V^T P. It runs on the same loops as flash
// and in the same layout, and differs by not fusing: the score matrix is written to memory and read
// back twice. What flash gains over tiled is what fusion buys.
//
// The backward pass is unfused too: all the weights of some queries, then all their gradients,
// product by product.
//
// With isa=blas the two products are Gemm calls of gonum, whose inner loops are its own SSE
// assembly on amd64.
package tiled

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// block is the number of keys in one product.
const block = 64

// have is the set of abilities of tiles, and of a kernel that stores the score matrix.
const have = tile.Have | attn.NeedWeights | attn.NeedScores

type kernel struct {
	ops  *asm.Ops
	name string
}

// New returns the kernel tiled on a set of loops.
func New(ops *asm.Ops) attn.Kernel { return kernel{ops, "tiled/" + ops.ISA} }

func (k kernel) Name() (algo, isa string) { return "tiled", k.ops.ISA }

// Path names the choices of the loops that change bits.
func (k kernel) Path() string { return k.ops.Tuning.Path.String() }

func (k kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, have); err != nil {
		return 0, err
	}
	// For each worker: a tile, the score matrix of a head, and the sums of each row.
	rows := tile.Count(&p, k.ops, p.SeqQ) * k.ops.Shape.Lanes
	per, err := attn.Floats(rows, p.SeqKV+tile.SumsPerLane)
	if err != nil {
		return 0, err
	}
	c := k.config(&p)
	forward, err := attn.Floats(max(1, min(workers, p.Batch*p.HeadsQ)), tile.Floats(&p, k.ops, c.Pack)+tile.StageFloats(&p, k.ops, c)+int(per/4))
	if err != nil {
		return 0, err
	}
	back, err := tile.BackwardBytes(&p, k.ops, k.blocking(&p), workers)
	return forward + back, err
}

// config returns the tile configuration of the forward pass.
func (k kernel) config(p *attn.Problem) tile.Config {
	return tile.Config{Block: block, Pack: tile.Packing(p, k.ops, asm.Forward)}
}

// blocking returns the sizes of the backward pass: one tile at a time takes all its keys through
// each of the five products before the next.
func (k kernel) blocking(p *attn.Problem) tile.Blocking {
	return tile.Blocking{Block: max(p.SeqKV, 1), Tiles: 1, Unfused: true, Pack: tile.Packing(p, k.ops, asm.Backward)}
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	pl := &plan{kernel: k, p: p, team: team, scratch: scratch, back: tile.NewBackward(p, k.ops, k.blocking(&p), team)}
	pl.task = pl.head
	tiles := tile.Count(&p, k.ops, p.SeqQ)
	for range max(1, min(team.Workers(), p.Batch*p.HeadsQ)) {
		w := worker{t: tile.New(&pl.p, k.ops, tile.NewStage(&pl.p, k.ops, k.config(&p))), matrix: attn.Alloc[float32](tiles * k.ops.Shape.Lanes * p.SeqKV)}
		for range tiles {
			w.kept = append(w.kept, tile.NewSums(k.ops))
		}
		pl.workers = append(pl.workers, w)
	}
	return pl, nil
}

type worker struct {
	t      *tile.Tile
	matrix []float32   // [tile][key][lane]: scores, then weights
	kept   []tile.Sums // [tile]
}

type plan struct {
	kernel
	guard   attn.Guard
	p       attn.Problem
	team    *attn.Team
	scratch int64
	workers []worker
	a       *attn.Args
	task    func(worker, task int)
	back    *tile.Backward
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Backward(a *attn.Args, g *attn.Grads) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.MustGrads(pl.name, a, g)
	pl.back.Run(a, g)
}

func (pl *plan) Forward(a *attn.Args) {
	defer pl.guard.Enter(pl.name).Leave()
	pl.p.Must(pl.name, a)
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.HeadsQ, pl.task)
}

func (pl *plan) head(id, task int) {
	w, a, p := &pl.workers[id], pl.a, &pl.p
	b, h := task/p.HeadsQ, task%p.HeadsQ
	t, tiles := w.t, tile.Count(p, pl.ops, a.Queries(p, b))
	at := func(n int) { // moves to tile n and its sums
		t.Use(w.kept[n])
		t.At(a, b, h, n)
	}
	panel := func(n int) []float32 { // rows of tile n starting at the block's first key
		return w.matrix[(n*p.SeqKV+t.Key())*pl.ops.Shape.Lanes:]
	}
	for n := range tiles { // S
		at(n)
		t.Load()
		for key := t.First(block); t.Block(key, block); key += block {
			t.SetPanel(panel(n))
			t.Scores()
		}
	}
	for n := range tiles { // P
		at(n)
		t.WriteUnseen()
		if t.Block(0, p.SeqKV) {
			t.SetPanel(panel(n))
			t.StoreScores()
			t.Softmax()
		}
	}
	for n := range tiles { // O
		at(n)
		for again := true; again; again = t.Finish() {
			t.Empty()
			for key := t.First(block); t.Block(key, block); key += block {
				t.SetPanel(panel(n))
				t.Mix()
			}
		}
	}
}
