package linear

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
)

// gates are the gates of the loaded tokens. With a gate for each head they are numbers, and with
// one for each key channel they are rows of d numbers.
type gates struct {
	alpha    []float32 // [tokens] or [tokens][d]
	products []float32 // [tokens] or [tokens][d]: P of a chunk
	last     []float32 // [lanes]: D of a chunk's last token
	ends     []float32 // [d]: the state's factors
	beta     []float32 // [tokens]
}

func (g *gates) layout(p *attn.Problem, take func(n int) []float32) {
	switch p.Linear.Gate {
	case attn.HeadGate:
		g.alpha, g.products, g.last, g.ends = take(tokens), take(tokens), take(lanes), take(p.Dim)
	case attn.KeyGate:
		g.alpha, g.products, g.ends = take(tokens*p.Dim), take(tokens*p.Dim), take(p.Dim)
	}
	if p.Linear.Delta {
		g.beta = take(tokens)
	}
}

// loadGates loads the gates of n tokens starting at token t.
func (w *worker) loadGates(t, n int) {
	d, decay, beta := w.p.Dim, &w.a.Terms.Decay, &w.a.Terms.Beta
	switch w.p.Linear.Gate {
	case attn.HeadGate:
		column(w.alpha[:n], decay, w.b, t, w.vh)
		w.ops.Vector.Exp(w.alpha[:n], w.alpha[:n])
	case attn.KeyGate:
		for i := range n {
			w.ops.Vector.Exp(w.alpha[i*d:][:d], decay.Row(w.b, t+i, w.vh))
		}
	}
	if w.p.Linear.Delta {
		column(w.beta[:n], beta, w.b, t, w.vh%beta.H)
	}
}

// column copies the numbers of consecutive tokens.
func column(to []float32, t *attn.Tensor, b, first, head int) {
	at := b*t.SB + first*t.SS + head*t.SH
	for i := range to {
		to[i] = t.Data[at]
		at += t.SS
	}
}

// keep returns the products of the gates of head gates from token i, and the factors of the state's
// rows after n tokens.
func (w *worker) keep(i, n int) (products, ends []float32) {
	p := float32(1)
	for j, a := range w.alpha[i:][:n] {
		p *= a
		w.products[j] = p
	}
	for c := range w.ends {
		w.ends[c] = p
	}
	return w.products[:n], w.ends
}

// cut returns the number of loaded tokens starting at i, of at most n, that form a chunk with a
// gate for each key channel. If even the first gate is out of bounds, it multiplies the state by it
// and makes it 1.
func (w *worker) cut(i, n int) int {
	d := w.p.Dim
	products, alpha := asm.Rows{Data: w.products, Stride: d}, asm.Rows{Data: w.alpha[i*d:], Stride: d}
	m := w.ops.Recur.Products(products, alpha, n, d)
	if m > 0 {
		return m
	}
	first := alpha.Data[:d]
	copy(w.ends, first)
	for c := range first {
		first[c] = 1
	}
	if m = w.ops.Recur.Products(products, alpha, n, d); m < fewest {
		copy(first, w.ends)
		return m
	}
	x := asm.Rows{Data: w.x, Stride: w.p.DimV}
	w.ops.Vector.Scale(x, x, w.ends, w.p.DimV)
	return m
}
