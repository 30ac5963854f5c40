package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A fence is memory between two pages that nobody may touch.
type fence struct{ mem []byte }

func newFence(t *testing.T, floats int) *fence {
	page := unix.Getpagesize()
	n := (4*floats + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Mprotect(mem[page:page+n], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	return &fence{mem[page:][:n:n]}
}

func (f *fence) put(s []float32, first bool) []float32 { return putIn(f, s, first) }

// putIn copies s to one end of the fence: its first element, or else its last, has a forbidden neighbour.
func putIn[T any](f *fence, s []T, first bool) []T {
	if len(s) == 0 {
		return nil
	}
	n := len(f.mem) / int(unsafe.Sizeof(s[0]))
	at := n - len(s)
	if first {
		at = 0
	}
	to := unsafe.Slice((*T)(unsafe.Pointer(&f.mem[0])), n)[at:][:len(s):len(s)]
	copy(to, s)
	return to
}

// cells holds cells between fences, cut to so many rows.
func (fs fences) cells(t *testing.T, name string, c Cells, rows, cols int, first bool) Cells {
	for _, part := range []string{"", ".Scale"} {
		if fs[name+part] == nil {
			fs[name+part] = newFence(t, 1<<15)
		}
	}
	n := 0
	if rows > 0 && cols > 0 {
		n = (rows-1)*c.Stride + cols
	}
	switch f := fs[name]; c.Type {
	case F32:
		c.Data = putIn(f, c.Data[:n], first)
	case F16, BF16:
		c.Half = putIn(f, c.Half[:n], first)
	case I8:
		c.Byte, c.Scale = putIn(f, c.Byte[:n], first), putIn(fs[name+".Scale"], c.Scale[:max(0, (rows-1)*c.ScaleStride+1)], first)
	}
	return c
}

// fences holds every operand of a panel between fences, cut to what the call addresses.
type fences map[string]*fence

func (fs fences) put(t *testing.T, p *Panel, first bool) *Panel {
	at := func(name string, s []float32, rows, cols, stride int) []float32 {
		n := 0
		if rows > 0 && cols > 0 {
			n = (rows-1)*stride + cols
		}
		if fs[name] == nil {
			fs[name] = newFence(t, 1<<15)
		}
		return fs[name].put(s[:n], first)
	}
	q := *p
	q.Qt, q.P, q.O = at("Qt", p.Qt, p.D, p.Width, p.Lanes), at("P", p.P, p.N, p.Width, p.Lanes), at("O", p.O, p.C, p.Width, p.Lanes)
	q.K.Data, q.V.Data = at("K", p.K.Data, p.N, p.D, p.K.Stride), at("V", p.V.Data, p.N, p.C, p.V.Stride)
	q.M, q.L, q.Keep = at("M", p.M, 1, p.Width, 0), at("L", p.L, 1, p.Width, 0), at("Keep", p.Keep, 1, p.Width, 0)
	if p.S != nil {
		q.S = at("S", p.S, 1, p.Width, 0)
	}
	q.Dot, q.Sub = at("Dot", p.Dot, p.C, p.Width, p.Lanes), at("Sub", p.Sub, 1, p.Width, 0)
	q.X, q.Y.Data = at("X", p.X, p.N, p.C, p.XStr), at("Y", p.Y.Data, p.Width, p.C, p.Y.Stride)
	if p.Scale != nil {
		q.Scale = at("Scale", p.Scale, 1, p.N, 0)
	}
	e := &q.Edit
	e.Add = at("Add", p.Edit.Add, p.N, p.Width, p.Lanes)
	e.SlopeHi, e.SlopeLo = at("SlopeHi", p.Edit.SlopeHi, 1, p.Width, 0), at("SlopeLo", p.Edit.SlopeLo, 1, p.Width, 0)
	e.Pos = as[int32](at("Pos", as[float32](p.Edit.Pos), 1, p.Width, 0))
	e.Bits = as[uint32](at("Bits", as[float32](p.Edit.Bits), (p.N+31)/32, p.Width, p.Lanes))
	if p.Plain < p.N {
		for name, s := range map[string]*[]int32{"Lo": &e.Lo, "Hi": &e.Hi} {
			*s = as[int32](at(name, as[float32](*s), 1, p.Width, 0))
		}
	}
	return &q
}

// as is the same memory, as elements of another type of 32 bits.
func as[To, From float32 | int32 | uint32](s []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// twins are a product and its portable twin.
type twins struct {
	name     string
	run, ref func(*Panel)
	result   func(*Panel) (rows Rows, cols int)
}

func products(o *Ops) []twins {
	twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
	weights := func(p *Panel) (Rows, int) { return Rows{p.P, p.Lanes}, p.Width }
	outputs := func(p *Panel) (Rows, int) { return Rows{p.O, p.Lanes}, p.Width }
	sums := func(p *Panel) (Rows, int) { return Rows{p.X, p.XStr}, p.C }
	return []twins{
		{"Score", o.Score, twin.Score, weights},
		{"Top", o.Top, twin.Top, func(p *Panel) (Rows, int) { return Rows{p.M, p.Lanes}, p.Width }},
		{"Mix", o.Mix, twin.Mix, outputs},
		{"MixInStairs", inStairs(o, o.Mix), inStairs(o, twin.Mix), outputs},
		{"MixFresh", fresh(o.Mix), fresh(twin.Mix), outputs},
		{"MixFreshInStairs", inStairs(o, fresh(o.Mix)), inStairs(o, fresh(twin.Mix)), outputs},
		{"DScore", o.DScore, twin.DScore, weights},
		{"Cap", o.Cap, twin.Cap, weights},
		{"Add", o.Add, twin.Add, weights},
		{"Slope", o.Slope, twin.Slope, weights},
		{"Hide", o.Hide, twin.Hide, weights},
		{"Outer", o.Outer, twin.Outer, sums},
		{"OuterOfNone", none(o.Outer), none(twin.Outer), sums},
		{"Inner", inOrder(o.Inner), inOrder(twin.Inner), func(p *Panel) (Rows, int) { return Rows{p.M, p.Lanes}, p.Width }},
		{"OuterT", turned(o.OuterT), turned(twin.OuterT), func(p *Panel) (Rows, int) { return Rows{p.O, p.C}, p.C }},
	}
}

// inOrder is Inner of rows of K and of V, as many as there are lanes for.
func inOrder(inner func(to []float32, x, y Rows, d int)) func(*Panel) {
	return func(p *Panel) { inner(p.M[:min(p.N, p.Width)], p.K, p.V, min(p.D, p.C)) }
}

// none is Outer with no lanes in use, which only scales, or empties, what is there.
func none(outer func(*Panel)) func(*Panel) {
	return func(p *Panel) {
		width := p.Width
		p.Width = 0
		outer(p)
		p.Width = width
	}
}

// hold runs a product with its operands between pages that nobody may touch, at one end or the other, and compares it with its twin: the same
// numbers up to the rounding of sums, and infinities and NaN in the same places.
func (op twins) hold(t *testing.T, fs fences, p *Panel) {
	t.Helper()
	ref := *p
	ref.P, ref.O, ref.X, ref.M = slices.Clone(p.P), slices.Clone(p.O), slices.Clone(p.X), slices.Clone(p.M)
	op.ref(&ref)
	want, cols := op.result(&ref)
	for _, first := range []bool{true, false} {
		q := fs.put(t, p, first)
		op.run(q)
		got, _ := op.result(q)
		what := fmt.Sprintf("%s: width %d, %d keys, %d and %d columns, strides %d and %d", op.name, p.Width, p.N, p.D, p.C, p.K.Stride, p.V.Stride)
		compare(t, what, got, want, cols, float64(p.N+max(p.D, p.C)+p.Width))
	}
}

// Every product of every set, over a grid of shapes.
func TestAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		for _, op := range products(o) {
			t.Run(o.ISA+"/"+op.name, func(t *testing.T) {
				fs := fences{}
				for _, special := range []bool{false, true} {
					grid(o, func(width, n, d int) {
						p := random(o, width, n, d, d)
						if special {
							poison(p)
						}
						op.hold(t, fs, p)
					})
				}
			})
		}
	}
}

// FuzzShapes is the same for any shape and any stride, also one that makes rows overlap:
//
//	go test -run '^$' -fuzz Shapes ./kernels/asm
func FuzzShapes(f *testing.F) {
	f.Add(uint8(2), uint8(9), uint8(64), uint8(64), uint8(64), uint8(200), uint8(80), false)
	f.Add(uint8(1), uint8(33), uint8(5), uint8(31), uint8(0), uint8(1), uint8(31), true)
	f.Add(uint8(0), uint8(1), uint8(0), uint8(1), uint8(0), uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, vecs, n, d, c, strideK, strideV, strideY uint8, special bool) {
		for _, o := range assembled() {
			width, keys := o.Vec*(1+int(vecs)%(o.Lanes/o.Vec)), int(n)%80
			p := random(o, width, keys, int(d), int(c))
			p.K, p.V = apart(p.K, keys, p.D, int(strideK)), apart(p.V, keys, p.C, int(strideV))
			p.Y = apart(p.Y, width, p.C, int(strideY))
			if special {
				poison(p)
			}
			for _, op := range products(o) {
				op.hold(t, fences{}, p)
			}
		}
	})
}

// apart puts rows at another stride.
func apart(r Rows, rows, cols, stride int) Rows {
	if rows == 0 {
		return Rows{nil, stride}
	}
	s := make([]float32, (rows-1)*stride+cols)
	for j := range rows {
		copy(s[j*stride:], r.Row(j, cols))
	}
	return Rows{s, stride}
}

// fresh runs Mix on an output that counts as 0.
func fresh(mix func(*Panel)) func(*Panel) {
	return func(p *Panel) {
		p.Fresh = true
		mix(p)
	}
}

// inStairs runs Mix with vectors that begin and end one after the other: rows up to half are for some, or all are, or none.
func inStairs(o *Ops, mix func(*Panel)) func(*Panel) {
	return func(p *Panel) {
		all, vecs := p.N*(p.D%3)/2, p.Width/o.Vec
		for v := range vecs {
			p.Since = append(p.Since, all*v/max(vecs-1, 1))
			p.Until = append(p.Until, all+(p.N-all)*v/vecs)
		}
		mix(p)
		p.Since, p.Until = nil, nil
	}
}

// grid visits all widths with keys of 0 to 4 groups and one more, and 0 to 70 columns and 128: each number of keys with some numbers of
// columns, and the other way round. With -short, each number of keys with two numbers of columns.
func grid(o *Ops, do func(width, n, d int)) {
	columns := []int{0, 1, 7, 64}
	if testing.Short() {
		columns = []int{0, 7}
	}
	for width := o.Vec; width <= o.Lanes; width += o.Vec {
		for n := range 4*o.Keys + 2 {
			for _, d := range columns {
				do(width, n, d)
			}
		}
		for d := range 71 {
			do(width, 2*o.Keys+1, d)
		}
		do(width, 3*o.Keys, 128)
	}
}

// poison puts special values here and there into the operands of a panel, in lanes in use and in rows.
func poison(p *Panel) {
	rng := rand.New(rand.NewPCG(uint64(p.N), uint64(p.D)))
	inf := float32(math.Inf(1))
	for _, s := range [][]float32{p.Qt, p.P, p.O, p.K.Data, p.V.Data, p.Dot, p.X, p.Y.Data, p.Edit.Add} {
		for range len(s) / 40 {
			s[rng.IntN(len(s))] = []float32{inf, -inf, nan, 0x1p-140, -0x1p-149, float32(math.Copysign(0, -1))}[rng.IntN(6)]
		}
	}
}

// compare holds the first columns of rows to what is wanted: sums of numbers from a normal distribution may differ by a few roundings.
func compare(t *testing.T, what string, got, want Rows, cols int, terms float64) {
	t.Helper()
	for i, g := range got.Data {
		w := want.Data[i]
		if i%got.Stride >= cols {
			continue
		}
		switch tol := 4e-7 * (terms + 8) * max(1, math.Abs(float64(w))*0x1p-4); {
		case math.IsNaN(float64(w)) && math.IsNaN(float64(g)), g == w:
		case !(math.Abs(float64(g)-float64(w)) <= tol):
			t.Fatalf("%s: row %d, column %d is %v, want %v", what, i/got.Stride, i%got.Stride, g, w)
		}
	}
}

// putFew is put for the loops on rows. P reaches to the end of the last vector of the last row.
func (fs fences) putFew(t *testing.T, f *Few, vec int, first bool) *Few {
	at := func(name string, s []float32, rows, cols, stride int) []float32 {
		if fs[name] == nil {
			fs[name] = newFence(t, 1<<15)
		}
		n := 0
		if rows > 0 && cols > 0 {
			n = (rows-1)*stride + cols
		}
		return fs[name].put(s[:n], first)
	}
	g := *f
	g.Q.Data, g.O.Data = at("Q", f.Q.Data, f.R, f.D, f.Q.Stride), at("O", f.O.Data, f.R, f.C, f.O.Stride)
	g.K, g.V = fs.cells(t, "K", f.K, f.N, f.D, first), fs.cells(t, "V", f.V, f.N, f.C, first)
	g.P = at("P", f.P, f.R, (f.N+vec-1)/vec*vec, f.Stride)
	g.M, g.L, g.S = at("M", f.M, 1, f.R, 0), at("L", f.L, 1, f.R, 0), at("S", f.S, 1, f.R, 0)
	return &g
}

// The loops on rows against their portable twins, between pages that nobody may touch.
func TestFewAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		fs := fences{}
		few := func(r, n, d int, special bool) {
			f := randomFew(r, n, d, d)
			if special {
				poison(&Panel{N: n, D: d, Qt: f.Q.Data, P: f.P, O: f.O.Data, K: f.K.Rows, V: f.V.Rows})
			}
			for _, first := range []bool{true, false} {
				what := fmt.Sprintf("%s: %d queries, %d keys, %d columns", o.ISA, r, n, d)
				got, want := fs.putFew(t, f, o.Vec, first), *f
				want.P, want.O.Data, want.L, want.S = slices.Clone(f.P), slices.Clone(f.O.Data), slices.Clone(f.L), slices.Clone(f.S)
				o.Dot(got)
				dot(&want)
				compare(t, what+": Dot", Rows{got.P, f.Stride}, Rows{want.P, f.Stride}, n, float64(d))
				copy(want.P, got.P)
				o.Weigh(got)
				weigh(&want)
				if got.Done != want.Done {
					t.Fatalf("%s: Weigh left at %d, its twin at %d", what, got.Done, want.Done)
				}
				compare(t, what+": Weigh", Rows{got.P, f.Stride}, Rows{want.P, f.Stride}, n, 1)
				compare(t, what+": L", Rows{got.L, r}, Rows{want.L, r}, got.Done, float64(n))
				compare(t, what+": S", Rows{got.S, r}, Rows{want.S, r}, got.Done, float64(n))
				copy(want.P, got.P)
				o.Sum(got)
				sum(&want)
				compare(t, what+": Sum", got.O, want.O, d, float64(n))
			}
		}
		for _, special := range []bool{false, true} {
			for r := 1; r <= 9; r++ {
				for _, n := range []int{1, 3, 4, 6, 16, 33} {
					for _, d := range []int{1, 7, 33, 64} {
						few(r, n, d, special)
					}
				}
			}
			for d := 1; d < 150; d++ {
				few(2, 5, d, special)
			}
			for n := 1; n < 70; n++ {
				few(3, n, 17, special)
			}
		}
	}
}

// Dot and Sum on cells give the bits that they give on the same rows as float32, where scales are powers of two: between pages that nobody may
// touch, also for special values, and the portable twins too.
func TestFewOfCells(t *testing.T) {
	for _, o := range append(assembled(), Go()) {
		fs, plain := fences{}, fences{}
		few := func(r, n, d int, special bool) {
			f := randomFew(r, n, d, d)
			if special {
				poison(&Panel{N: n, D: d, Qt: f.Q.Data, P: f.P, O: f.O.Data, K: f.K.Rows, V: f.V.Rows})
			}
			k, v := f.K.Rows, f.V.Rows
			for _, typ := range []Type{F16, BF16, I8} {
				f.K, f.V = stored(k, n, d, typ, 1), stored(v, n, d, typ, 3)
				for _, first := range []bool{true, false} {
					what := fmt.Sprintf("%s, type %d: %d queries, %d keys, %d columns", o.ISA, typ, r, n, d)
					got, want := fs.putFew(t, f, o.Vec, first), plain.putFew(t, f, o.Vec, first)
					want.K, want.V = widened(f.K, n, d), widened(f.V, n, d)
					o.Dot(got)
					o.Dot(want)
					if special && typ == I8 { // what is subnormal on the way is rounded apart
						compare(t, what+": Dot", Rows{got.P, f.Stride}, Rows{want.P, f.Stride}, n, float64(16*d))
					} else {
						sameBits(t, what+": Dot", got.P, want.P)
					}
					copy(got.P, f.P)
					copy(want.P, f.P)
					o.Sum(got)
					o.Sum(want)
					if special && typ == I8 {
						compare(t, what+": Sum", got.O, want.O, d, float64(16*n))
					} else {
						sameBits(t, what+": Sum", got.O.Data, want.O.Data)
					}
				}
			}
		}
		for _, special := range []bool{false, true} {
			for r := 1; r <= 9; r++ {
				for _, n := range []int{1, 3, 4, 6, 16, 33} {
					for _, d := range []int{1, 7, 33, 64} {
						few(r, n, d, special)
					}
				}
			}
			for d := 1; d <= piece; d++ {
				few(2, 5, d, special)
			}
			for n := 1; n < 70; n++ {
				few(3, n, 17, special)
			}
			if o.ISA != "go" { // whose pieces of longer rows have sums of their own
				few(1, 9, 257, special)
				few(5, 9, 512, special)
			}
		}
	}
}

// Keys that lie in runs give the bits of keys that lie after one another, between pages that nobody may touch.
func TestRunsKeepBits(t *testing.T) {
	for _, o := range append(assembled(), Go()) {
		fs := fences{}
		for _, r := range []int{1, 2, 3, 6, 9} {
			for _, d := range []int{1, 7, 64, 130, 200} {
				for _, typ := range []Type{F32, F16, BF16, I8} {
					for _, run := range []int{1, 3, 4, 8, 16, 29, 40} {
						for _, first := range []bool{true, false} {
							const n = 29
							want := randomFew(r, n, d, d)
							want.K, want.V = stored(want.K.Rows, n, d, typ, 1), stored(want.V.Rows, n, d, typ, 2)
							got := *want
							got.P, got.O.Data = slices.Clone(want.P), slices.Clone(want.O.Data)
							got.Run = run
							rows := run * ((n-1)/run + 1)
							k, at, scales := scattered(want.K, n, d, run)
							got.At, got.Scales = at, scales
							got.K = fs.cells(t, "K", k, rows, d, first)
							got.Ahead = make([]uintptr, rows/run) // nothing is there
							got.Far, got.FarScale = got.Ahead, got.Ahead
							v, at, scales := scattered(want.V, n, d, run)
							got.V = fs.cells(t, "V", v, rows, d, first)
							what := fmt.Sprintf("%s, type %d: %d queries, %d columns, runs of %d", o.ISA, typ, r, d, run)
							o.Dot(want)
							o.Dot(&got)
							sameBits(t, what+": Dot", got.P, want.P)
							got.At, got.Scales = at, scales
							o.Sum(want)
							o.Sum(&got)
							sameBits(t, what+": Sum", got.O.Data, want.O.Data)
						}
					}
				}
			}
		}
	}
}

// Heads whose runs go in turn give the bits of each head alone.
func TestHeadsInTurn(t *testing.T) {
	for _, o := range append(assembled(), Go()) {
		fs := fences{}
		for _, heads := range []int{2, 3} {
			for _, r := range []int{1, 2, 9} {
				for _, d := range []int{1, 64, 130} {
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
								got.Ahead = make([]uintptr, each*heads) // nothing is there
								got.Far, got.FarScale = got.Ahead, got.Ahead
								return fs.cells(t, name, c, rows, d, true)
							}
							alone := func(loop func(*Few)) {
								for h := range heads {
									f := *all
									f.R, f.N, f.K, f.V = r, n, all.K.From(h*each*run), all.V.From(h*each*run)
									f.Q, f.O, f.P = all.Q.From(h*r), all.O.From(h*r), all.P[h*r*all.Stride:]
									loop(&f)
								}
							}
							what := fmt.Sprintf("%s, type %d: %d heads of %d queries, %d columns, runs of %d", o.ISA, typ, heads, r, d, run)
							got.K = place("K", all.K)
							o.Dot(&got)
							alone(o.Dot)
							sameBits(t, what+": Dot", got.P, all.P)
							got.V = place("V", all.V)
							o.Sum(&got)
							alone(o.Sum)
							sameBits(t, what+": Sum", got.O.Data, all.O.Data)
						}
					}
				}
			}
		}
	}
}

// scattered returns rows in runs, the first run last, and where these begin.
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

// sameBits holds numbers to what is wanted, bit for bit but for which NaN.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, g := range got {
		if w := want[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

// Widen and Narrow between pages that nobody may touch do what their portable twins do.
func TestWidenAndNarrowAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		fs := fences{"to": newFence(t, 1<<15), "half": newFence(t, 1<<15)}
		change := func(n, d int) {
			rows := random(Go(), 1, n, d, d).K
			for _, typ := range []Type{F32, F16, BF16, I8} {
				c := stored(rows, n, d, typ, 2)
				want := make([]float32, n*d)
				widen(want, &c, n, d)
				for _, first := range []bool{true, false} {
					to := fs["to"].put(make([]float32, n*d), first)
					cells := fs.cells(t, "from", c, n, d, first)
					o.Widen(to, &cells, n, d)
					sameBits(t, fmt.Sprintf("%s: Widen type %d, %d rows of %d", o.ISA, typ, n, d), to, want)
					if typ != F16 && typ != BF16 || n == 0 {
						continue
					}
					from := fs.cells(t, "from", Cells{Rows: rows}, 1, d, first).Data
					half, wantHalf := putIn(fs["half"], make([]uint16, d), first), make([]uint16, d)
					o.Narrow(half, from, typ)
					narrow(wantHalf, from, typ)
					if !slices.Equal(half, wantHalf) {
						t.Fatalf("%s: Narrow type %d, %d elements: %x, want %x", o.ISA, typ, d, half, wantHalf)
					}
				}
			}
		}
		for d := range 200 {
			change(2, d)
		}
		for n := range 20 {
			change(n, 17)
		}
	}
}

// Flash gives lanes that have seen no key their reference, with the bits that leaving and Raise give; and it leaves no more for them.
func TestFlashSeeds(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
		rng := rand.New(rand.NewPCG(3, 4))
		copied := func(p *Panel) *Panel {
			q := *p
			for _, s := range []*[]float32{&q.P, &q.M, &q.L, &q.S, &q.Keep} {
				*s = slices.Clone(*s)
			}
			return &q
		}
		grid(o, func(width, n, d int) {
			p := random(o, width, n, d, 0)
			p.Plain, p.Edit.Key = 0, rng.IntN(1000)
			begun := rng.IntN(2) == 0 // some lanes are
			for l := range width {
				p.M[l], p.L[l], p.S[l], p.Keep[l] = Unset, 0, 0, 1
				if begun && rng.IntN(4) == 0 {
					p.M[l], p.L[l], p.S[l] = rng.Float32()-Limit, 1, 1
				}
				p.Edit.Lo, p.Edit.Hi = append(p.Edit.Lo, int32(p.Edit.Key+rng.IntN(n+1))), append(p.Edit.Hi, int32(p.Edit.Key+n))
			}
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			for _, ops := range []*Ops{o, twin} {
				what := fmt.Sprintf("%s/%s: width %d, %d keys, %d columns", o.ISA, ops.ISA, width, n, d)
				got, want := copied(p), copied(p)
				for ops.Flash(got); got.Done < n; ops.Flash(got) {
					if !begun && got.Done < n-n%o.Keys { // Exp does what is left
						t.Fatalf("%s: Flash left at %d", what, got.Done)
					}
					ops.Raise(got)
				}
				ops.Score(want)
				mask(want, 0, n)
				for ops.Exp(want); want.Done < n; ops.Exp(want) {
					ops.Raise(want)
				}
				for l := range width {
					if got.M[l] != want.M[l] || got.L[l] != want.L[l] || p.S != nil && got.S[l] != want.S[l] {
						t.Fatalf("%s: lane %d: M and L are %v and %v, with Raise %v and %v", what, l, got.M[l], got.L[l], want.M[l], want.L[l])
					}
					for j := range n {
						if g, w := got.P[j*o.Lanes+l], want.P[j*o.Lanes+l]; g != w {
							t.Fatalf("%s: P[%d][%d] is %v, with Raise %v", what, j, l, g, w)
						}
					}
				}
			}
		})
	}
}

// Exp agrees with its portable twin, and Flash with Score, a mask and Exp bit for bit: in what they do, and in where and how they leave; also when
// Flash is told that the first group is scored.
func TestFlashAgainstScoreAndExp(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
		fs := [3]fences{{}, {}, {}}
		rng := rand.New(rand.NewPCG(1, 2))
		left := 0
		grid(o, func(width, n, d int) {
			what := fmt.Sprintf("%s: width %d, %d keys, %d columns", o.ISA, width, n, d)
			p := random(o, width, n, d, 0)
			if rng.IntN(3) == 0 {
				p.S = nil
			}
			if rng.IntN(4) == 0 {
				poison(p)
			}
			for l := range width {
				p.M[l], p.L[l] = 16, 1
				if rng.IntN(8) == 0 { // about a score's size, so that some go over
					p.M[l] = float32(math.Sqrt(float64(d))*.37) - Limit + rng.Float32()*4
				}
				if p.S != nil {
					p.S[l] = 1
				}
			}
			p.From = rng.IntN(n/o.Keys+1) * o.Keys
			if rng.IntN(2) == 0 {
				p.Plain, p.Edit.Key = rng.IntN(n/o.Keys+1)*o.Keys, rng.IntN(1000)
				for range width {
					p.Edit.Lo, p.Edit.Hi = append(p.Edit.Lo, int32(p.Edit.Key+rng.IntN(n+1))), append(p.Edit.Hi, int32(p.Edit.Key+rng.IntN(n+1)))
				}
			}
			first := rng.IntN(2) == 0
			got, two, ref := fs[0].put(t, p, first), fs[1].put(t, p, first), fs[2].put(t, p, first)
			o.Score(two)
			mask(two, p.Plain, n)
			for i := range min(p.From*o.Lanes, len(two.P)) {
				two.P[i] = p.P[i] // Score does all rows
			}
			copy(ref.P, two.P)
			o.Exp(two)
			if got.Scored = two.Done > p.From && rng.IntN(2) == 0; got.Scored {
				copy(got.P[p.From*o.Lanes:], ref.P[p.From*o.Lanes:])
			}
			o.Flash(got)
			twin.Exp(ref)
			if two.Done < n {
				left++
			}
			if got.Done != two.Done || ref.Done != two.Done {
				t.Fatalf("%s: Flash left at %d, Exp at %d, its twin at %d", what, got.Done, two.Done, ref.Done)
			}
			for j := range min(n, two.Done+o.Keys) {
				for l := range width {
					g, w, r := got.P[j*o.Lanes+l], two.P[j*o.Lanes+l], ref.P[j*o.Lanes+l]
					if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
						t.Fatalf("%s: from %d: P[%d][%d]: Flash %v, Score and Exp %v", what, p.From, j, l, g, w)
					}
					if j >= p.From && j < two.Done && !(math.Abs(float64(w)-float64(r)) <= 2e-6*float64(r)+0x1p-99) && (w == w || r == r) {
						t.Fatalf("%s: P[%d][%d]: Exp %v, its twin %v", what, j, l, w, r)
					}
				}
			}
			for l := range width {
				if two.L[l] != two.L[l] && got.L[l] != got.L[l] && ref.L[l] != ref.L[l] {
					continue
				}
				if got.L[l] != two.L[l] || !(math.Abs(float64(two.L[l]-ref.L[l])) <= 3e-6*float64(ref.L[l])) {
					t.Fatalf("%s: L[%d]: Flash %v, Exp %v, its twin %v", what, l, got.L[l], two.L[l], ref.L[l])
				}
				if p.S != nil && (got.S[l] != two.S[l] || !(math.Abs(float64(two.S[l]-ref.S[l])) <= 4e-5*float64(two.L[l]))) {
					t.Fatalf("%s: S[%d]: Flash %v, Exp %v, its twin %v", what, l, got.S[l], two.S[l], ref.S[l])
				}
			}
		})
		if left < 50 {
			t.Errorf("%s: only %d calls left early", o.ISA, left)
		}
	}
}

// Raise does what its portable twin does, bit for bit but for the sign of 0.
func TestRaiseAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
		fs := fences{}
		rng := rand.New(rand.NewPCG(3, 4))
		grid(o, func(width, n, c int) {
			if n == 0 {
				return
			}
			p := random(o, width, n, 0, c)
			p.Done = rng.IntN((n+o.Keys-1)/o.Keys) * o.Keys
			for i := range p.P { // weights, then scores
				p.P[i] = float32(math.Exp2(-100 * rng.Float64()))
				if i >= p.Done*o.Lanes && rng.IntN(20) == 0 {
					p.P[i] = []float32{negInf, nan, float32(math.Inf(1)), 3e38, Unset}[rng.IntN(5)]
				}
			}
			for l := range width {
				p.M[l], p.P[p.Done*o.Lanes+l] = float32(rng.NormFloat64()), float32(60*rng.NormFloat64())
				if rng.IntN(10) == 0 {
					p.M[l] = []float32{Unset, 1e30, float32(math.Inf(1))}[rng.IntN(3)]
				}
			}
			if rng.IntN(2) == 0 {
				p.S = nil
			}
			want := *p
			want.P, want.Keep, want.M, want.L, want.S = slices.Clone(p.P), slices.Clone(p.Keep), slices.Clone(p.M), slices.Clone(p.L), slices.Clone(p.S)
			twin.Raise(&want)
			for _, first := range []bool{true, false} {
				got := fs.put(t, p, first)
				o.Raise(got)
				if got.From != want.From || !got.Scored {
					t.Fatalf("%s: goes on from %d, scored %v; want %d", o.ISA, got.From, got.Scored, want.From)
				}
				for name, pair := range map[string][2][]float32{
					"P": {got.P, want.P}, "Keep": {got.Keep, want.Keep}, "M": {got.M, want.M}, "L": {got.L, want.L}, "S": {got.S, want.S},
				} {
					for i, x := range pair[0] {
						if w := pair[1][i]; i%o.Lanes < width && x != w && (x == x || w == w) {
							t.Fatalf("%s: width %d, %d keys, done %d: %s row %d lane %d is %v, want %v", o.ISA, width, n, p.Done, name, i/o.Lanes, i%o.Lanes, x, w)
						}
					}
				}
			}
		})
	}
}

// Rotate turns every pair by its own angle, within two roundings, and leaves what follows the last one.
func TestRotate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	random := func(n int) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = float32(rng.NormFloat64())
		}
		return s
	}
	for _, o := range append(assembled(), Go()) {
		x, cos, sin := newFence(t, 300), newFence(t, 150), newFence(t, 150)
		for n := range 140 {
			for _, first := range []bool{true, false} {
				for _, pairs := range []bool{true, false} {
					old, c, s := random(2*n+n%3), random(n), random(n)
					if n > 0 && n%5 == 0 {
						old[rng.IntN(len(old))], old[rng.IntN(len(old))] = nan, float32(math.Inf(1))
					}
					got := x.put(old, first)
					o.Rotate(got, cos.put(c, first), sin.put(s, first), pairs)
					for i := range n {
						at, to := i, i+n
						if pairs {
							at, to = 2*i, 2*i+1
						}
						a, b := float64(old[at]), float64(old[to])
						cos, sin := float64(c[i]), float64(s[i])
						check(t, fmt.Sprintf("%s: pairs %v, %d of %d: a", o.ISA, pairs, i, n), got[at], a*cos, -b*sin)
						check(t, fmt.Sprintf("%s: pairs %v, %d of %d: b", o.ISA, pairs, i, n), got[to], a*sin, b*cos)
					}
					for i := 2 * n; i < len(old); i++ {
						if got[i] != old[i] && old[i] == old[i] {
							t.Fatalf("%s: Rotate of %d pairs writes element %d", o.ISA, n, i)
						}
					}
				}
			}
		}
	}
}

// Load and Store move as their portable twins do, bit for bit.
func TestMoveAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		fs := fences{}
		for width := 0; width <= o.Lanes; width += 3 {
			for d := range 42 {
				for _, rows := range []int{width, max(0, width-1), width / 2} {
					p := random(o, width, rows, d, d)
					for i := range p.M {
						p.M[i] = float32(i + 1)
					}
					for _, first := range []bool{true, false} {
						q := fs.put(t, p, first)
						if d == 0 {
							q.K.Stride = 0
						}
						m := Move{Lanes: o.Lanes, Width: width, Rows: rows, D: d, Tile: q.Qt, Outside: q.K}
						want := m
						want.Tile = make([]float32, len(q.Qt))
						load(&want)
						o.Load(&m)
						for i, x := range m.Tile {
							if i%o.Lanes < width && x != want.Tile[i] {
								t.Fatalf("%s: Load of %d rows by %d in %d lanes: column %d, lane %d is %v, want %v", o.ISA, rows, d, width, i/o.Lanes, i%o.Lanes, x, want.Tile[i])
							}
						}
						m.Scale, want.Scale = q.M, q.M
						want.Outside.Data = slices.Clone(m.Outside.Data)
						store(&want)
						o.Store(&m)
						for i, x := range m.Outside.Data {
							if w := want.Outside.Data[i]; math.Float32bits(x) != math.Float32bits(w) {
								t.Fatalf("%s: Store of %d rows by %d in %d lanes: element %d is %v, want %v", o.ISA, rows, d, width, i, x, w)
							}
						}
					}
				}
			}
		}
	}
}
