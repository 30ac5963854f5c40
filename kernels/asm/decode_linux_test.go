package asm

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// putFew does what put does for the operands of decode. P ends with the last vector of the last
// row.
func (fs fences) putFew(t *testing.T, f *few, vec int, first bool) *few {
	at := func(name string, s []float32, rows, cols, stride int) []float32 {
		return fs.fenced(t, name, s, rows, cols, stride, first)
	}
	g := *f
	g.Q.Data, g.O.Data = at("Q", f.Q.Data, f.R, f.D, f.Q.Stride), at("O", f.O.Data, f.R, f.C, f.O.Stride)
	g.K, g.V = fs.cells(t, "K", f.K, f.N, f.D, first), fs.cells(t, "V", f.V, f.N, f.C, first)
	g.P = at("P", f.P, f.R, (f.N+vec-1)/vec*vec, f.Stride)
	g.M, g.L, g.S = at("M", f.M, 1, f.R, 0), at("L", f.L, 1, f.R, 0), at("S", f.S, 1, f.R, 0)
	return &g
}

// poisonFew puts special values into the operands of decode.
func poisonFew(f *few) {
	poison(&operands{Panel: Panel{N: f.N, P: f.P}, D: f.D, Qt: f.Q.Data, O: f.O.Data, K: f.K.Rows, V: f.V.Rows})
}

// TestDecodeAgainstPortable checks the loops of decode against their portable twins, between pages
// that are not mapped.
func TestDecodeAgainstPortable(t *testing.T) {
	for _, o := range everyReading() {
		fs := fences{}
		run := func(r, n, d int, special bool) {
			f := randomFew(r, n, d, d)
			f.Factor *= math.Sqrt(64 / float64(max(d, 64))) // so that scores are of one size
			if special {
				poisonFew(f)
			}
			for _, first := range []bool{true, false} {
				what := fmt.Sprintf("%s: %d queries, %d keys, %d columns", o.ISA, r, n, d)
				got, want := fs.putFew(t, f, o.Shape.Vec, first), *f
				want.P, want.O.Data, want.L, want.S = slices.Clone(f.P), slices.Clone(f.O.Data), slices.Clone(f.L), slices.Clone(f.S)
				o.Decode.Dot(got.dot())
				dot(want.dot())
				compare(t, what+": Dot", Rows{Data: got.P, Stride: f.Stride}, Rows{Data: want.P, Stride: f.Stride}, n, float64(d))
				copy(want.P, got.P)
				gotWeigh, wantWeigh := got.weigh(), want.weigh()
				o.Decode.Weigh(gotWeigh)
				weigh(wantWeigh)
				if gotWeigh.Done != wantWeigh.Done {
					t.Fatalf("%s: Weigh left at %d, its twin at %d", what, gotWeigh.Done, wantWeigh.Done)
				}
				compare(t, what+": Weigh", Rows{Data: got.P, Stride: f.Stride}, Rows{Data: want.P, Stride: f.Stride}, n, 1)
				compare(t, what+": L", Rows{Data: got.L, Stride: r}, Rows{Data: want.L, Stride: r}, gotWeigh.Done, float64(n))
				compare(t, what+": S", Rows{Data: got.S, Stride: r}, Rows{Data: want.S, Stride: r}, gotWeigh.Done, float64(n))
				copy(want.P, got.P)
				o.Decode.Sum(got.sum())
				sum(want.sum())
				compare(t, what+": Sum", got.O, want.O, d, float64(n))
			}
		}
		for _, special := range []bool{false, true} {
			for _, r := range some(1, 2, 3, 4, 5, 6, 7, 8, 9) {
				for _, n := range some(1, 3, 4, 6, 16, 33) {
					for _, d := range []int{1, 7, 33, 64} {
						run(r, n, d, special)
					}
				}
			}
			for d := 1; d < 150; d++ {
				run(2, 5, d, special)
			}
			for _, d := range wholeRows {
				run(1, 9, d, special)
			}
			for n := 1; n < 70; n++ {
				run(3, n, 17, special)
			}
		}
	}
}

// wholeRows are the numbers of columns that some set reads in one piece for one query, and some
// larger ones.
var wholeRows = []int{16, 17, 32, 64, 65, 128, 129, 256, 257}

// TestDecodeOfCells checks that Dot and Sum on cells, whose scales are powers of two, give the bits
// of the same rows as float32. It runs assembly between pages that are not mapped, also on special
// values, and the portable loops.
func TestDecodeOfCells(t *testing.T) {
	for _, o := range append(everyReading(), Go()) {
		fs, plain := fences{}, fences{}
		run := func(r, n, d int, special bool) {
			f := randomFew(r, n, d, d)
			if special {
				poisonFew(f)
			}
			k, v := f.K.Rows, f.V.Rows
			for _, typ := range []Type{F16, BF16, I8} {
				f.K, f.V = stored(k, n, d, typ, 1), stored(v, n, d, typ, 3)
				for _, first := range []bool{true, false} {
					what := fmt.Sprintf("%s, type %d: %d queries, %d keys, %d columns", o.ISA, typ, r, n, d)
					got, want := fs.putFew(t, f, o.Shape.Vec, first), plain.putFew(t, f, o.Shape.Vec, first)
					want.K, want.V = widened(f.K, n, d), widened(f.V, n, d)
					o.Decode.Dot(got.dot())
					o.Decode.Dot(want.dot())
					if special && typ == I8 { // subnormal products are rounded separately
						compare(t, what+": Dot", Rows{Data: got.P, Stride: f.Stride}, Rows{Data: want.P, Stride: f.Stride}, n, float64(16*d))
					} else {
						sameBits(t, what+": Dot", got.P, want.P)
					}
					copy(got.P, f.P)
					copy(want.P, f.P)
					o.Decode.Sum(got.sum())
					o.Decode.Sum(want.sum())
					if special && typ == I8 {
						compare(t, what+": Sum", got.O, want.O, d, float64(16*n))
					} else {
						sameBits(t, what+": Sum", got.O.Data, want.O.Data)
					}
				}
			}
		}
		for _, special := range []bool{false, true} {
			for _, r := range some(1, 2, 3, 4, 5, 6, 7, 8, 9) {
				for _, n := range some(1, 3, 4, 6, 16, 33) {
					for _, d := range []int{1, 7, 33, 64} {
						run(r, n, d, special)
					}
				}
			}
			for d := 1; d <= piece; d++ {
				run(2, 5, d, special)
			}
			for n := 1; n < 70; n++ {
				run(3, n, 17, special)
			}
			if isAssembly(o.Decode.Dot) { // portable loops sum longer rows in pieces
				run(5, 9, 512, special)
				for _, d := range wholeRows {
					run(1, 9, d, special)
				}
			}
		}
	}
}

// some returns all of its arguments or, with -short, the first and then every other one.
func some(all ...int) (taken []int) {
	for i, n := range all {
		if i%2 == 0 || !testing.Short() {
			taken = append(taken, n)
		}
	}
	return taken
}

// TestRunsKeepBits checks that keys that are stored in runs give the bits of keys in one block,
// between pages that are not mapped.
func TestRunsKeepBits(t *testing.T) {
	for _, o := range append(everyReading(), Go()) {
		fs := fences{}
		for _, r := range some(1, 2, 3, 6, 9) {
			for _, d := range some(1, 7, 64, 130, 200) {
				for _, typ := range []Type{F32, F16, BF16, I8} {
					const n = 29
					want := randomFew(r, n, d, d)
					want.K, want.V = stored(want.K.Rows, n, d, typ, 1), stored(want.V.Rows, n, d, typ, 2)
					p, out := slices.Clone(want.P), slices.Clone(want.O.Data)
					o.Decode.Dot(want.dot())
					scores := slices.Clone(want.P)
					o.Decode.Sum(want.sum())
					for _, run := range []int{1, 3, 4, 8, 16, 29, 40} {
						for _, first := range []bool{true, false} {
							got := *want
							got.P, got.O.Data = slices.Clone(p), slices.Clone(out)
							got.Run = run
							rows := run * ((n-1)/run + 1)
							k, at, scales := scattered(want.K, n, d, run)
							got.At, got.Scales = at, scales
							got.K = fs.cells(t, "K", k, rows, d, first)
							got.Ahead = make([]uintptr, rows/run) // address 0 is not mapped
							got.Far, got.FarScale = got.Ahead, got.Ahead
							v, at, scales := scattered(want.V, n, d, run)
							got.V = fs.cells(t, "V", v, rows, d, first)
							what := fmt.Sprintf("%s, type %d: %d queries, %d columns, runs of %d", o.ISA, typ, r, d, run)
							o.Decode.Dot(got.dot())
							sameBits(t, what+": Dot", got.P, scores)
							got.At, got.Scales = at, scales
							o.Decode.Sum(got.sum())
							sameBits(t, what+": Sum", got.O.Data, want.O.Data)
						}
					}
				}
			}
		}
	}
}

// TestInterleavedHeads checks that heads whose runs are interleaved give the bits of each head
// alone.
func TestInterleavedHeads(t *testing.T) {
	for _, o := range append(everyReading(), Go()) {
		fs := fences{}
		for _, heads := range []int{2, 3} {
			for _, r := range some(1, 2, 9) {
				for _, d := range some(1, 64, 130) {
					for _, typ := range []Type{F32, F16, BF16, I8} {
						for _, run := range []int{3, 8, 29, 40} {
							const n = 29
							each := (n-1)/run + 1 // runs of a head
							rows := heads * each * run
							all := randomFew(heads*r, rows, d, d)
							all.K, all.V = stored(all.K.Rows, rows, d, typ, 1), stored(all.V.Rows, rows, d, typ, 2)
							got := *all
							got.R, got.N, got.Run, got.Heads, got.HeadQ, got.HeadO = r, n, run, heads, r*all.Q.Stride, r*all.O.Stride
							got.P, got.O.Data = slices.Clone(all.P), slices.Clone(all.O.Data)
							place := func(name string, c Cells) Cells {
								c, at, scales := scattered(c, rows, d, run)
								got.At, got.Scales = nil, nil
								for i := range each * heads {
									from := i%heads*each + i/heads
									got.At, got.Scales = append(got.At, at[from]), append(got.Scales, scales[from])
								}
								got.Ahead = make([]uintptr, each*heads) // address 0 is not mapped
								got.Far, got.FarScale = got.Ahead, got.Ahead
								return fs.cells(t, name, c, rows, d, true)
							}
							alone := func(loop func(f *few)) {
								for h := range heads {
									f := *all
									f.R, f.N, f.K, f.V = r, n, all.K.From(h*each*run), all.V.From(h*each*run)
									f.Q, f.O, f.P = all.Q.From(h*r), all.O.From(h*r), all.P[h*r*all.Stride:]
									loop(&f)
								}
							}
							what := fmt.Sprintf("%s, type %d: %d heads of %d queries, %d columns, runs of %d", o.ISA, typ, heads, r, d, run)
							got.K = place("K", all.K)
							o.Decode.Dot(got.dot())
							alone(func(f *few) { o.Decode.Dot(f.dot()) })
							sameBits(t, what+": Dot", got.P, all.P)
							got.V = place("V", all.V)
							o.Decode.Sum(got.sum())
							alone(func(f *few) { o.Decode.Sum(f.sum()) })
							sameBits(t, what+": Sum", got.O.Data, all.O.Data)
						}
					}
				}
			}
		}
	}
}

// scattered returns rows in runs, with the first run stored last, and the start of each run.
func scattered(c Cells, n, d, run int) (to Cells, at, scales []int) {
	runs := (n-1)/run + 1
	to = Cells{Type: c.Type, Rows: Rows{Stride: d}, ScaleStride: 1}
	switch size := runs * run * d; c.Type {
	case F32:
		to.Data = make([]float32, size)
	case F16, BF16:
		to.Half = make([]uint16, size)
	case I8:
		to.Byte, to.Scale = make([]int8, size), make([]float32, runs*run)
	}
	for i := range runs {
		at, scales = append(at, (runs-1-i)*run*d), append(scales, (runs-1-i)*run)
	}
	for j := range n {
		row := c.From(j)
		slot := to.at(at[j/run]+j%run*d, scales[j/run]+j%run)
		switch c.Type {
		case F32:
			copy(slot.Data[:d], row.Data)
		case F16, BF16:
			copy(slot.Half[:d], row.Half)
		case I8:
			copy(slot.Byte[:d], row.Byte)
			slot.Scale[0] = row.Scale[0]
		}
	}
	return to, at, scales
}
