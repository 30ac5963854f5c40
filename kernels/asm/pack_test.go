package asm

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// eachPack calls do for every set with its own packing and with none, and for the portable loops.
func eachPack(t *testing.T, do func(t *testing.T, o *Ops, pack Pack)) {
	for _, l := range Levels() {
		if !l.Available {
			t.Logf("SKIPPED: %s: %s", l.ISA, l.Reason)
			continue
		}
		t.Run(l.ISA, func(t *testing.T) { do(t, l.Ops, l.Ops.Pack) })
		if packs(l.Ops) {
			t.Run(l.ISA+", rows", func(t *testing.T) { do(t, l.Ops, Pack{}) })
		}
	}
}

// packed packs the operands into blocks.
func (p *operands) packed(pack *Pack, values, gradients Form) {
	b := &p.blocks
	b.keys, b.valueKeys = pack.NewKeys(p.N, p.D), pack.NewKeys(p.N, p.C)
	b.values, b.lines = pack.NewValues(p.N, p.C), pack.NewLines(p.Lanes, p.C)
	b.queries, b.dot = pack.NewQueries(p.Lanes, p.D), pack.NewQueries(p.Lanes, p.C)
	copy(b.queries.Lanes(), p.Qt)
	copy(b.dot.Lanes(), p.Dot)
	pack.Keys(&b.keys, p.K, p.N, p.D, values)
	pack.Keys(&b.valueKeys, p.V, p.N, p.C, gradients)
	pack.Values(&b.values, p.V, p.N, p.C, values)
	pack.Lines(&b.lines, p.Y, p.Width, p.C, gradients)
	pack.Queries(&b.queries, p.Width, p.D, p.Factor, values)
	pack.Queries(&b.dot, p.Width, p.C, 1, gradients)
}

// copied returns operands with copies of the results.
func (p *operands) copied() *operands {
	q := *p
	q.P, q.O, q.X = slices.Clone(p.P), slices.Clone(p.O), slices.Clone(p.X)
	return &q
}

// TestFromOfBlocks checks that From of a block or tile gives the bits of packing from that row or
// lane, also with small values.
func TestFromOfBlocks(t *testing.T) {
	eachPack(t, func(t *testing.T, o *Ops, pack Pack) {
		group, lanes, vec := o.Shape.Group, o.Shape.Lanes, o.Shape.Vec
		for _, d := range []int{5, 16, 33, 70} {
			for _, n := range []int{2 * group, 2*group + 1, 3*group - 1} {
				for _, form := range []Form{{}, {Lift: true}, {Type: BF16}} {
					whole := random(o, lanes, n, d, d)
					whole.Fresh, whole.Scale, whole.Keep = false, nil, nil
					if form.Type == BF16 {
						for _, x := range [][]float32{whole.K.Data, whole.V.Data} {
							for i := range x {
								x[i] = fromBF16(toBF16(x[i]))
							}
						}
					}
					for j := range n { // a column of small values
						whole.V.Row(j, d)[d/2] *= 0x1p-70
					}
					whole.packed(&pack, form, form)
					for j := group; j < n; j += group {
						what := fmt.Sprintf("%d rows of %d columns, %+v, from row %d", n, d, form, j)
						fresh := *whole
						fresh.Panel = Panel{whole.Lanes, whole.Width, n - j, whole.P[j*whole.Lanes:]}
						fresh.K, fresh.V, fresh.X = whole.K.From(j), whole.V.From(j), whole.X[j*whole.XStride:]
						from := fresh
						fresh.packed(&pack, form, form)
						b := &from.blocks
						b.keys, b.valueKeys, b.values = b.keys.From(j), b.valueKeys.From(j), b.values.From(j)
						sameProducts(t, what, o, &from, &fresh)
					}
					for lane := vec; lane < lanes; lane += max(vec, lanes/3/vec*vec) {
						what := fmt.Sprintf("%d rows of %d columns, %+v, from lane %d", n, d, form, lane)
						fresh := *whole
						fresh.Width, fresh.P, fresh.O, fresh.Sub = lanes-lane, whole.P[lane:], whole.O[lane:], whole.Sub[lane:]
						fresh.Qt, fresh.Dot, fresh.Y = whole.Qt[lane:], whole.Dot[lane:], whole.Y.From(lane)
						from := fresh
						fresh.packed(&pack, form, form)
						b := &from.blocks
						b.queries, b.dot, b.lines = b.queries.From(lane), b.dot.From(lane), b.lines.From(lane)
						sameProducts(t, what, o, &from, &fresh)
					}
				}
			}
		}
	})
}

// sameProducts checks that the blocks of two sets of operands give the same bits.
func sameProducts(t *testing.T, what string, o *Ops, a, b *operands) {
	t.Helper()
	var results [2][4][]float32
	for i, p := range []*operands{a, b} {
		blocks := p.blocks
		product := Product{D: p.D, Queries: blocks.queries, Keys: blocks.keys, Factor: p.Factor}
		scored, mixed, scores, outer := p.copied(), p.copied(), p.copied(), p.copied()
		o.Panel.Score(&Scores{scored.Panel, product})
		o.Panel.Mix(&Mix{Panel: mixed.Panel, C: p.C, Values: blocks.values, O: mixed.O, Fresh: true})
		o.Back.DScore(&DScore{Panel: scores.Panel, C: p.C, Dot: blocks.dot, Values: blocks.valueKeys, Sub: p.Sub})
		o.Back.Outer(&Outer{Panel: outer.Panel, C: p.C, X: outer.X, XStride: p.XStride, Y: blocks.lines})
		results[i] = [4][]float32{scored.P, mixed.O, scores.P, outer.X}
	}
	for i, name := range []string{"Score", "Mix", "DScore", "Outer"} {
		sameBits(t, what+": "+name, results[0][i], results[1][i])
	}
}

// TestSizeOfBlocks checks that Size is the memory of a block, and that packing needs every element
// of it.
func TestSizeOfBlocks(t *testing.T) {
	eachPack(t, func(t *testing.T, o *Ops, pack Pack) {
		lanes := o.Shape.Lanes
		for _, d := range []int{1, 15, 16, 17, 32, 33, 70, 128} {
			for _, n := range []int{1, 15, 16, 17, 32, 33, 100} {
				keys, values := pack.NewKeys(n, d), pack.NewValues(n, d)
				lines, queries := pack.NewLines(lanes, d), pack.NewQueries(lanes, d)
				for _, c := range []struct {
					name string
					size int
					has  int // elements of its terms
					more int // float32 numbers besides the terms
				}{
					{"keys", pack.Size(Keys, n, d), len(keys.terms), 0},
					{"values", pack.Size(Values, n, d), len(values.terms), len(values.small)},
					{"lines", pack.Size(Lines, lanes, d), len(lines.terms), 0},
					{"queries", pack.Size(Queries, lanes, d), len(queries.terms), 0},
				} {
					if c.size != c.has/2+c.more || c.has%2 != 0 || c.size > 0 != (pack.size != nil) {
						t.Errorf("%d %s of %d columns: %d elements of terms and %d numbers, and Size is %d", n, c.name, d, c.has, c.more, c.size)
					}
				}
				if len(queries.Lanes()) != lanes*d {
					t.Errorf("queries of %d columns: %d numbers in lanes, want %d", d, len(queries.Lanes()), lanes*d)
				}
				if pack.size == nil {
					continue
				}
				rows := random(o, lanes, max(n, lanes), d, d).K
				for name, short := range map[string]func() func(){
					"keys": func() func() {
						pack.Keys(&keys, rows, n, d, Form{})
						keys.terms = keys.terms[1:]
						return func() { pack.Keys(&keys, rows, n, d, Form{}) }
					},
					"values": func() func() {
						pack.Values(&values, rows, n, d, Form{})
						values.terms = values.terms[1:]
						return func() { pack.Values(&values, rows, n, d, Form{}) }
					},
					"lines": func() func() {
						pack.Lines(&lines, rows, lanes, d, Form{})
						lines.terms = lines.terms[1:]
						return func() { pack.Lines(&lines, rows, lanes, d, Form{}) }
					},
					"queries": func() func() {
						pack.Queries(&queries, lanes, d, 1, Form{})
						queries.terms = queries.terms[1:]
						return func() { pack.Queries(&queries, lanes, d, 1, Form{}) }
					},
				} {
					if refused(short()) == nil {
						t.Errorf("%d %s of %d columns take fewer terms than Size says", n, name, d)
					}
				}
			}
		}
	})
}

// refused returns the value that a call panics with.
func refused(call func()) (said any) {
	defer func() { said = recover() }()
	call()
	return nil
}

// TestZeroPackAliases checks that blocks of the zero Pack have no memory of their own and no form
// changes them, and that on them a set that packs gives the bits of the set beneath.
func TestZeroPackAliases(t *testing.T) {
	none := Pack{}
	if always := none.Always(); none.Worth(Forward, 64, 1<<20, 1<<20) || always.Worth(Backward, 64, 1<<20, 1<<20) {
		t.Error("the zero Pack is worth its memory")
	}
	p := random(Go(), Go().Shape.Lanes, 40, 20, 20)
	p.packed(&none, Form{Type: BF16, Lift: true}, Form{Type: BF16, Lift: true})
	b := &p.blocks
	for name, pair := range map[string][2][]float32{
		"keys": {b.keys.rows.Data, p.K.Data}, "values": {b.values.rows.Data, p.V.Data}, "lines": {b.lines.rows.Data, p.Y.Data},
		"values as keys": {b.valueKeys.rows.Data, p.V.Data},
	} {
		if len(pair[0]) != len(pair[1]) || &pair[0][0] != &pair[1][0] {
			t.Errorf("%s do not alias their rows", name)
		}
	}
	if b.keys.terms != nil || b.values.terms != nil || b.values.small != nil || b.lines.terms != nil || b.queries.terms != nil {
		t.Error("blocks have terms")
	}
	if d := p.dscore(); d.Lift() != 0 || b.lines.lift != 0 {
		t.Errorf("gradients are lifted by 2^%d, and lines by 2^%d", d.Lift(), b.lines.lift)
	}
	for _, l := range Levels() {
		if !l.Available || !packs(l.Ops) {
			continue
		}
		base := beneath(&l)
		p := random(l.Ops, l.Ops.Shape.Lanes, 77, 50, 40)
		p.packed(&none, Form{}, Form{})
		got, want := p.copied(), p.copied()
		for i, o := range []*Ops{l.Ops, base} {
			q := []*operands{got, want}[i]
			o.Panel.Score(q.scores())
			o.Panel.Mix(q.mix())
			o.Back.DScore(q.dscore())
			o.Back.Outer(q.outer())
		}
		sameBits(t, l.ISA+": P", got.P, want.P)
		sameBits(t, l.ISA+": O", got.O, want.O)
		sameBits(t, l.ISA+": X", got.X, want.X)
	}
}

// beneath returns the loops that a set that packs uses for rows.
func beneath(l *Level) *Ops {
	for _, other := range Levels() {
		if other.Available && !packs(other.Ops) && other.Ops.Shape.Lanes == l.Ops.Shape.Lanes {
			return other.With(l.Ops.Tuning)
		}
	}
	panic("no set beneath " + l.ISA)
}

// TestLiftComesOff checks that lifting blocks does not change the bits of gradients after Outer
// where no number is small, and that the gradients of small numbers are not lost.
func TestLiftComesOff(t *testing.T) {
	eachPack(t, func(t *testing.T, o *Ops, pack Pack) {
		for _, n := range []int{1, 16, 33, 70} {
			for _, d := range []int{1, 16, 40} {
				for width := o.Shape.Vec; width <= o.Shape.Lanes; width += max(o.Shape.Vec, o.Shape.Lanes/3/o.Shape.Vec*o.Shape.Vec) {
					p := random(o, width, n, d, d)
					p.Fresh, p.Scale = false, nil
					plain := gradients(t, o, &pack, p, Form{}, Form{}, Form{})
					for bits := range 8 {
						form := func(bit int) Form { return Form{Lift: bits>>bit&1 != 0} }
						got := gradients(t, o, &pack, p, form(0), form(1), form(2))
						what := fmt.Sprintf("%d rows of %d columns, %d lanes, lifts %03b", n, d, width, bits)
						sameBits(t, what+": P", got.P, plain.P)
						sameBits(t, what+": X", got.X, plain.X)
					}
					if pack.size == nil {
						continue
					}
					// An AMX tile takes the terms of numbers as small as these as 0. Large
					// weights keep the results from being small.
					for _, s := range [][]float32{p.Dot, p.Y.Data} {
						for i := range s {
							s[i] *= 0x1p-112
						}
					}
					for i := range p.P {
						p.P[i] *= 0x1p112
					}
					clear(p.Sub)
					smallGradients(t, o, p, gradients(t, o, &pack, p, Form{Lift: true}, Form{Lift: true}, Form{Lift: true}))
				}
			}
		}
	})
}

// smallGradients compares gradients with those in float64.
func smallGradients(t *testing.T, o *Ops, p, got *operands) {
	t.Helper()
	what := fmt.Sprintf("%s: %d rows of %d columns of small numbers, %d lanes", o.ISA, p.N, p.C, p.Width)
	for j := range p.N {
		for l := range p.Width {
			terms := []float64{0, 0, 0} // tolerance for the products of terms that are left out
			for c, v := range p.V.Row(j, p.C) {
				terms = append(terms, lane(p.P, p, j, l)*float64(v)*lane(p.Dot, p, c, l))
			}
			check(t, what+": P", got.P[j*p.Lanes+l], terms...)
		}
		for c := range p.C {
			terms := []float64{0, 0, 0}
			for l := range p.Width { // twice
				terms = append(terms, 2*lane(got.P, p, j, l)*float64(p.Y.Row(l, p.C)[c]))
			}
			check(t, what+": X", got.X[j*p.XStride+c], terms...)
		}
	}
}

// gradients runs DScore and Outer on packed blocks of the operands, with lifts, and divides P by
// them. X has the result of Outer with P's lift, and without.
func gradients(t *testing.T, o *Ops, pack *Pack, p *operands, dot, values, lines Form) *operands {
	t.Helper()
	q := p.copied()
	q.Sub = slices.Clone(p.Sub)
	b := &q.blocks
	*b = blocks{valueKeys: pack.NewKeys(q.N, q.C), dot: pack.NewQueries(q.Lanes, q.C), lines: pack.NewLines(q.Lanes, q.C)}
	copy(b.dot.Lanes(), q.Dot)
	pack.Queries(&b.dot, q.Width, q.C, 1, dot)
	pack.Keys(&b.valueKeys, q.V, q.N, q.C, values)
	pack.Lines(&b.lines, q.Y, q.Width, q.C, lines)
	d := q.dscore()
	want := 0
	for _, f := range []Form{dot, values} {
		if f.Lift && pack.size != nil {
			want += 30
		}
	}
	if d.Lift() != want {
		t.Fatalf("lifted by 2^%d, want 2^%d", d.Lift(), want)
	}
	for l := range q.Sub {
		q.Sub[l] = float32(math.Ldexp(float64(q.Sub[l]), want))
	}
	o.Back.DScore(d)
	x := q.outer()
	x.Lift = want
	o.Back.Outer(x)
	for i := range q.P {
		q.P[i] = float32(math.Ldexp(float64(q.P[i]), -want))
	}
	o.Back.Outer(q.outer())
	return q
}

// TestLiftOfRows checks that gradients are not lifted where one operand is not packed.
func TestLiftOfRows(t *testing.T) {
	eachPack(t, func(t *testing.T, o *Ops, pack Pack) {
		p := random(o, o.Shape.Lanes, 40, 1, 20)
		p.packed(&pack, Form{}, Form{Lift: true})
		want := p.copied()
		o.Back.DScore(&DScore{Panel: want.Panel, C: p.C, Dot: QueryLanes(p.Dot), Values: KeyRows(p.V), Sub: p.Sub})
		for _, d := range []*DScore{
			{C: p.C, Dot: p.blocks.dot, Values: KeyRows(p.V), Sub: p.Sub},
			{C: p.C, Dot: QueryLanes(p.Dot), Values: p.blocks.valueKeys, Sub: p.Sub},
		} {
			d.Panel = p.copied().Panel
			if o.Back.DScore(d); d.Lift() != 0 {
				t.Errorf("lifted by 2^%d", d.Lift())
			}
			sameBits(t, "P", d.P, want.P)
		}
	})
}

// sameBits compares numbers bit for bit, except that all NaN are the same.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, g := range got {
		if w := want[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}
