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

// A fence is memory between two pages that are not mapped.
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

// putIn copies s to one end of the fence, so that the element before its first or the one after its
// last is not mapped.
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

// cells returns rows of cells between fences.
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

// fences hold every operand of a call between pages that are not mapped, cut to the length that the
// call addresses.
type fences map[string]*fence

// fenced returns rows of cols columns between fences.
func (fs fences) fenced(t *testing.T, name string, s []float32, rows, cols, stride int, first bool) []float32 {
	n := 0
	if rows > 0 && cols > 0 {
		n = (rows-1)*stride + cols
	}
	if fs[name] == nil {
		fs[name] = newFence(t, 1<<15)
	}
	return fs[name].put(s[:n], first)
}

func (fs fences) put(t *testing.T, p *operands, first bool) *operands {
	at := func(name string, s []float32, rows, cols, stride int) []float32 {
		return fs.fenced(t, name, s, rows, cols, stride, first)
	}
	q := *p
	q.Qt, q.P, q.O = at("Qt", p.Qt, p.D, p.Width, p.Lanes), at("P", p.P, p.N, p.Width, p.Lanes), at("O", p.O, p.C, p.Width, p.Lanes)
	q.K.Data, q.V.Data = at("K", p.K.Data, p.N, p.D, p.K.Stride), at("V", p.V.Data, p.N, p.C, p.V.Stride)
	q.M, q.L, q.Keep = at("M", p.M, 1, p.Width, 0), at("L", p.L, 1, p.Width, 0), at("Keep", p.Keep, 1, p.Width, 0)
	if p.S != nil {
		q.S = at("S", p.S, 1, p.Width, 0)
	}
	q.Dot, q.Sub = at("Dot", p.Dot, p.C, p.Width, p.Lanes), at("Sub", p.Sub, 1, p.Width, 0)
	q.X, q.Y.Data = at("X", p.X, p.N, p.C, p.XStride), at("Y", p.Y.Data, p.Width, p.C, p.Y.Stride)
	if p.Scale != nil {
		q.Scale = at("Scale", p.Scale, 1, p.N, 0)
	}
	e := &q.Edit
	e.Bias = at("Bias", p.Edit.Bias, p.N, p.Width, p.Lanes)
	e.SlopeHi, e.SlopeLo = at("SlopeHi", p.Edit.SlopeHi, 1, p.Width, 0), at("SlopeLo", p.Edit.SlopeLo, 1, p.Width, 0)
	e.Pos = as[int32](at("Pos", as[float32](p.Edit.Pos), 1, p.Width, 0))
	e.Bits = as[uint32](at("Bits", as[float32](p.Edit.Bits), (p.N+31)/32, p.Width, p.Lanes))
	if p.Plain < p.N {
		q.Lo = as[int32](at("Lo", as[float32](p.Lo), 1, p.Width, 0))
		q.Hi = as[int32](at("Hi", as[float32](p.Hi), 1, p.Width, 0))
	}
	return &q
}

// as returns the same memory as elements of another type of 32 bits.
func as[To, From float32 | int32 | uint32](s []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// portable returns the portable loops in the geometry of a set.
func portable(o *Ops) *Ops {
	return Portable(o.Shape.Lanes, o.Shape.Vec, o.Shape.Keys, o.Shape.Cols, o.Shape.Rank)
}

// A guardedLoop is a loop and its result.
type guardedLoop struct {
	name   string
	run    func(*Ops, *operands)
	result func(*operands) (rows Rows, cols int)
}

func products() []guardedLoop {
	weights := func(p *operands) (Rows, int) { return Rows{Data: p.P, Stride: p.Lanes}, p.Width }
	outputs := func(p *operands) (Rows, int) { return Rows{Data: p.O, Stride: p.Lanes}, p.Width }
	references := func(p *operands) (Rows, int) { return Rows{Data: p.M, Stride: p.Lanes}, p.Width }
	sums := func(p *operands) (Rows, int) { return Rows{Data: p.X, Stride: p.XStride}, p.C }
	return []guardedLoop{
		{"Score", func(o *Ops, p *operands) { o.Panel.Score(p.scores()) }, weights},
		{"Top", func(o *Ops, p *operands) { o.Panel.Top(p.softmax()) }, references},
		{"Mix", func(o *Ops, p *operands) { o.Panel.Mix(p.mix()) }, outputs},
		{"MixInStairs", func(o *Ops, p *operands) { o.Panel.Mix(inStairs(o, p.mix())) }, outputs},
		{"MixFresh", func(o *Ops, p *operands) { o.Panel.Mix(fresh(p.mix())) }, outputs},
		{"MixFreshInStairs", func(o *Ops, p *operands) { o.Panel.Mix(inStairs(o, fresh(p.mix()))) }, outputs},
		{"DScore", func(o *Ops, p *operands) { o.Back.DScore(p.dscore()) }, weights},
		{"Cap", func(o *Ops, p *operands) { o.Edit.Cap(p.edit()) }, weights},
		{"Add", func(o *Ops, p *operands) { o.Edit.Add(p.edit()) }, weights},
		{"Slope", func(o *Ops, p *operands) { o.Edit.Slope(p.edit()) }, weights},
		{"Hide", func(o *Ops, p *operands) { o.Edit.Hide(p.edit()) }, weights},
		{"Outer", func(o *Ops, p *operands) { o.Back.Outer(p.outer()) }, sums},
		{"OuterKept", func(o *Ops, p *operands) { o.Back.Outer(kept(p.outer())) }, sums},
		{"OuterOfNone", func(o *Ops, p *operands) { o.Back.Outer(none(p.outer())) }, sums},
		{"Inner", inOrder, references},
		{"OuterT", transposedOuter, func(p *operands) (Rows, int) { return Rows{Data: p.O, Stride: p.C}, p.C }},
	}
}

// inOrder runs Inner on rows of K and of V, at most as many as there are lanes.
func inOrder(o *Ops, p *operands) { o.Back.Inner(p.M[:min(p.N, p.Width)], p.K, p.V, min(p.D, p.C)) }

// kept uses the factors of Outer for the old result too.
func kept(p *Outer) *Outer {
	p.Keep = p.Scale
	return p
}

// none takes all lanes from Outer, so that it only scales or clears the old result.
func none(p *Outer) *Outer {
	p.Width = 0
	return p
}

// hold runs a product with its operands between pages that are not mapped, at either end. It
// compares the result with the portable twin's: the same numbers up to the rounding of sums, and
// infinities and NaN in the same places.
func (op guardedLoop) hold(t *testing.T, o *Ops, fs fences, p *operands) {
	t.Helper()
	ref := *p
	ref.P, ref.O, ref.X, ref.M = slices.Clone(p.P), slices.Clone(p.O), slices.Clone(p.X), slices.Clone(p.M)
	op.run(portable(o), &ref)
	want, cols := op.result(&ref)
	for _, first := range []bool{true, false} {
		q := fs.put(t, p, first)
		op.run(o, q)
		got, _ := op.result(q)
		what := fmt.Sprintf("%s: width %d, %d keys, %d and %d columns, strides %d and %d", op.name, p.Width, p.N, p.D, p.C, p.K.Stride, p.V.Stride)
		compare(t, what, got, want, cols, float64(p.N+max(p.D, p.C)+p.Width))
	}
}

// TestAgainstPortable checks every product of every set over a grid of shapes.
func TestAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		for _, op := range products() {
			t.Run(o.ISA+"/"+op.name, func(t *testing.T) {
				fs := fences{}
				for _, special := range []bool{false, true} {
					grid(o, func(width, n, d int) {
						p := random(o, width, n, d, d)
						if special {
							poison(p)
						}
						op.hold(t, o, fs, p)
					})
				}
			})
		}
	}
}

// FuzzShapes does what TestAgainstPortable does for any shape and any stride, including strides
// that make rows overlap:
//
//	go test -run '^$' -fuzz Shapes ./kernels/asm
func FuzzShapes(f *testing.F) {
	f.Add(uint8(2), uint8(9), uint8(64), uint8(64), uint8(64), uint8(200), uint8(80), false)
	f.Add(uint8(1), uint8(33), uint8(5), uint8(31), uint8(0), uint8(1), uint8(31), true)
	f.Add(uint8(0), uint8(1), uint8(0), uint8(1), uint8(0), uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, vecs, n, d, c, strideK, strideV, strideY uint8, special bool) {
		for _, o := range assembled() {
			width, keys := o.Shape.Vec*(1+int(vecs)%(o.Shape.Lanes/o.Shape.Vec)), int(n)%80
			p := random(o, width, keys, int(d), int(c))
			p.K, p.V = apart(p.K, keys, p.D, int(strideK)), apart(p.V, keys, p.C, int(strideV))
			p.Y = apart(p.Y, width, p.C, int(strideY))
			if special {
				poison(p)
			}
			for _, op := range products() {
				op.hold(t, o, fences{}, p)
			}
		}
	})
}

// apart copies rows to another stride.
func apart(r Rows, rows, cols, stride int) Rows {
	if rows == 0 {
		return Rows{Data: nil, Stride: stride}
	}
	s := make([]float32, (rows-1)*stride+cols)
	for j := range rows {
		copy(s[j*stride:], r.Row(j, cols))
	}
	return Rows{Data: s, Stride: stride}
}

// fresh sets Fresh, so that the old output of Mix counts as 0.
func fresh(m *Mix) *Mix {
	m.Fresh = true
	return m
}

// inStairs sets Since and Until so that vectors begin one after another up to some row, and end one
// after another from there on.
func inStairs(o *Ops, m *Mix) *Mix {
	all, vecs := m.N*(m.C%3)/2, m.Width/o.Shape.Vec
	for v := range vecs {
		m.Since = append(m.Since, all*v/max(vecs-1, 1))
		m.Until = append(m.Until, all+(m.N-all)*v/vecs)
	}
	return m
}

// grid visits all widths, with keys of 0 to 4 groups and one more, and with 0 to 70 columns and
// 128. It combines each number of keys with some numbers of columns, and each number of columns
// with some numbers of keys. With -short it visits every third number of keys with two numbers of
// columns, and every fifth number of columns.
func grid(o *Ops, do func(width, n, d int)) {
	columns, keyStep, columnStep := []int{0, 1, 7, 64}, 1, 1
	if testing.Short() {
		columns, keyStep, columnStep = []int{0, 7}, 3, 5
	}
	for width := o.Shape.Vec; width <= o.Shape.Lanes; width += o.Shape.Vec {
		for n := 0; n < 4*o.Shape.Keys+2; n += keyStep {
			for _, d := range columns {
				do(width, n, d)
			}
		}
		for d := 0; d < 71; d += columnStep {
			do(width, 2*o.Shape.Keys+1, d)
		}
		do(width, 3*o.Shape.Keys, 128)
	}
}

// poison puts special values into some places of operands, in lanes in use and in rows.
func poison(p *operands) {
	rng := rand.New(rand.NewPCG(uint64(p.N), uint64(p.D)))
	inf := float32(math.Inf(1))
	for _, s := range [][]float32{p.Qt, p.P, p.O, p.K.Data, p.V.Data, p.Dot, p.X, p.Y.Data, p.Edit.Bias} {
		for range len(s) / 40 {
			s[rng.IntN(len(s))] = []float32{inf, -inf, nan, 0x1p-140, -0x1p-149, float32(math.Copysign(0, -1))}[rng.IntN(6)]
		}
	}
}

// compare compares the first columns of rows. Sums of terms numbers from a normal distribution may
// differ by a few roundings.
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

// TestWidenAndNarrowAgainstPortable checks that Widen and Narrow give the bits of their portable
// twins, between pages that are not mapped.
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
					o.Vector.Widen(to, &cells, n, d)
					sameBits(t, fmt.Sprintf("%s: Widen type %d, %d rows of %d", o.ISA, typ, n, d), to, want)
					if typ != F16 && typ != BF16 || n == 0 {
						continue
					}
					from := fs.cells(t, "from", Cells{Rows: rows}, 1, d, first).Data
					half, wantHalf := putIn(fs["half"], make([]uint16, d), first), make([]uint16, d)
					o.Vector.Narrow(half, from, typ)
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

// TestRotate checks that Rotate turns every pair by its own angle, within two roundings, and leaves
// the numbers after the last pair unchanged.
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
					o.Vector.Rotate(got, cos.put(c, first), sin.put(s, first), pairs)
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

// TestInverseAgainstPortable checks that Inverse gives the bits of its portable twin, also in
// place, and reports numbers that are not finite at any place.
func TestInverseAgainstPortable(t *testing.T) {
	inf := float32(math.Inf(1))
	special := []float32{0, 1, 3, 0x1p-126, 0x1p-128, 0x1p-149, math.MaxFloat32, 0x1p-100, 7e30, -2}
	for _, o := range assembled() {
		from, to := newFence(t, 1<<10), newFence(t, 1<<10)
		for n := range 4*o.Shape.Lanes + 2 {
			for _, first := range []bool{true, false} {
				x := make([]float32, n)
				for i := range x {
					x[i] = special[(i*7+n)%len(special)]
				}
				for _, at := range []int{-1, 0, n / 2, n - 1} {
					for _, bad := range []float32{nan, inf, -inf} {
						y := slices.Clone(x)
						if at >= 0 && at < n {
							y[at] = bad
						}
						want := make([]float32, n)
						finite := inverse(want, y)
						if finite != (at < 0 || at >= n) {
							t.Fatalf("%v: finite is %v", y, finite)
						}
						in, out := from.put(y, first), to.put(make([]float32, n), first)
						for _, to := range [][]float32{out, in} {
							if got := o.Vector.Inverse(to, in); got != finite {
								t.Fatalf("%s: of %v: finite is %v", o.ISA, y, got)
							}
							for i, w := range want {
								if math.Float32bits(to[i]) != math.Float32bits(w) && (w == w || to[i] == to[i]) {
									t.Fatalf("%s: number %d of %d, 1/%v, is %v, want %v", o.ISA, i, n, y[i], to[i], w)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestMoveAgainstPortable checks that Load and Store give the bits of their portable twins, except
// that products with a factor of Load may differ by an ulp.
func TestMoveAgainstPortable(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, o := range assembled() {
		fs := fences{}
		for width := 0; width <= o.Shape.Lanes; width += 3 {
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
						m := Move{Lanes: o.Shape.Lanes, Width: width, Rows: rows, D: d, Tile: q.Qt, Outside: q.K}
						want := m
						want.Tile = make([]float32, len(q.Qt))
						for _, m.Factor = range []float64{.1, -3, 1, 0} {
							if want.Factor = m.Factor; m.Factor == 0 && (width+d)%2 == 0 {
								poison(&operands{K: q.K})
							}
							load(&want)
							o.Vector.Load(&m)
							for i, x := range m.Tile {
								w := want.Tile[i]
								same := math.Float32bits(x) == math.Float32bits(w) || x != x && w != w
								if i%o.Shape.Lanes < width && !same && !(m.Factor*(m.Factor-1) != 0 && ulps(x, float64(w)) <= 1) {
									t.Fatalf("%s: Load of %d rows by %d in %d lanes, times %v: column %d, lane %d is %v, want %v",
										o.ISA, rows, d, width, m.Factor, i/o.Shape.Lanes, i%o.Shape.Lanes, x, w)
								}
							}
						}
						m.Scale, want.Scale = q.M, q.M
						want.Outside.Data = slices.Clone(m.Outside.Data)
						wantFinite := store(&want)
						if finite := o.Vector.Store(&m); finite != wantFinite {
							t.Fatalf("%s: Store of %d rows by %d in %d lanes: finite is %v", o.ISA, rows, d, width, finite)
						}
						for i, x := range m.Outside.Data {
							if w := want.Outside.Data[i]; math.Float32bits(x) != math.Float32bits(w) {
								t.Fatalf("%s: Store of %d rows by %d in %d lanes: element %d is %v, want %v", o.ISA, rows, d, width, i, x, w)
							}
						}
						for i := range m.Tile {
							m.Tile[i] = 1
						}
						for _, x := range []float32{1, nan, inf, -inf, nan} {
							if width*d == 0 {
								break
							}
							c, lane := rand.IntN(d), rand.IntN(width)
							m.Tile[c*o.Shape.Lanes+lane] = x
							if finite := o.Vector.Store(&m); finite != (x == 1 || lane >= rows) {
								t.Fatalf("%s: Store of %d rows by %d in %d lanes, with %v in column %d, lane %d: finite is %v", o.ISA, rows, d, width, x, c, lane, finite)
							}
							m.Tile[c*o.Shape.Lanes+lane] = 1
						}
					}
				}
			}
		}
	}
}
