//go:build amd64 && !purego

package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// packing returns the sets that pack operands. If there are none it skips the test and logs the
// reason.
func packing(t *testing.T) (sets []*Ops) {
	t.Helper()
	for _, l := range Levels() {
		switch {
		case l.Available && packs(l.Ops):
			sets = append(sets, l.Ops)
		case l.ISA == "amx":
			t.Skipf("SKIPPED: %s: %s", l.ISA, l.Reason)
		}
	}
	return sets
}

// bf16 returns the number that an element of terms represents.
func bf16(term uint16) float32 { return math.Float32frombits(uint32(term) << 16) }

// sumOf returns the number whose terms are stored in three AMX tiles, or in one if single, at
// element at of the first, and its largest term.
func sumOf(terms []uint16, at int, single bool) (sum float64, first float32) {
	first = bf16(terms[at])
	if single {
		return float64(first), first
	}
	for tile := range 3 {
		sum += float64(bf16(terms[at+tile*tileSize]))
	}
	return sum, first
}

// halve rounds numbers to type BF16.
func halve(x []float32) {
	for i, v := range x {
		x[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
	}
}

// placedKey, placedValue and placedQuery return the place in a block of row j, or a lane, and
// column c.
func placedKey(j, c, d int) int {
	return (j/tileRows*up(d, tileDepth)/tileDepth+c/tileDepth)*termsOfTile + j%tileRows*tileDepth + c%16*2 + c%tileDepth/16
}

func placedValue(j, c, d int) int {
	return (j/tileDepth*up(d, tileRows)/tileRows+c/tileRows)*termsOfTile + c%tileRows*tileDepth + j%tileDepth
}

func placedQuery(c, lane, lanes int) int {
	return (c/tileDepth*lanes/tileRows+lane/tileRows)*termsOfTile + c%16*tileDepth + lane%tileRows*2 + c%tileDepth/16
}

// placedLine returns the place of a lane and column c in a block of n lines, for a product that
// begins at vector from. Terms of two vectors are stored side by side. Terms of a single vector are
// stored in this order: the second before the first in one AMX tile, the first before the second in
// the next, and the third before the first in the last.
func placedLine(lane, c, from, n, lanes int) (at int, alone bool) {
	at = (c/tileRows*lanes/tileRows+from)*termsOfTile + lane%tileRows*tileDepth + c%tileRows*2
	if alone = (up(n, tileRows)/tileRows-from)%2 == 1; !alone {
		at += lane/tileRows - from
	}
	return at, alone
}

// TestTerms checks that a number is the exact sum of its terms, that an infinity or NaN has a term
// that is not finite, and that elements without a number are 0.
func TestTerms(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, 0x1p-126, 0x1.fffffep0, -0x1.fffffep-100, 0x1.00fffep0, 0x1.017ffep0}
	none := []float32{float32(math.Inf(1)), negInf, nan, math.Float32frombits(0xffffffff), math.Float32frombits(0x7f800001), math.Float32frombits(0xff80ffff)}
	for _, o := range packing(t) {
		fs := fences{}
		rng := rand.New(rand.NewPCG(7, 8))
		draw := func(x []float32) {
			for i := range x {
				switch rng.IntN(12) {
				case 0:
					x[i] = special[rng.IntN(len(special))]
				case 1:
					x[i] = none[rng.IntN(len(none))]
				default:
					x[i] = math.Float32frombits(rng.Uint32()&0x807fffff | uint32(127-40+rng.IntN(80))<<23)
				}
			}
		}
		same := func(what string, terms []uint16, at int, want float32, single bool) {
			t.Helper()
			got, first := sumOf(terms, at, single)
			switch {
			case want-want != 0 || first-first != 0: // or the first term rounds up to one
				if got-got == 0 {
					t.Fatalf("%s: %v has the terms of %v", what, want, got)
				}
			case got != float64(want):
				t.Fatalf("%s: %v has the terms of %v", what, want, got)
			}
		}
		for n := range 70 {
			for _, d := range []int{1, 2, 15, 16, 17, 31, 32, 33, 64, 80} {
				if n > 34 && d%16 != 0 {
					continue
				}
				p := random(o, o.Shape.Lanes, n, d, d)
				draw(p.K.Data)
				draw(p.V.Data)
				draw(p.Qt)
				single := n%4 == 3
				if single {
					halve(p.K.Data)
					halve(p.V.Data)
				}
				if n%3 == 0 {
					p.Width -= o.Shape.Vec * (1 + n%2)
				}
				first := n%2 == 0
				q := fs.put(t, p, first)
				what := fmt.Sprintf("%s: %d rows of %d columns", o.ISA, n, d)
				form, plain, raised := Form{Lift: n%3 != 0}, Form{}, float32(1)
				if single {
					form.Type, plain.Type = BF16, BF16
				}
				if form.Lift {
					raised = 1 << lift
				}
				factor := 1 << (n % 2)
				keys := fs.newKeys(t, o, "terms of keys", n, d, first)
				o.Pack.Keys(&keys, q.K, n, d, form)
				values := fs.newValues(t, o, n, d, first)
				o.Pack.Values(&values, q.V, n, d, plain)
				queries := fs.newQueries(t, o, "terms of queries", q.Qt, p.Width, d, first)
				o.Pack.Queries(&queries, p.Width, d, float64(factor), form)
				for j := range up(n, tileDepth) {
					for c := range up(d, tileDepth) {
						if j < n {
							x := float32(0)
							if c < d {
								x = p.K.Row(j, d)[c] * raised
							}
							same(what+": keys", keys.terms, placedKey(j, c, d), x, single)
						}
						if c < up(d, tileRows) {
							x := float32(0)
							if j < n && c < d {
								if x = p.V.Row(j, d)[c]; math.Abs(float64(x)) < leastTerm {
									if x != 0 && (values.cols != d || values.small[j*d+c] != x) {
										t.Fatalf("%s: %v has no terms, and is no small value", what, x)
									}
									x = 0
								} else if values.cols != 0 && values.small[j*d+c] != 0 {
									t.Fatalf("%s: %v is a small value", what, x)
								}
							}
							same(what+": values", values.terms, placedValue(j, c, d), x, single)
						}
					}
				}
				for c := range up(d, tileDepth) {
					for l := range p.Width {
						x := float32(0)
						if c < d {
							x = p.Qt[c*p.Lanes+l] * float32(factor) * raised
						}
						same(what+": queries", queries.terms, placedQuery(c, l, p.Lanes), x, false)
					}
				}
				if n > o.Shape.Lanes {
					continue
				}
				block := fs.newLines(t, o, up(n, o.Shape.Vec), d, first)
				o.Pack.Lines(&block, q.K, n, d, form)
				lines := block.terms
				for c := range up(d, tileRows) {
					for l := range up(n, o.Shape.Vec) {
						x := float32(0)
						if c < d && l < n {
							x = p.K.Row(l, d)[c] * raised
						}
						for from := max(l/o.Shape.Vec-1, 0); from <= l/o.Shape.Vec; from++ {
							at, alone := placedLine(l, c, from, n, o.Shape.Lanes)
							switch {
							case !alone:
								same(what+": lines", lines, at, x, false)
							case from == l/o.Shape.Vec:
								second, first, third := lines[at], lines[at+1], lines[at+2*tileSize]
								same(what+": lines", []uint16{first, tileSize: second, 2 * tileSize: third}, 0, x, false)
								if lines[at+tileSize] != first || lines[at+tileSize+1] != second || lines[at+2*tileSize+1] != first {
									t.Fatalf("%s: lines: the terms of row %d, column %d are not in place", what, l, c)
								}
							}
						}
					}
				}
			}
		}
	}
}

// terms returns memory for elements between fences, full of NaN.
func (fs fences) terms(t *testing.T, name string, elements int, first bool) []uint16 {
	if fs[name] == nil {
		fs[name] = newFence(t, 1<<16)
	}
	x := make([]uint16, elements)
	for i := range x {
		x[i] = 0x7fc0
	}
	return putIn(fs[name], x, first)
}

// newKeys, newValues, newQueries and newLines do what the methods of Pack do, with memory between
// fences. The terms end with those of the lanes in use.
func (fs fences) newKeys(t *testing.T, o *Ops, name string, n, d int, first bool) (b KeyBlock) {
	b.terms = fs.terms(t, name, 2*o.Pack.Size(Keys, n, d), first)
	return b
}

func (fs fences) newValues(t *testing.T, o *Ops, n, d int, first bool) (b ValueBlock) {
	b.terms = fs.terms(t, "terms of values", 2*(o.Pack.Size(Values, n, d)-n*d), first)
	b.small = fs.fenced(t, "small values", make([]float32, n*d), n, d, d, first)
	return b
}

func (fs fences) newQueries(t *testing.T, o *Ops, name string, lanes []float32, width, d int, first bool) QueryTile {
	unused := (o.Shape.Lanes - width) / tileRows * termsOfTile
	return QueryTile{lanes: lanes, terms: fs.terms(t, name, max(2*o.Pack.Size(Queries, o.Shape.Lanes, d)-unused, 0), first)}
}

func (fs fences) newLines(t *testing.T, o *Ops, width, d int, first bool) (b LineBlock) {
	unused := (o.Shape.Lanes - width) / tileRows * termsOfTile
	b.terms = fs.terms(t, "terms of lines", 2*o.Pack.Size(Lines, o.Shape.Lanes, d)-unused, first)
	return b
}

// pack packs the operands of the forward pass, so that products can read only the terms.
func (fs fences) pack(t *testing.T, o *Ops, p *operands, first, single bool) {
	form, b := Form{}, &p.blocks
	if single {
		form.Type = BF16
	}
	b.keys = fs.newKeys(t, o, "terms of keys", p.N, p.D, first)
	o.Pack.Keys(&b.keys, p.K, p.N, p.D, form)
	b.values = fs.newValues(t, o, p.N, p.C, first)
	o.Pack.Values(&b.values, p.V, p.N, p.C, form)
	b.queries = fs.newQueries(t, o, "terms of queries", p.Qt, p.Width, p.D, first)
	o.Pack.Queries(&b.queries, p.Width, p.D, p.Factor, form)
	b.keys.rows, b.queries.lanes = Rows{}, nil
}

// packBack packs the operands of the backward pass, which are lifted.
func (fs fences) packBack(t *testing.T, o *Ops, p *operands, rows int, first bool) {
	form, b := Form{Lift: true}, &p.blocks
	b.valueKeys = fs.newKeys(t, o, "terms of values as keys", p.N, p.C, first)
	o.Pack.Keys(&b.valueKeys, p.V, p.N, p.C, form)
	b.dot = fs.newQueries(t, o, "terms of Dot", p.Dot, p.Width, p.C, first)
	o.Pack.Queries(&b.dot, p.Width, p.C, 1, form)
	b.lines = fs.newLines(t, o, p.Width, p.C, first)
	o.Pack.Lines(&b.lines, p.Y, rows, p.C, form)
	b.valueKeys.rows, b.dot.lanes, b.lines.rows = Rows{}, nil, Rows{}
}

// TestProductsOfTerms checks that products of terms equal products of numbers within the error of
// float32, for rows, widths and columns of every length. Lanes that are not in use must stay
// unchanged.
func TestProductsOfTerms(t *testing.T) {
	for _, o := range packing(t) {
		fs := fences{}
		for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100, 128, 130} {
			for _, d := range []int{1, 5, 16, 31, 32, 33, 64, 70, 96} {
				for width := o.Shape.Vec; width <= o.Shape.Lanes; width += o.Shape.Vec {
					what := fmt.Sprintf("%s: width %d, %d keys, %d columns", o.ISA, width, n, d)
					p := random(o, width, n, d, d)
					p.Until = nil
					if (n+d)%4 == 1 && n > 32 { // stairs
						for v := range width / o.Shape.Vec {
							p.Since = append(p.Since, min(v*32, n/32*32))
							p.Until = append(p.Until, n)
						}
						p.Until[0] = max(p.Since[width/o.Shape.Vec-1], n-7)
					}
					single := (n+d)%3 == 2
					if single {
						halve(p.K.Data)
						halve(p.V.Data)
					}
					q := fs.put(t, p, n%2 == 0)
					fs.pack(t, o, q, n%2 == 0, single)
					o.Panel.Score(q.scores())
					for j := range n {
						for l := range width {
							terms := []float64{0}
							for x, k := range p.K.Row(j, d) {
								terms = append(terms, p.Factor*float64(k)*lane(p.Qt, p, x, l))
							}
							check(t, what+": P", q.P[j*p.Lanes+l], terms...)
						}
					}
					for i := range q.P { // weights
						if i%o.Shape.Lanes < width {
							q.P[i] = float32(math.Exp2(-60 * math.Abs(math.Sin(float64(i)))))
						}
					}
					before := slices.Clone(q.O)
					o.Panel.Mix(q.mix())
					for c := range d {
						for l := range width {
							since, until := 0, n
							if p.Until != nil {
								since, until = p.Since[l/o.Shape.Vec], p.Until[l/o.Shape.Vec]
							}
							terms := []float64{0}
							if !p.Fresh {
								terms[0] = float64(p.Keep[l]) * float64(before[c*p.Lanes+l])
							}
							for j := since; j < until; j++ {
								terms = append(terms, lane(q.P, p, j, l)*float64(p.V.Row(j, d)[c]))
							}
							check(t, what+": O", q.O[c*p.Lanes+l], terms...)
						}
					}
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

// TestBackwardProductsOfTerms checks what TestProductsOfTerms checks, for the backward pass, where
// operands are lifted.
func TestBackwardProductsOfTerms(t *testing.T) {
	for _, o := range packing(t) {
		fs := fences{}
		for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 130} {
			for _, d := range []int{1, 5, 15, 16, 17, 31, 32, 33, 48, 64, 70, 96} {
				for width := o.Shape.Vec; width <= o.Shape.Lanes; width += o.Shape.Vec {
					what := fmt.Sprintf("%s: width %d, %d keys, %d columns", o.ISA, width, n, d)
					p := random(o, width, n, 1, d)
					rows := width - (n+d)%o.Shape.Vec // the last lanes have no query
					p.Y.Data = p.Y.Data[:(rows-1)*p.Y.Stride+d]
					q := fs.putRows(t, p, rows, n%2 == 0)
					fs.packBack(t, o, q, rows, n%2 == 0)
					q.Fresh, q.Scale = false, nil
					dscore := q.dscore()
					if dscore.Lift() != 2*lift {
						t.Fatalf("%s: lifted by 2^%d, want 2^%d", what, dscore.Lift(), 2*lift)
					}
					raised := math.Ldexp(1, dscore.Lift())
					for l := range q.Sub {
						q.Sub[l] *= float32(raised)
					}
					o.Back.DScore(dscore)
					for j := range n {
						for l := range width {
							w := raised * lane(p.P, p, j, l)
							terms := []float64{-w * float64(p.Sub[l])}
							for c, v := range p.V.Row(j, d) {
								terms = append(terms, w*float64(v)*lane(p.Dot, p, c, l))
							}
							check(t, what+": P", q.P[j*p.Lanes+l], terms...)
						}
					}
					q.Width = rows
					before := slices.Clone(q.X)
					for j := range n {
						for l := rows; l < width; l++ {
							q.P[j*p.Lanes+l] = 1 // multiplied by 0
						}
					}
					outer := q.outer()
					if outer.Lift = dscore.Lift(); n%2 == 0 {
						outer.Lift, raised = 0, 1
					}
					o.Back.Outer(outer)
					for j := range n {
						for c := range d {
							terms := []float64{float64(before[j*p.XStride+c])}
							for l := range rows {
								terms = append(terms, lane(q.P, p, j, l)/raised*float64(p.Y.Row(l, d)[c]))
							}
							check(t, what+": X", q.X[j*p.XStride+c], terms...)
						}
					}
					for i, x := range before {
						if c := i % p.XStride; c >= d && x != q.X[i] {
							t.Fatalf("%s: X has %v beside its columns", what, q.X[i])
						}
					}
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

// putRows does what put does, for rows rows of Y.
func (fs fences) putRows(t *testing.T, p *operands, rows int, first bool) *operands {
	whole := *p
	whole.Y.Data = make([]float32, (p.Width-1)*p.Y.Stride+p.C)
	q := fs.put(t, &whole, first)
	q.Y.Data = fs.fenced(t, "Y", p.Y.Data, rows, p.C, p.Y.Stride, first)
	return q
}

// TestTermsOfNoColumns checks that products of no columns are 0, whatever the terms.
func TestTermsOfNoColumns(t *testing.T) {
	for _, o := range packing(t) {
		p := random(o, o.Shape.Lanes, 40, 1, 33)
		p.Fresh, p.Scale = false, nil
		fences{}.packBack(t, o, p, p.Lanes, true)
		weights, sums := slices.Clone(p.P), slices.Clone(p.X)
		p.C = 0
		if o.Back.Outer(p.outer()); !slices.Equal(p.X, sums) {
			t.Errorf("%s: Outer adds something", o.ISA)
		}
		o.Back.DScore(p.dscore())
		for i, x := range weights {
			check(t, o.ISA+": P", p.P[i], -float64(x)*float64(p.Sub[i%p.Lanes]))
		}
	}
}

// TestFlashOfTerms checks that Flash of packed operands gives the bits of Score of packed operands,
// a mask and the Exp of the set beneath, with Raise where a lane goes over.
func TestFlashOfTerms(t *testing.T) {
	for _, o := range packing(t) {
		fs := fences{}
		rng := rand.New(rand.NewPCG(9, 10))
		raised := 0
		for range 300 {
			width, n, d := o.Shape.Vec*(1+rng.IntN(o.Shape.Lanes/o.Shape.Vec)), 1+rng.IntN(300), 1+rng.IntN(70)
			p := random(o, width, n, d, 1)
			p.Key = rng.IntN(100)
			p.Plain = rng.IntN(n + 1)
			for l := range width {
				p.M[l], p.L[l], p.S[l], p.Keep[l] = Unset, 0, 0, 1
				p.Lo = append(p.Lo, int32(p.Key+rng.IntN(20)))
				p.Hi = append(p.Hi, int32(p.Key+n-rng.IntN(20)))
			}
			for i := range p.Qt {
				p.Qt[i] *= 30
			}
			if rng.IntN(2) == 0 {
				p.S = nil
			}
			single := rng.IntN(2) == 0
			if single {
				halve(p.K.Data)
				halve(p.V.Data)
			}
			p = fs.put(t, p, n%2 == 0)
			fs.pack(t, o, p, n%2 == 0, single)
			of := *p
			for _, s := range []*[]float32{&of.P, &of.M, &of.L, &of.S, &of.Keep} {
				*s = slices.Clone(*s)
			}
			want := of.softmax()
			o.Panel.Score(of.scores())
			mask(&of.Panel, &of.Band, p.Plain, n)
			for o.Panel.Exp(want); want.Done < n; o.Panel.Exp(want) {
				o.Panel.Raise(want)
				raised++
			}
			got := p.flash()
			if o.Panel.Flash(got); got.Done != n {
				t.Fatalf("%s: left at %d of %d", o.ISA, got.Done, n)
			}
			for name, pair := range map[string][2][]float32{"P": {p.P, of.P}, "M": {p.M, of.M}, "L": {p.L, of.L}, "S": {p.S, of.S}, "Keep": {p.Keep, of.Keep}} {
				for i, x := range pair[0] {
					if i%o.Shape.Lanes < width && x != pair[1][i] {
						t.Fatalf("%s: width %d, %d keys: %s[%d] is %v, by steps %v", o.ISA, width, n, name, i, x, pair[1][i])
					}
				}
			}
		}
		if raised < 300 {
			t.Errorf("%s: raised %d times", o.ISA, raised)
		}
	}
}

// TestShortTerms checks that blocks with one element of terms too few, or with the terms of other
// rows, panic with the block's name before AMX tiles are loaded.
func TestShortTerms(t *testing.T) {
	less := func(terms *[]uint16) { *terms = (*terms)[:len(*terms)-1] }
	lessOf := func(s *[]float32, n int) { *s = (*s)[:len(*s)-n] }
	for _, o := range packing(t) {
		score := func(p *operands) { o.Panel.Score(p.scores()) }
		flash := func(p *operands) { o.Panel.Flash(p.flash()) }
		mix := func(p *operands) { o.Panel.Mix(p.mix()) }
		dscore := func(p *operands) { o.Back.DScore(p.dscore()) }
		outer := func(p *operands) { o.Back.Outer(p.outer()) }
		keys := func(p *operands) { o.Pack.Keys(&p.blocks.keys, p.K, p.N, p.D, Form{}) }
		values := func(p *operands) { o.Pack.Values(&p.blocks.values, p.V, p.N, p.C, Form{}) }
		lines := func(p *operands) { o.Pack.Lines(&p.blocks.lines, p.Y, p.Lanes, p.C, Form{}) }
		queries := func(p *operands) {
			p.blocks.queries.lanes = p.Qt
			o.Pack.Queries(&p.blocks.queries, p.Width, p.D, 1, Form{})
		}
		for _, c := range []struct {
			name string
			edit func(p *operands)
			call func(p *operands)
		}{
			{"terms of queries", func(p *operands) { less(&p.blocks.queries.terms) }, score},
			{"terms of queries", func(p *operands) { less(&p.blocks.queries.terms) }, flash},
			{"terms of queries", func(p *operands) { less(&p.blocks.queries.terms) }, queries},
			{"lanes of queries", func(p *operands) { lessOf(&p.Qt, 1) }, queries},
			{"terms of keys", func(p *operands) { less(&p.blocks.keys.terms) }, score},
			{"terms of keys", func(p *operands) { less(&p.blocks.keys.terms) }, flash},
			{"Keys", func(p *operands) { p.blocks.keys.each-- }, score},
			{"terms of values", func(p *operands) { less(&p.blocks.values.terms) }, mix},
			{"Values", func(p *operands) { p.blocks.values.each-- }, mix},
			{"P", func(p *operands) { lessOf(&p.P, 1) }, score},
			{"P", func(p *operands) { lessOf(&p.P, 1) }, flash},
			{"P", func(p *operands) { lessOf(&p.P, 1) }, mix},
			{"Keep", func(p *operands) { lessOf(&p.Keep, 1) }, flash},
			{"O", func(p *operands) { lessOf(&p.O, 1) }, mix},
			{"terms of Dot", func(p *operands) { less(&p.blocks.dot.terms) }, dscore},
			{"terms of values", func(p *operands) { less(&p.blocks.valueKeys.terms) }, dscore},
			{"Values", func(p *operands) { p.blocks.valueKeys.each-- }, dscore},
			{"Sub", func(p *operands) { lessOf(&p.Sub, 1) }, dscore},
			{"P", func(p *operands) { lessOf(&p.P, 1) }, dscore},
			{"P", func(p *operands) { lessOf(&p.P, 1) }, outer},
			{"terms of Y", func(p *operands) { less(&p.blocks.lines.terms) }, outer},
			{"X", func(p *operands) { lessOf(&p.X, 3) }, outer},
			{"Fresh", func(p *operands) { p.Fresh = true }, outer},
			{"terms of lines", func(p *operands) { less(&p.blocks.lines.terms) }, lines},
			{"lines", func(p *operands) { lessOf(&p.Y.Data, 4) }, lines},
			{"lanes", func(p *operands) { p.blocks.lines.terms = make([]uint16, 2*len(p.blocks.lines.terms)) }, func(p *operands) {
				o.Pack.Lines(&p.blocks.lines, Rows{Data: p.Y.Data}, p.Lanes+1, p.C, Form{})
			}},
			{"Since", func(p *operands) { p.Since, p.Until = []int{0, 16, 32}, []int{64, 64, 64} }, mix},
			{"keys", func(p *operands) { lessOf(&p.K.Data, 4) }, keys},
			{"terms of keys", func(p *operands) { p.N, p.K.Stride = p.N+16, 0 }, keys},
			{"values", func(p *operands) { lessOf(&p.V.Data, 4) }, values},
			{"terms of values", func(p *operands) { p.N, p.V.Stride = p.N+32, 0 }, values},
			{"small values", func(p *operands) { lessOf(&p.blocks.values.small, 1) }, values},
		} {
			p := random(o, o.Shape.Lanes, 64, 40, 40)
			p.S, p.Fresh, p.Scale = nil, false, nil
			fs := fences{}
			fs.pack(t, o, p, true, false)
			fs.packBack(t, o, p, p.Lanes, true)
			c.edit(p)
			func() {
				defer func() {
					if err := recover(); err == nil || !strings.Contains(fmt.Sprint(err), c.name) {
						t.Errorf("%s: short %s: %v", o.ISA, c.name, err)
					}
				}()
				c.call(p)
			}()
		}
	}
}

// TestTilesOutliveSignals checks that AMX tiles are unchanged by a signal, although its handler and
// code that runs after it may use the registers. The runtime sends signals to stop goroutines.
func TestTilesOutliveSignals(t *testing.T) {
	for _, o := range packing(t) {
		fs := fences{}
		p := random(o, o.Shape.Lanes, 256, 64, 64)
		for i := range p.Qt {
			p.Qt[i] /= 8
		}
		p.Scale = nil
		fs.pack(t, o, p, true, false)
		fs.packBack(t, o, p, p.Lanes, true)
		all := func() [3][]float32 {
			p.Fresh = true
			o.Panel.Score(p.scores())
			o.Panel.Mix(p.mix())
			clear(p.X)
			p.Fresh = false
			o.Back.Outer(p.outer())
			o.Back.DScore(p.dscore())
			return [3][]float32{p.P, p.O, p.X}
		}
		var want [3][]float32
		for i, x := range all() {
			want[i] = slices.Clone(x)
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread, stop, sent := unix.Gettid(), make(chan bool), make(chan int)
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					sent <- n
					return
				default:
					if err := unix.Tgkill(unix.Getpid(), thread, unix.SIGURG); err != nil {
						t.Error(err)
					}
					n++
				}
			}
		}()
		for i := range 300 {
			for j, x := range all() {
				if !slices.Equal(x, want[j]) {
					t.Errorf("%s: other numbers in round %d", o.ISA, i)
				}
			}
		}
		close(stop)
		if n := <-sent; n < 30 {
			t.Errorf("only %d signals", n)
		}
	}
}
