package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// geometries are the portable loops in the geometry of every instruction set, and the sets that
// this machine can run.
var geometries = append(assembled(),
	Go(), Portable(24, 8, 4, 4, 6), Portable(48, 16, 8, 8, 6), Portable(16, 4, 4, 4, 8), Portable(64, 1, 8, 1, 1))

// assembled returns the sets with loops in assembly that this machine can run, once for each way to
// compute 2^x. Sets that pack are left out: on rows that are not packed, their loops are those of
// other sets.
func assembled() (sets []*Ops) { return tunedSets(false) }

// everyReading returns the assembled sets, once also for each way to prefetch rows that are read
// once.
func everyReading() (sets []*Ops) { return tunedSets(true) }

func tunedSets(hints bool) (sets []*Ops) {
	for _, l := range Levels() {
		if l.set == nil || packs(l.Ops) {
			continue
		}
		seen := map[Tuning]bool{}
		for _, exp := range []Exp{Table, Reduced, Series} {
			for _, hint := range []Hint{NonTemporal, Temporal} {
				t := l.Ops.Tuning
				if t.Exp = exp; hints {
					t.Hint = hint
				}
				t.Stream = t.Reading
				if o := l.With(t); !seen[o.Tuning] {
					seen[o.Tuning] = true
					sets = append(sets, o)
				}
			}
		}
	}
	return sets
}

// packs reports whether a set packs blocks.
func packs(o *Ops) bool { return o.Pack.worth != nil }

// isAssembly reports whether a loop is a set's own, and not the portable one.
func isAssembly(loop any) bool {
	return strings.Contains(runtime.FuncForPC(reflect.ValueOf(loop).Pointer()).Name(), "loops).")
}

// TestPowersOfTwo checks that the numbers by which loops divide rows and lanes are powers of two,
// since they use bit masks.
func TestPowersOfTwo(t *testing.T) {
	sets := slices.Clone(geometries)
	for _, l := range Levels() {
		if l.Ops != nil {
			sets = append(sets, l.Ops)
		}
	}
	for _, o := range sets {
		for _, n := range []int{o.Shape.Vec, o.Shape.Keys, o.Shape.Group, o.Shape.Unit()} {
			if n <= 0 || n&(n-1) != 0 {
				t.Errorf("%s: vectors of %d, %d keys, groups of %d, units of %d: they must be powers of two", o.ISA, o.Shape.Vec, o.Shape.Keys, o.Shape.Group, o.Shape.Unit())
			}
		}
	}
}

// shapes are numbers of keys, of columns of K and of columns of V.
var shapes = [][3]int{{0, 4, 4}, {1, 1, 1}, {3, 5, 2}, {8, 8, 8}, {9, 17, 31}, {16, 64, 64}, {33, 3, 40}}

// operands are the operands of all loops, for a tile of queries and a block of keys.
type operands struct {
	Panel
	Sums
	Band
	D, C       int       // columns of keys and of values
	Factor     float64   // factor of the finished scores
	Qt         []float32 // [D][Lanes]
	K, V, Y    Rows      // keys, values, and a row for each lane
	O          []float32 // [C][Lanes]
	Keep       []float32 // [Lanes]
	Dot, Sub   []float32 // [C][Lanes]; [Lanes]
	X          []float32 // [N][XStride]
	XStride    int
	Scale      []float32 // Outer
	Fresh      bool      // Mix, Outer
	Since      []int     // Mix
	Until      []int     // Mix, Flash
	Next, Then Prefetch  // Flash and Outer prefetch Next
	Edit       Edit      // without its panel
	blocks     blocks
}

// blocks are packed operands. A block without terms aliases the rows or lanes.
type blocks struct {
	keys, valueKeys KeyBlock // K; V in the place of keys
	values          ValueBlock
	queries, dot    QueryTile
	lines           LineBlock
}

func (p *operands) product() Product {
	keys, queries := p.blocks.keys, p.blocks.queries
	if keys.terms == nil {
		keys = KeyRows(p.K)
	}
	if queries.terms == nil {
		queries = QueryLanes(p.Qt)
	}
	return Product{D: p.D, Queries: queries, Keys: keys, Factor: p.Factor}
}

// Each method below returns a call that shares its slices with the operands.

func (p *operands) scores() *Scores { return &Scores{Panel: p.Panel, Product: p.product()} }

func (p *operands) softmax() *Softmax { return &Softmax{Panel: p.Panel, Sums: p.Sums, Keep: p.Keep} }

func (p *operands) flash() *Flash {
	return &Flash{Softmax: *p.softmax(), Product: p.product(), Band: p.Band, Until: p.Until, Prefetch: p.Next}
}

func (p *operands) mix() *Mix {
	values := p.blocks.values
	if values.terms == nil {
		values = ValueRows(p.V)
	}
	return &Mix{
		Panel: p.Panel, C: p.C, Values: values, O: p.O, Keep: p.Keep, Fresh: p.Fresh, Since: p.Since, Until: p.Until, Next: p.Next, Then: p.Then,
	}
}

func (p *operands) dscore() *DScore {
	values, dot := p.blocks.valueKeys, p.blocks.dot
	if values.terms == nil {
		values = KeyRows(p.V)
	}
	if dot.terms == nil {
		dot = QueryLanes(p.Dot)
	}
	return &DScore{Panel: p.Panel, C: p.C, Dot: dot, Values: values, Sub: p.Sub}
}

func (p *operands) outer() *Outer {
	lines := p.blocks.lines
	if lines.terms == nil {
		lines = LineRows(p.Y)
	}
	return &Outer{
		Panel: p.Panel, C: p.C, X: p.X, XStride: p.XStride, Y: lines, Fresh: p.Fresh, Scale: p.Scale, Stream: Stream{At: p.Next.At, By: p.Next.By},
	}
}

func (p *operands) edit() *Edit {
	e := p.Edit
	e.Panel = p.Panel
	return &e
}

// every calls do for all geometries, widths and shapes, with random operands. Rows of K, V and Y
// have gaps after them, and unused lanes are NaN, so that a wrong index shows.
func every(t *testing.T, do func(t *testing.T, o *Ops, p *operands)) {
	for _, o := range geometries {
		lanes, vec := o.Shape.Lanes, o.Shape.Vec
		for width := vec; width <= lanes; width += max(vec, lanes/5/vec*vec) {
			for _, s := range shapes {
				t.Run(fmt.Sprintf("isa=%s/lanes=%d/width=%d/n=%d/d=%d/c=%d", o.ISA, lanes, width, s[0], s[1], s[2]), func(t *testing.T) {
					do(t, o, random(o, width, s[0], s[1], s[2]))
				})
			}
		}
	}
}

func random(o *Ops, width, n, d, c int) *operands {
	rng := rand.New(rand.NewPCG(uint64(width), uint64(n*1000+d)))
	all := o.Shape.Lanes
	lanes := func(rows int) []float32 {
		s := make([]float32, rows*all)
		for i := range s {
			s[i] = float32(rng.NormFloat64())
			if i%all >= width {
				s[i] = nan
			}
		}
		return s
	}
	rows := func(rows, cols int) Rows {
		const gap = 3
		s := make([]float32, rows*(cols+gap))
		for i := range s {
			s[i] = float32(rng.NormFloat64())
			if i%(cols+gap) >= cols {
				s[i] = nan
			}
		}
		return Rows{Data: s, Stride: cols + gap}
	}
	p := &operands{
		D: d, C: c, Factor: .37, Qt: lanes(d), K: rows(n, d), V: rows(n, c), Panel: Panel{Lanes: all, Width: width, N: n, P: lanes(n)}, O: lanes(c),
		Sums: Sums{M: lanes(1), L: lanes(1), S: lanes(1)}, Keep: lanes(1), Dot: lanes(c), Sub: lanes(1), X: make([]float32, n*(c+2)), XStride: c + 2,
		Y: rows(all, c), Band: Band{Plain: n},
	}
	p.Fresh = n%3 == 0
	if (n+d)%3 == 0 {
		for i := range p.Qt {
			p.Qt[i] *= float32(p.Factor)
		}
		p.Factor = 1
	}
	if n%5 < 3 { // these addresses are not mapped
		p.Next = Prefetch{4096, 4 * d}
		if n%2 == 0 {
			p.Then = Prefetch{8192, 4 * c}
		}
	}
	for j := range n * (n % 2) {
		p.Scale = append(p.Scale, float32(j%3)+.5)
	}
	p.Edit = Edit{
		Scale: 1.7, Factor: -math.Log2E, Bias: lanes(n), SlopeHi: lanes(1), SlopeLo: lanes(1), Pos: make([]int32, all), Bits: make([]uint32, (n+31)/32*all),
	}
	for l := range all {
		p.Edit.SlopeLo[l] *= 0x1p-26
		p.Edit.Pos[l] = int32(rng.IntN(2*n+1) - n/2)
	}
	for i := range p.Edit.Bits {
		p.Edit.Bits[i] = rng.Uint32()
	}
	return p
}

var nan = float32(math.NaN())

// check compares got with the sum of terms in float64. It may be off by a rounding for each term,
// and is NaN or an infinity where the sum is.
func check(t *testing.T, what string, got float32, terms ...float64) {
	t.Helper()
	want, abs := 0.0, 0.0
	for _, x := range terms {
		want += x
		abs += math.Abs(x)
	}
	if math.IsNaN(want) && got != got || math.IsInf(want, 0) && float64(got) == want {
		return
	}
	if err := math.Abs(float64(got) - want); !(err <= float64(len(terms)+3)*abs*0x1p-24) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func lane(s []float32, p *operands, row, lane int) float64 { return float64(s[row*p.Lanes+lane]) }

// TestScore checks Score against a sum in float64.
func TestScore(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		o.Panel.Score(p.scores())
		for j := range p.N {
			for l := range p.Width {
				terms := []float64{0}
				for x, k := range p.K.Row(j, p.D) {
					terms = append(terms, p.Factor*float64(k)*lane(p.Qt, p, x, l))
				}
				check(t, fmt.Sprintf("P[%d][%d]", j, l), p.P[j*p.Lanes+l], terms...)
			}
		}
	})
}

// TestMix checks Mix against a sum in float64.
func TestMix(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		for _, p.Fresh = range []bool{false, true} {
			old := append([]float32(nil), p.O...)
			o.Panel.Mix(p.mix())
			for c := range p.C {
				for l := range p.Width {
					var terms []float64
					if !p.Fresh {
						terms = append(terms, lane(old, p, c, l)*float64(p.Keep[l]))
					}
					for j := range p.N {
						terms = append(terms, lane(p.P, p, j, l)*float64(p.V.Row(j, p.C)[c]))
					}
					check(t, fmt.Sprintf("O[%d][%d], fresh %v", c, l, p.Fresh), p.O[c*p.Lanes+l], terms...)
				}
			}
		}
	})
}

// TestOuter checks Outer and OuterT against sums in float64.
func TestOuter(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		for _, form := range []struct {
			name       string
			run        func(*Outer)
			row, lane  int // strides of rows and lanes in P
			weights    []float32
			scale      []float32
			weightsRow int
		}{
			{"Outer", o.Back.Outer, p.Lanes, 1, p.P, nil, p.Lanes},
			{"Outer, scaled", o.Back.Outer, p.Lanes, 1, p.P, p.Y.Data, p.Lanes},
			{"Outer, fresh", o.Back.Outer, p.Lanes, 1, p.P, nil, p.Lanes},
			{"Outer, fresh and scaled", o.Back.Outer, p.Lanes, 1, p.P, p.Y.Data, p.Lanes},
			{"Outer, kept and scaled", o.Back.Outer, p.Lanes, 1, p.P, p.Y.Data, p.Lanes},
			{"OuterT", o.Back.OuterT, 1, p.N + 2, make([]float32, p.Width*(p.N+2)), nil, p.N + 2},
			{"OuterT, fresh", o.Back.OuterT, 1, p.N + 2, make([]float32, p.Width*(p.N+2)), nil, p.N + 2},
			{"OuterT, kept", o.Back.OuterT, 1, p.N + 2, make([]float32, p.Width*(p.N+2)), nil, p.N + 2},
			{"OuterT, kept and scaled", o.Back.OuterT, 1, p.N + 2, make([]float32, p.Width*(p.N+2)), p.Y.Data, p.N + 2},
		} {
			q := *p.outer()
			q.P, q.Lanes, q.Scale, q.X = form.weights, form.weightsRow, form.scale, make([]float32, len(p.X))
			for i := range q.X {
				q.X[i] = float32(i % 7)
				if strings.HasPrefix(form.name, "OuterT") {
					q.P[i%max(len(q.P), 1)] = float32(i%5) - 2
				}
			}
			old := append([]float32(nil), q.X...)
			if form.scale != nil {
				q.Scale = []float32{}
				for j := range q.N {
					q.Scale = append(q.Scale, float32(j%3)+.5)
				}
			}
			if q.Fresh = strings.Contains(form.name, "fresh"); q.Fresh {
				for j := range q.N {
					clear(old[j*q.XStride:][:q.C])
				}
			}
			for j := 0; j < q.N && strings.Contains(form.name, "kept"); j++ {
				q.Keep = append(q.Keep, float32(j%4)-.25)
				for c := range q.C {
					old[j*q.XStride+c] *= q.Keep[j]
				}
			}
			// These addresses are not mapped.
			q.Stream = Stream{At: 4096, By: q.By, Len: 4 * q.N * q.C, Beside: 1 << 20}
			form.run(&q)
			for j := range q.N {
				for c := range q.XStride {
					scale := 1.0
					if form.scale != nil && c < q.C {
						scale = float64(q.Scale[j])
					}
					terms := []float64{scale * float64(old[j*q.XStride+c])}
					for l := 0; l < q.Width && c < q.C; l++ {
						terms = append(terms, scale*float64(q.P[j*form.row+l*form.lane])*float64(p.Y.Row(l, q.C)[c]))
					}
					check(t, fmt.Sprintf("%s: X[%d][%d]", form.name, j, c), q.X[j*q.XStride+c], terms...)
				}
			}
		}
	})
}

// transposedOuter runs OuterT on the operands of Mix, with the rows of V for Y and those of O for
// X. It makes OuterT prefetch the rows after Y.
func transposedOuter(o *Ops, p *operands) {
	q := p.outer()
	q.N, q.Width, q.X, q.XStride, q.Y, q.Scale = p.Width, p.N, p.O, p.C, LineRows(p.V), nil
	if p.N%2 == 0 {
		q.Keep, q.Scale = p.M, p.L
	}
	q.Stream = Stream{At: p.V.Prefetch().At + uintptr(4*q.Width*p.V.Stride), By: 4 * p.V.Stride}
	for i := range q.X {
		q.X[i] = float32(i % 3)
	}
	o.Back.OuterT(q)
}

// TestDScore checks DScore against a sum in float64.
func TestDScore(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		old := append([]float32(nil), p.P...)
		o.Back.DScore(p.dscore())
		for j := range p.N {
			for l := range p.Width {
				w := lane(old, p, j, l)
				terms := []float64{-w * float64(p.Sub[l])}
				for c, v := range p.V.Row(j, p.C) {
					terms = append(terms, w*float64(v)*lane(p.Dot, p, c, l))
				}
				check(t, fmt.Sprintf("P[%d][%d]", j, l), p.P[j*p.Lanes+l], terms...)
			}
		}
	})
}

// TestMove checks that Load and Store transpose, with their factors, and touch only the rows that
// exist.
func TestMove(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		for _, rows := range []int{p.Width, max(1, p.Width-1)} {
			for i := range p.Qt {
				p.Qt[i] = nan
			}
			m := &Move{Lanes: p.Lanes, Width: p.Width, Rows: rows, D: p.C, Tile: p.O, Outside: p.Y}
			o.Vector.Load(m)
			for c := range p.C {
				for l := range p.Width {
					want := float32(0)
					if l < rows {
						want = p.Y.Row(l, p.C)[c]
					}
					if got := p.O[c*p.Lanes+l]; got != want {
						t.Fatalf("Load: lane %d, column %d is %v, want %v", l, c, got, want)
					}
				}
			}
			back := Rows{Data: make([]float32, len(p.Y.Data)), Stride: p.Y.Stride}
			m.Outside, m.Scale = back, p.L
			o.Vector.Store(m)
			for i, x := range back.Data {
				l, c := i/back.Stride, i%back.Stride
				want := float32(0)
				if l < rows && c < p.C {
					want = p.O[c*p.Lanes+l] * p.L[l]
				}
				if x != want {
					t.Fatalf("Store: row %d, column %d is %v, want %v", l, c, x, want)
				}
			}
		}
	})
}

// TestExpAndFlash checks that Flash gives the bits of Score and Exp, wherever they leave, and that
// both leave before a score that is over the limit of its lane.
func TestExpAndFlash(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		for l := range p.Width {
			p.M[l], p.L[l], p.S[l] = 16, 2, 3
		}
		q := *p
		q.P, q.L, q.S = slices.Clone(p.P), slices.Clone(p.L), slices.Clone(p.S)
		o.Panel.Score(q.scores())
		raw := slices.Clone(q.P)
		two := q.softmax()
		over := p.N / 2 // this row is over the limit, in the last lane
		for limit := 0; ; limit++ {
			if over < p.N {
				two.P[over*p.Lanes+p.Width-1] = 16 + 2*Limit
			}
			o.Panel.Exp(two)
			if two.Done == p.N {
				break
			}
			if limit > 0 || two.Done > over || two.Done+o.Shape.Keys <= over || two.Done%o.Shape.Keys != 0 {
				t.Fatalf("Exp left at row %d for one at %d", two.Done, over)
			}
			for j := two.Done; j < p.N; j++ {
				for l := range p.Width {
					if j != over && two.P[j*p.Lanes+l] != raw[j*p.Lanes+l] {
						t.Fatalf("P[%d][%d] was changed after row %d, where Exp left", j, l, two.Done)
					}
				}
			}
			two.P[over*p.Lanes+p.Width-1] = raw[over*p.Lanes+p.Width-1]
			two.From, over = two.Done, p.N
		}
		f := p.flash()
		o.Panel.Flash(f)
		if f.Done != p.N {
			t.Fatalf("Flash left at row %d of %d", f.Done, p.N)
		}
		for l := range p.Width {
			sum, sumZ := []float64{2}, []float64{3}
			for j := range p.N {
				at := j*p.Lanes + l
				want := math.Exp2(float64(raw[at]) - 16)
				if isAssembly(o.Panel.Exp) { // assembly rounds the difference first
					want = math.Exp2(float64(raw[at] - 16))
				}
				if got := p.P[at]; !(ulps(got, want) <= o.ulps) || got != two.P[at] {
					t.Fatalf("P[%d][%d]: Flash %v, Exp %v, want %v", j, l, got, two.P[at], want)
				}
				sum, sumZ = append(sum, float64(p.P[at])), append(sumZ, float64(p.P[at])*float64(raw[at]))
			}
			check(t, "L", p.L[l], sum...)
			check(t, "S", p.S[l], sumZ...)
			if p.L[l] != two.L[l] || p.S[l] != two.S[l] {
				t.Errorf("lane %d: Flash and Exp differ in L or S", l)
			}
		}
	})
}

// TestProbes checks the counts that probes return, that Read reads every element, and that Update
// changes none.
func TestProbes(t *testing.T) {
	for _, o := range append(everyReading(), Go()) {
		t.Run(o.ISA, func(t *testing.T) { probes(t, o) })
	}
}

func probes(t *testing.T, o *Ops) {
	round, vec := o.Probe.Peak(1), 1
	if isAssembly(o.Probe.Peak) {
		vec = o.Shape.Vec
	}
	if n := o.Probe.Peak(30_000); n != 30_000*round || round < int64(16*vec) || round%int64(2*vec) != 0 {
		t.Errorf("Peak counts %d operations in one round, %d in 30000", round, n)
	}
	if one := o.Probe.Chain(1); one < 16 || o.Probe.Chain(5000) != 5000*one || o.Probe.Chain(0) != 0 {
		t.Errorf("Chain counts %d additions in one round, %d in 5000, %d in none", one, o.Probe.Chain(5000), o.Probe.Chain(0))
	}
	if one := o.Probe.Slots(1); one < 8 || o.Probe.Slots(5000) != 5000*one || o.Probe.Slots(0) != 0 {
		t.Errorf("Slots counts %d instructions in one round, %d in 5000, %d in none", one, o.Probe.Slots(5000), o.Probe.Slots(0))
	}
	for _, n := range []int{0, 1, 2, 3, 15, 16, 17, 64, 101, 300} {
		for start := range 2 {
			x := make([]float32, n+1)[start:][:n]
			zero := o.Probe.Read(x)
			for i := range x {
				x[i] = 3
				if o.Probe.Read(x) == zero {
					t.Errorf("Read leaves out element %d of %d", i, n)
				}
				x[i] = 0
			}
			for i := range x {
				x[i] = float32(i) - 7.25
			}
			old := slices.Clone(x)
			if o.Probe.Update(x); !slices.Equal(x, old) {
				t.Errorf("Update of %d numbers: got %v, want %v", n, x, old)
			}
		}
	}
}

// TestLevels checks that the portable level is always available, and that other levels have loops
// or a reason.
func TestLevels(t *testing.T) {
	seen := map[string]bool{}
	for _, l := range Levels() {
		seen[l.ISA] = true
		if l.Available != (l.Ops != nil) || l.Available == (l.Reason != "") {
			t.Errorf("%s: available %v, with loops %v, reason %q", l.ISA, l.Available, l.Ops != nil, l.Reason)
		}
		if l.Available && l.Ops.ISA != l.ISA {
			t.Errorf("%s: its loops say they are %s", l.ISA, l.Ops.ISA)
		}
	}
	if !seen["go"] || !seen["avx2"] || !seen["avx512"] || !seen["neon"] {
		t.Errorf("levels are %v", seen)
	}
}

// TestFinite checks that Finite finds a number that is not finite at any place.
func TestFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	bad := []float32{nan, inf, -inf, -nan}
	good := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-40}
	for _, o := range append(assembled(), Go()) {
		for _, n := range []int{0, 1, 2, 3, 11, 16, 63, 64, 65, 130, 257} {
			for start := range 2 {
				row := make([]float32, n+1)[start:][:n]
				for i := range row {
					row[i] = good[i%len(good)]
				}
				if !o.Vector.Finite(row) {
					t.Errorf("%s: %v is not finite", o.ISA, row)
				}
				for i := range row {
					for _, x := range bad {
						old := row[i]
						if row[i] = x; o.Vector.Finite(row) {
							t.Errorf("%s: %v is finite", o.ISA, row)
						}
						row[i] = old
					}
				}
			}
		}
	}
}

// TestInner checks products of rows, and that the bits of one row do not depend on the other rows.
func TestInner(t *testing.T) {
	every(t, func(t *testing.T, o *Ops, p *operands) {
		n, d := p.N, min(p.D, p.C)
		to, one := make([]float32, n), make([]float32, 1)
		o.Back.Inner(to, p.K, p.V, d)
		for i, got := range to {
			terms := []float64{0}
			for c, x := range p.K.Row(i, d) {
				terms = append(terms, float64(x)*float64(p.V.Row(i, d)[c]))
			}
			check(t, fmt.Sprint("product of rows ", i), got, terms...)
			if o.Back.Inner(one, p.K.From(i), p.V.From(i), d); one[0] != got {
				t.Errorf("product of rows %d: %v, and %v alone", i, got, one[0])
			}
		}
	})
}
