package flash

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// Rows of K and V are read where they lie and as they are stored: float32 or less, after one another or in pages. Keys that lie evenly spaced are a
// run, which one call of a loop can take. A chunk of several runs has the bits of one: a score is a key's own, and sums go on from run to run.

// cells are a tensor from row s of head h in batch b on.
func cells(t *attn.Tensor, b, s, h int) asm.Cells {
	if t.D == 0 {
		return asm.Cells{}
	}
	c, at := asm.Cells{Type: asm.Type(t.Type), Rows: asm.Rows{Stride: t.SS}}, b*t.SB+s*t.SS+h*t.SH
	switch t.Type {
	case attn.F32:
		c.Data = t.Data[at:]
	case attn.F16, attn.BF16:
		c.Half = t.Bits[at:]
	case attn.I8:
		c.Byte, c.Scale, c.ScaleStride = t.Int8[at:], t.Scale[at/t.D:], t.SS/t.D
	}
	return c
}

// at is a tensor of keys or values from one key on.
func (d *decoder) at(t *attn.Tensor, b, kv, key int) asm.Cells {
	page, row := d.a.KRow(&d.p, b, key)
	return cells(t, page, row, kv)
}

// run is the number of keys from one on, and before another, that lie evenly spaced: to the end of the page, and through pages that follow it in the
// pool.
func (d *decoder) run(b, key, end int) int {
	size, k, v := d.p.Page, &d.a.K, &d.a.V
	if size == 0 {
		return end - key
	}
	pages := d.a.Pages[b*d.p.PagesEach():]
	to := key - key%size + size
	for k.SB == size*k.SS && v.SB == size*v.SS && to < end && pages[to/size] == pages[to/size-1]+1 {
		to += size
	}
	return min(to, end) - key
}

// dot computes the scores of n keys, run by run. The values of a run are asked for meanwhile.
func (d *decoder) dot(w *fewWorker, b, kv, key, n int) {
	scores := w.P
	for at := 0; at < n; at += w.N {
		w.N = d.run(b, key+at, key+n)
		w.P = scores[at:]
		w.K = d.at(&d.a.K, b, kv, key+at)
		w.Next = following(&w.K, d.at(&d.a.V, b, kv, key+at))
		d.ops.Dot(&w.Few)
	}
	w.N, w.P = n, scores
}

// sum adds the values of n keys, run by run. The keys that are as far into the next chunk are asked for meanwhile.
func (d *decoder) sum(w *fewWorker, b, kv, key, n, keys int) {
	if d.careful {
		w.V = asm.Cells{Rows: asm.Rows{Data: w.clean, Stride: d.p.DimV}}
		w.Next = w.V
		d.ops.Sum(&w.Few)
		return
	}
	whole := d.run(b, key, key+n) == n
	weights, out := w.P, w.O
	if !whole {
		w.O, w.Resume = asm.Rows{Data: w.sums, Stride: w.C}, true
		clear(w.sums[:w.R*w.C])
	}
	for at := 0; at < n; at += w.N {
		w.N = d.run(b, key+at, key+n)
		w.P = weights[at:]
		w.V = d.at(&d.a.V, b, kv, key+at)
		if w.Next = w.V; key+at+d.chunk < keys {
			w.Next = following(&w.V, d.at(&d.a.K, b, kv, key+at+d.chunk))
		}
		d.ops.Sum(&w.Few)
	}
	w.N, w.P, w.O, w.Resume = n, weights, out, false
	if !whole {
		for r := range w.R {
			to := out.Row(r, w.C)
			for c, x := range w.sums[r*w.C:][:w.C] {
				to[c] += x
			}
		}
	}
}

// following are the rows to ask for while others are read: those that are read next, if the same stride leads through both.
func following(rows *asm.Cells, next asm.Cells) asm.Cells {
	if rows.Stride != next.Stride || rows.Type != next.Type {
		return *rows
	}
	return next
}

// copies are the sizes of a worker's rows of queries that are not stored as float32, and of sums over keys that lie apart.
func copies(p *attn.Problem) (queries, sums int) {
	rows := p.Group() * p.SeqQ
	if p.Q != attn.F32 {
		queries = rows * p.Dim
	}
	if p.Page != 0 {
		sums = rows * p.DimV
	}
	return queries, sums
}

// loadQueries makes float32 rows of the queries of a key head, where they are none.
func (d *decoder) loadQueries(w *fewWorker, b, kv, nq int) {
	q := &d.a.Q
	if q.Type == attn.F32 {
		return
	}
	for r := range d.p.Group() * nq {
		at, row := d.a.QRow(&d.p, b, r%nq)
		q.Read(w.queries[r*q.D:], at, row, kv*d.p.Group()+r/nq)
	}
}

// queries are those from a row on, which belong to one head or are one of each head.
func (d *decoder) queries(w *fewWorker, b, kv, r, nq int) asm.Rows {
	q := &d.a.Q
	if q.Type != attn.F32 {
		return asm.Rows{Data: w.queries[r*q.D:], Stride: q.D}
	}
	at, row := d.a.QRow(&d.p, b, 0)
	rows := cells(q, at, row, kv*d.p.Group()+r/nq).Rows
	if nq == 1 && q.D > 0 {
		rows.Stride = q.SH
	}
	return rows
}
