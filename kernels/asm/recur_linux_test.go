package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRecurrencesBetweenPages compares the loops of a recurrence, of rows by rows and of powers of
// e with their portable twins. Each operand lies between pages that are not mapped, at either end.
func TestRecurrencesBetweenPages(t *testing.T) {
	for _, o := range assembled() {
		t.Run(o.ISA, func(t *testing.T) {
			fs := fences{}
			columns := 70
			if testing.Short() {
				columns = 10
			}
			for n := range 20 {
				for _, c := range []int{0, 1, 7, 64} {
					chunkBetweenPages(t, o, fs, n, c)
				}
			}
			for c := range columns {
				chunkBetweenPages(t, o, fs, 9, c)
			}
			chunkBetweenPages(t, o, fs, 64, 128)
		})
	}
}

// chunkBetweenPages runs the loops on n tokens and c columns.
func chunkBetweenPages(t *testing.T, o *Ops, fs fences, n, c int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), uint64(c)))
	width := (n + o.Shape.Vec - 1) / o.Shape.Vec * o.Shape.Vec
	rows := func(n, c int, scale float64) Rows {
		r := gapped(rng, n, c, scale)
		for i := range r.Data {
			if r.Data[i] != r.Data[i] {
				r.Data[i] = 0
			}
		}
		return r
	}
	x, y, panel, wide := rows(n, c, 1), rows(n, c, 1), rows(n, n, .2), rows(n, width, 1)
	for i, g := range y.Data {
		y.Data[i] = 1 + g/32
	}
	factors := rows(1, max(n, 1), 1).Data[:n]
	u := rows(1, max(c, 1), 1).Data[:c]
	put := func(name string, r Rows, rows, cols int, first bool) Rows {
		return Rows{Data: fs.fenced(t, name, r.Data, rows, cols, r.Stride, first), Stride: r.Stride}
	}
	type operands struct {
		x, y, panel, wide, to Rows
		by, last, u, y1       []float32
	}
	for _, loop := range []struct {
		name string
		ulps float64 // error against the twin; 0: sums of n terms
		cols int
		run  func(o *Ops, p *operands) Rows
	}{
		{"Solve", 0, c, func(o *Ops, p *operands) Rows {
			o.Recur.Solve(&Solve{Panel: Panel{Lanes: p.panel.Stride, N: n, P: p.panel.Data}, C: c, X: p.to.Data, XStride: p.to.Stride, V: p.x, Keep: p.by, Beta: p.by})
			return p.to
		}},
		{"Solve in reverse", 0, c, func(o *Ops, p *operands) Rows {
			o.Recur.Solve(&Solve{
				Panel: Panel{Lanes: p.panel.Stride, N: n, P: p.panel.Data}, C: c, X: p.to.Data, XStride: p.to.Stride, V: p.x, Fresh: true, Reverse: true,
			})
			return p.to
		}},
		{"Step", 0, c, func(o *Ops, p *operands) Rows {
			o.Recur.Step(&Step{N: n, C: c, X: p.to.Data, XStride: p.to.Stride, W: p.by, K: p.by, Keep: p.by, U: p.u, Y: p.y1})
			o.Recur.Step(&Step{N: n, C: c, X: p.to.Data, XStride: p.to.Stride, W: p.by, K: p.by, U: p.y1, Y: p.u})
			return p.to
		}},
		{"Fade", 4, width, func(o *Ops, p *operands) Rows {
			o.Recur.Fade(&Fade{Panel: Panel{Lanes: p.wide.Stride, Width: width, N: n, P: p.wide.Data}, From: p.wide, Alpha: p.by, Last: p.last})
			return p.wide
		}},
		{"Products", 1, c, func(o *Ops, p *operands) Rows {
			if got := o.Recur.Products(p.to, p.y, n, c); got != n {
				t.Fatalf("%s: Products of %d rows of %d: stops at %d", o.ISA, n, c, got)
			}
			return p.to
		}},
		{"Scale", 1, c, func(o *Ops, p *operands) Rows {
			o.Vector.Scale(p.to, p.x, p.by, c)
			return p.to
		}},
		{"Times", 1, c, func(o *Ops, p *operands) Rows {
			o.Vector.Times(p.to, p.x, p.y, n, c)
			return p.to
		}},
		{"Over", 1, c, func(o *Ops, p *operands) Rows {
			o.Vector.Over(p.to, p.x, p.y, n, c)
			return p.to
		}},
		{"Exp", 2, c, func(o *Ops, p *operands) Rows {
			for i := range n {
				o.Vector.Exp(p.to.Row(i, c), p.x.Row(i, c))
			}
			return p.to
		}},
		{"Update", 1, c, func(o *Ops, p *operands) Rows {
			o.Probe.Update(p.x.Data)
			return p.x
		}},
	} {
		want := loop.run(portable(o), &operands{x: copied(x), y: y, panel: panel, wide: copied(wide), to: copied(x), by: factors, last: make([]float32, width), u: slices.Clone(u), y1: make([]float32, c)})
		for _, first := range []bool{true, false} {
			p := operands{
				x: put("x", x, n, c, first), y: put("y", y, n, c, first), panel: put("panel", panel, n, max(n-1, 0), first),
				wide: put("wide", wide, n, width, first), to: put("to", x, n, c, first),
				by: fs.fenced(t, "by", slices.Clone(factors), 1, n, 0, first), last: fs.fenced(t, "last", make([]float32, width), 1, width, 0, first),
				u: fs.fenced(t, "u", slices.Clone(u), 1, c, 0, first), y1: fs.fenced(t, "y1", make([]float32, c), 1, c, 0, first),
			}
			got := loop.run(o, &p)
			for i := range n {
				for k, g := range got.Row(i, loop.cols) {
					w := float64(want.Row(i, loop.cols)[k])
					sum := loop.ulps == 0 && math.Abs(float64(g)-w) <= 1e-5*(1+math.Abs(w))
					if !(sum || ulps(g, w) <= loop.ulps) {
						t.Fatalf("%s: %d tokens, %d columns: [%d][%d] = %v, want %v", fmt.Sprint(o.ISA, " ", loop.name), n, c, i, k, g, w)
					}
				}
			}
		}
	}
}
