// Package flash is exact attention that never holds a score matrix: online softmax over blocks of keys, with memory that does not grow with
// the length.
//
// A task is a tile of queries in lanes (package asm draws the panel). It walks over the keys in blocks that start at multiples of a constant
// in absolute key index; for each it computes S^T = K Q^T into a small panel, turns scores into weights against a lazily raised reference,
// and adds O^T += V^T P^T. Blocks that no query of the tile may see are never visited. At the end O^T is transposed out, times 1/l.
//
// A plan for a few queries, as decoding asks, takes another path (decode.go): queries in rows, keys split into parts that workers share.
//
// A row's bits are a function of its query and of the keys it sees: its lane is touched by nothing else, blocks and groups stand at absolute
// key indices, and a rescale in one lane multiplies no other. So neither thread count, nor batch mates, layout, or neighbours in the tile
// change them.
package flash

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// block is the number of keys taken at once: a panel of 128 x 8 scores and 128 rows of V (32 KB at d_v = 64) stay in the first-level cache
// while the columns of V are walked.
const block = 128

type kernel struct {
	ops  *asm.Ops
	name string
}

// New returns the kernel flash on the given loops.
func New(ops *asm.Ops) attn.Kernel { return kernel{ops, "flash/" + ops.ISA} }

func (k kernel) Name() (algo, isa string) { return "flash", k.ops.ISA }

func (k kernel) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require(k.name, tile.Have); err != nil {
		return 0, err
	}
	if few(&p) {
		return k.checkFew(&p, workers)
	}
	return attn.Floats(k.workers(&p, workers), tile.Floats(&p, k.ops, block)+block*k.ops.Lanes)
}

// workers is how many of a team's workers can be busy at once.
func (k kernel) workers(p *attn.Problem, workers int) int {
	return max(1, min(workers, p.Batch*p.HeadsQ*tile.Count(k.ops, p.SeqQ)))
}

func (k kernel) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	scratch, err := k.Check(p, team.Workers())
	if err != nil {
		return nil, err
	}
	if few(&p) {
		return k.planFew(p, team, scratch), nil
	}
	pl := &plan{kernel: k, p: p, team: team, scratch: scratch}
	pl.task = pl.tile
	for range k.workers(&p, team.Workers()) {
		t := tile.New(&pl.p, k.ops, block)
		t.P = make([]float32, block*k.ops.Lanes)
		pl.tiles = append(pl.tiles, t)
	}
	return pl, nil
}

type plan struct {
	kernel
	p       attn.Problem
	team    *attn.Team
	scratch int64
	tiles   []*tile.Tile // one a worker
	a       *attn.Args
	task    func(worker, task int)
}

func (pl *plan) Scratch() int64 { return pl.scratch }

func (pl *plan) Forward(a *attn.Args) {
	pl.p.Must(pl.name, a)
	pl.a = a
	pl.team.Run(pl.p.Batch*pl.p.HeadsQ*tile.Count(pl.ops, a.Q.S), pl.task)
	pl.a = nil
}

// tile answers one tile of queries. The last tiles of a head go first: under a causal mask they are the long ones.
func (pl *plan) tile(worker, task int) {
	a, t := pl.a, pl.tiles[worker]
	n := tile.Count(pl.ops, a.Q.S)
	head := task / n
	t.At(a, head/pl.p.HeadsQ, head%pl.p.HeadsQ, (n-1-task%n)*pl.ops.Lanes)
	for again := true; again; again = t.Finish() {
		t.Load()
		clear(t.O)
		for t.Seek(block); t.Next(); {
			t.Weights()
			t.Mix()
		}
	}
}
