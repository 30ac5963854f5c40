package flash

import (
	"attnlab/attn"
	"attnlab/kernels/scalar"
	"attnlab/kernels/tile"
)

// byTiles says that so many queries share a key head that they go through its keys in the lanes of tiles, part by part: multiply-adds of rows would take longer
// than memory does. On a Xeon (family 6, model 167), with 32768 keys for 2 heads, 32 queries of each took .68 of the time so with AVX-512 and .87 with AVX2,
// 64 took .67 and .78, with d = 128 .88. But 32 with d = 128 took 1.1 and 1.07, and 16 1.3.
func byTiles(p *attn.Problem) bool {
	n := rowsOf(p)
	return tile.Mixes(p) && (n > inHand || n == inHand && p.Dim <= 64)
}

// useTiles makes d such a decoder, of so many workers.
func (d *decoder) useTiles(workers int) {
	d.wide = d.planWide(d.p, d.team, workers)
	d.scan, d.leave = d.scanTiles, d.leaveTile
	for range workers {
		d.workers = append(d.workers, &fewWorker{row: scalar.NewRow(&d.p), clean: make([]float32, d.p.DimV)})
		d.workers[len(d.workers)-1].panel.Fresh = true
	}
}

// forwardTiles answers a call: where there is one part, without states.
func (d *decoder) forwardTiles() {
	pl := d.wide
	if pl.leave = nil; d.n == 1 {
		pl.Forward(d.a)
		return
	}
	pl.leave = d.leave
	pl.begin(d.a)
	d.run(d.p.Batch * d.p.HeadsKV * d.n)
}

// scanTiles takes the queries of a key head through a part of its keys.
func (d *decoder) scanTiles(worker, task int) {
	p, pl := &d.p, d.wide
	at, kv, b := task%d.n, task/d.n%p.HeadsKV, task/d.n/p.HeadsKV
	all := tile.Count(p, d.ops, p.Group()*d.a.Queries(p, b))
	for first := 0; first < all; first += len(pl.workers[worker]) {
		tiles := pl.workers[worker][:min(len(pl.workers[worker]), all-first)]
		for i, t := range tiles {
			t.AtAll(d.a, b, kv, first+i)
			t.Within(at, at*tilePart, tilePart, d.careful)
		}
		tiles[0].Gather(pl.gather && pl.gathers(p, len(tiles)))
		pl.walk(tiles)
	}
}

// leaveTile keeps what a tile knows after a part.
func (d *decoder) leaveTile(t *tile.Tile) {
	b, rows := t.Batch(), t.Sums()
	for lane := range t.Rows() {
		h, i := t.Query(lane)
		k := d.state(d.row(b, h, i)) + t.Part
		copy(d.o[k*d.p.DimV:][:d.p.DimV], rows.Row(lane, d.p.DimV))
		d.m[k], d.l[k], d.s[k], d.max[k], d.first[k], d.bad[k] = t.Left(lane)
		d.bad[k] = d.bad[k] || d.l[k] != d.l[k]
	}
}
