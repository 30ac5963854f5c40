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

// cutting are the sets that multiply parts of numbers. It skips the test, and says why, where there are none.
func cutting(t *testing.T) (sets []*Ops) {
	t.Helper()
	for _, l := range Levels() {
		switch {
		case l.Available && l.Ops.CutKeys != nil:
			sets = append(sets, l.Ops)
		case l.ISA == "amx":
			t.Skipf("SKIPPED: %s: %s", l.ISA, l.Reason)
		}
	}
	return sets
}

// bf16 is the number that an element of parts is.
func bf16(part uint16) float32 { return math.Float32frombits(uint32(part) << 16) }

// sumOf is the number whose parts stand in three tiles, or a single one, at an element of the first one, and its largest part.
func sumOf(parts []uint16, at int, single bool) (sum float64, first float32) {
	first = bf16(parts[at])
	if single {
		return float64(first), first
	}
	for tile := range 3 {
		sum += float64(bf16(parts[at+tile*tileSize]))
	}
	return sum, first
}

// halve makes numbers of type BF16 of some.
func halve(x []float32) {
	for i, v := range x {
		x[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
	}
}

// placed are where the layouts of keys, values and queries have row j, column c of d columns, or of lanes.
func placedKey(j, c, d int) int {
	return (j/tileRows*up(d, tileDepth)/tileDepth+c/tileDepth)*partsOfTile + j%tileRows*tileDepth + c%16*2 + c%tileDepth/16
}

func placedValue(j, c, d int) int {
	return (j/tileDepth*up(d, tileRows)/tileRows+c/tileRows)*partsOfTile + c%tileRows*tileDepth + j%tileDepth
}

func placedQuery(c, lane, lanes int) int {
	return (c/tileDepth*lanes/tileRows+lane/tileRows)*partsOfTile + c%16*tileDepth + lane%tileRows*2 + c%tileDepth/16
}

// placedLine is where the parts of row lane, column c of so many rows lie that Outer multiplies, from a vector on, and in which order they stand beside one another
// there if they are those of a vector alone: the second before the first in a tile, the first before the second in the next, and the third before the first in
// the last.
func placedLine(lane, c, from, n, lanes int) (at int, alone bool) {
	at = (c/tileRows*lanes/tileRows+from)*partsOfTile + lane%tileRows*tileDepth + c%tileRows*2
	if alone = (up(n, tileRows)/tileRows-from)%2 == 1; !alone {
		at += lane/tileRows - from
	}
	return at, alone
}

// A number is the sum of its parts, which nothing rounds, and an infinity or NaN has a part that is no number; what no number stands for is 0.
func TestParts(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, 0x1p-126, 0x1.fffffep0, -0x1.fffffep-100, 0x1.00fffep0, 0x1.017ffep0}
	none := []float32{float32(math.Inf(1)), negInf, nan, math.Float32frombits(0xffffffff), math.Float32frombits(0x7f800001), math.Float32frombits(0xff80ffff)}
	for _, o := range cutting(t) {
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
		same := func(what string, parts []uint16, at int, want float32, single bool) {
			t.Helper()
			got, first := sumOf(parts, at, single)
			switch {
			case want-want != 0 || first-first != 0: // also where the largest one rounds up to an infinity
				if got-got == 0 {
					t.Fatalf("%s: %v has the parts of %v", what, want, got)
				}
			case got != float64(want):
				t.Fatalf("%s: %v has the parts of %v", what, want, got)
			}
		}
		for n := range 70 {
			for _, d := range []int{1, 2, 15, 16, 17, 31, 32, 33, 64, 80} {
				if n > 34 && d%16 != 0 {
					continue
				}
				p := random(o, o.Lanes, n, d, d)
				draw(p.K.Data)
				draw(p.V.Data)
				draw(p.Qt)
				single := n%4 == 3
				if single {
					halve(p.K.Data)
					halve(p.V.Data)
				}
				p.Factor, p.Scaled = 1, n%2 == 0
				if n%3 == 0 {
					p.Width -= o.Vec * (1 + n%2)
				}
				q := fs.put(t, p, n%2 == 0)
				room := func(name string, elements int) []uint16 { return fs.parts(t, name, elements, n%2 == 0) }
				what := fmt.Sprintf("%s: %d rows of %d columns", o.ISA, n, d)
				small := make([]float32, n*d)
				factor := float32(int(1) << (n % 3 * 12))
				keys := o.CutKeys(room("KeyParts", KeyParts(n, d)), q.K, n, d, factor, single)
				values := o.CutValues(room("ValueParts", ValueParts(n, d)), small, q.V, n, d, single)
				q.QtParts = room("QtParts", QueryParts(d, o.Lanes))
				o.CutQueries(q)
				for j := range up(n, tileDepth) {
					for c := range up(d, tileDepth) {
						if j < n {
							x := float32(0)
							if c < d {
								x = p.K.Row(j, d)[c] * factor
							}
							same(what+": keys", keys.Data, placedKey(j, c, d), x, single)
						}
						if c < up(d, tileRows) {
							x := float32(0)
							if j < n && c < d {
								if x = p.V.Row(j, d)[c]; math.Abs(float64(x)) < leastCut {
									if x != 0 && (values.Small == nil || values.Small[j*d+c] != x) {
										t.Fatalf("%s: %v has no parts, and is no small one", what, x)
									}
									x = 0
								} else if values.Small != nil && values.Small[j*d+c] != 0 {
									t.Fatalf("%s: %v is a small one", what, x)
								}
							}
							same(what+": values", values.Data, placedValue(j, c, d), x, single)
						}
					}
				}
				for c := range up(d, tileDepth) {
					for l := range p.Width {
						x := float32(0)
						if c < d {
							x = p.Qt[c*p.Lanes+l]
						}
						same(what+": queries", q.QtParts, placedQuery(c, l, p.Lanes), x, false)
					}
				}
				if n > o.Lanes {
					continue
				}
				lines := room("Lines", LineParts(d, o.Lanes)-(o.Lanes-up(n, o.Vec))/tileRows*partsOfTile)
				o.CutLines(lines, q.K, n, d, factor)
				for c := range up(d, tileRows) {
					for l := range up(n, o.Vec) {
						x := float32(0)
						if c < d && l < n {
							x = p.K.Row(l, d)[c] * factor
						}
						for from := max(l/o.Vec-1, 0); from <= l/o.Vec; from++ {
							at, alone := placedLine(l, c, from, n, o.Lanes)
							switch {
							case !alone:
								same(what+": lines", lines, at, x, false)
							case from == l/o.Vec:
								second, first, third := lines[at], lines[at+1], lines[at+2*tileSize]
								same(what+": lines", []uint16{first, tileSize: second, 2 * tileSize: third}, 0, x, false)
								if lines[at+tileSize] != first || lines[at+tileSize+1] != second || lines[at+2*tileSize+1] != first {
									t.Fatalf("%s: lines: the parts of row %d, column %d are not in place", what, l, c)
								}
							}
						}
					}
				}
			}
		}
	}
}

// parts is room for so many elements between fences, full of NaN.
func (fs fences) parts(t *testing.T, name string, elements int, first bool) []uint16 {
	if fs[name] == nil {
		fs[name] = newFence(t, 1<<16)
	}
	x := make([]uint16, elements)
	for i := range x {
		x[i] = 0x7fc0
	}
	return putIn(fs[name], x, first)
}

// cut gives a panel the parts of its operands.
func (fs fences) cut(t *testing.T, o *Ops, p *Panel, first, single bool) {
	p.KParts = o.CutKeys(fs.parts(t, "KParts", KeyParts(p.N, p.D), first), p.K, p.N, p.D, 1, single)
	p.VParts = o.CutValues(fs.parts(t, "VParts", ValueParts(p.N, p.C), first), make([]float32, p.N*p.C), p.V, p.N, p.C, single)
	p.QtParts = fs.parts(t, "QtParts", QueryParts(p.D, p.Lanes), first)
	o.CutQueries(p)
}

// cutBack gives it those of the backward pass.
func (fs fences) cutBack(t *testing.T, o *Ops, p *Panel, rows int, first bool) {
	p.VLines = o.CutKeys(fs.parts(t, "VLines", KeyParts(p.N, p.C), first), p.V, p.N, p.C, 4, false)
	p.DotParts = fs.parts(t, "DotParts", QueryParts(p.C, p.Lanes), first)
	o.CutQueries(&Panel{Lanes: p.Lanes, Width: p.Width, D: p.C, Factor: 2, Qt: p.Dot, QtParts: p.DotParts})
	p.YParts = fs.parts(t, "YParts", LineParts(p.C, p.Lanes)-(p.Lanes-p.Width)/tileRows*partsOfTile, first)
	o.CutLines(p.YParts, p.Y, rows, p.C, 2)
	p.Lower = .5
}

// Products of parts are those of numbers, as near as float32 has them, from rows, widths and columns of every length; and what lies beside the lanes in use stays
// as it was.
func TestProductsOfParts(t *testing.T) {
	for _, o := range cutting(t) {
		fs := fences{}
		for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100, 128, 130} {
			for _, d := range []int{1, 5, 16, 31, 32, 33, 64, 70, 96} {
				for width := o.Vec; width <= o.Lanes; width += o.Vec {
					what := fmt.Sprintf("%s: width %d, %d keys, %d columns", o.ISA, width, n, d)
					p := random(o, width, n, d, d)
					p.Until = nil
					if (n+d)%4 == 1 && n > 32 { // stairs
						for v := range width / o.Vec {
							p.Since = append(p.Since, min(v*32, n/32*32))
							p.Until = append(p.Until, n)
						}
						p.Until[0] = max(p.Since[width/o.Vec-1], n-7)
					}
					single := (n+d)%3 == 2
					if single {
						halve(p.K.Data)
						halve(p.V.Data)
					}
					q := fs.put(t, p, n%2 == 0)
					fs.cut(t, o, q, n%2 == 0, single)
					o.Score(q)
					for j := range n {
						for l := range width {
							terms := []float64{0}
							for x, k := range p.K.Row(j, d) {
								terms = append(terms, p.FactorLeft()*float64(k)*lane(p.Qt, p, x, l))
							}
							check(t, what+": P", q.P[j*p.Lanes+l], terms...)
						}
					}
					for i := range q.P { // weights
						if i%o.Lanes < width {
							q.P[i] = float32(math.Exp2(-60 * math.Abs(math.Sin(float64(i)))))
						}
					}
					before := slices.Clone(q.O)
					o.Mix(q)
					for c := range d {
						for l := range width {
							since, until := 0, n
							if p.Until != nil {
								since, until = p.Since[l/o.Vec], p.Until[l/o.Vec]
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

// So are those of the backward pass.
func TestBackwardProductsOfParts(t *testing.T) {
	for _, o := range cutting(t) {
		fs := fences{}
		for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 130} {
			for _, d := range []int{1, 5, 15, 16, 17, 31, 32, 33, 48, 64, 70, 96} {
				for width := o.Vec; width <= o.Lanes; width += o.Vec {
					what := fmt.Sprintf("%s: width %d, %d keys, %d columns", o.ISA, width, n, d)
					p := random(o, width, n, 1, d)
					rows := width - (n+d)%o.Vec // the last lanes have no query
					p.Y.Data = p.Y.Data[:(rows-1)*p.Y.Stride+d]
					p.Fresh, p.Scale = false, nil
					q := fs.put(t, p, n%2 == 0)
					q.Y.Data = fs["Y"].put(p.Y.Data, n%2 == 0)
					fs.cutBack(t, o, q, rows, n%2 == 0)
					q.V, q.Y, q.Dot = Rows{}, Rows{}, nil
					o.DScore(q)
					for j := range n {
						for l := range width {
							w := lane(p.P, p, j, l)
							terms := []float64{-w * float64(p.Sub[l])}
							for c, v := range p.V.Row(j, d) {
								terms = append(terms, w*8*float64(v)*lane(p.Dot, p, c, l))
							}
							check(t, what+": P", q.P[j*p.Lanes+l], terms...)
						}
					}
					q.Width = rows
					before := slices.Clone(q.X)
					for j := range n {
						for l := rows; l < width; l++ {
							q.P[j*p.Lanes+l] = 1 // times 0
						}
					}
					o.Outer(q)
					for j := range n {
						for c := range d {
							terms := []float64{float64(before[j*p.XStr+c])}
							for l := range rows {
								terms = append(terms, lane(q.P, p, j, l)*float64(p.Y.Row(l, d)[c]))
							}
							check(t, what+": X", q.X[j*p.XStr+c], terms...)
						}
					}
					for i, x := range before {
						if c := i % p.XStr; c >= d && x != q.X[i] {
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

// Where there are no columns there are no products, whatever parts there are.
func TestPartsOfNoColumns(t *testing.T) {
	for _, o := range cutting(t) {
		p := random(o, o.Lanes, 40, 1, 33)
		p.Fresh, p.Scale = false, nil
		fences{}.cutBack(t, o, p, p.Lanes, true)
		weights, sums := slices.Clone(p.P), slices.Clone(p.X)
		p.C = 0
		if o.Outer(p); !slices.Equal(p.X, sums) {
			t.Errorf("%s: Outer adds something", o.ISA)
		}
		o.DScore(p)
		for i, x := range weights {
			check(t, o.ISA+": P", p.P[i], -float64(x)*float64(p.Sub[i%p.Lanes]))
		}
	}
}

// Flash by parts is Score by parts, a mask and the Exp of the set beneath, with what Raise is for done on the way.
func TestFlashOfParts(t *testing.T) {
	for _, o := range cutting(t) {
		fs := fences{}
		rng := rand.New(rand.NewPCG(9, 10))
		raised := 0
		for range 300 {
			width, n, d := o.Vec*(1+rng.IntN(o.Lanes/o.Vec)), 1+rng.IntN(300), 1+rng.IntN(70)
			p := random(o, width, n, d, 1)
			p.Edit.Key = rng.IntN(100)
			p.Plain = rng.IntN(n + 1)
			for l := range width {
				p.M[l], p.L[l], p.S[l], p.Keep[l] = Unset, 0, 0, 1
				p.Edit.Lo = append(p.Edit.Lo, int32(p.Edit.Key+rng.IntN(20)))
				p.Edit.Hi = append(p.Edit.Hi, int32(p.Edit.Key+n-rng.IntN(20)))
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
			fs.cut(t, o, p, n%2 == 0, single)
			want := *p
			for _, s := range []*[]float32{&want.P, &want.M, &want.L, &want.S, &want.Keep} {
				*s = slices.Clone(*s)
			}
			o.Score(&want)
			mask(&want, p.Plain, n)
			for o.Exp(&want); want.Done < n; o.Exp(&want) {
				o.Raise(&want)
				raised++
			}
			if o.Flash(p); p.Done != n {
				t.Fatalf("%s: left at %d of %d", o.ISA, p.Done, n)
			}
			for name, pair := range map[string][2][]float32{"P": {p.P, want.P}, "M": {p.M, want.M}, "L": {p.L, want.L}, "S": {p.S, want.S}, "Keep": {p.Keep, want.Keep}} {
				for i, x := range pair[0] {
					if i%o.Lanes < width && x != pair[1][i] {
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

// What has parts of one element too few, or of other rows than the panel's, is refused by name before tiles are loaded.
func TestShortParts(t *testing.T) {
	for _, o := range cutting(t) {
		for _, c := range []struct {
			name string
			edit func(p *Panel)
			call func(p *Panel)
		}{
			{"QtParts", func(p *Panel) { p.QtParts = p.QtParts[:len(p.QtParts)-1] }, o.Score},
			{"QtParts", func(p *Panel) { p.QtParts = p.QtParts[:len(p.QtParts)-1] }, o.Flash},
			{"QtParts", func(p *Panel) { p.QtParts = p.QtParts[:len(p.QtParts)-1] }, o.CutQueries},
			{"KParts", func(p *Panel) { p.KParts.Data = p.KParts.Data[:len(p.KParts.Data)-1] }, o.Score},
			{"KParts", func(p *Panel) { p.KParts.Data = p.KParts.Data[:len(p.KParts.Data)-1] }, o.Flash},
			{"KParts", func(p *Panel) { p.KParts.Row-- }, o.Score},
			{"VParts", func(p *Panel) { p.VParts.Data = p.VParts.Data[:len(p.VParts.Data)-1] }, o.Mix},
			{"VParts", func(p *Panel) { p.VParts.Row-- }, o.Mix},
			{"P", func(p *Panel) { p.P = p.P[:len(p.P)-1] }, o.Score},
			{"P", func(p *Panel) { p.P = p.P[:len(p.P)-1] }, o.Flash},
			{"P", func(p *Panel) { p.P = p.P[:len(p.P)-1] }, o.Mix},
			{"Keep", func(p *Panel) { p.Keep = p.Keep[:len(p.Keep)-1] }, o.Flash},
			{"O", func(p *Panel) { p.O = p.O[:len(p.O)-1] }, o.Mix},
			{"DotParts", func(p *Panel) { p.DotParts = p.DotParts[:len(p.DotParts)-1] }, o.DScore},
			{"VLines", func(p *Panel) { p.VLines.Data = p.VLines.Data[:len(p.VLines.Data)-1] }, o.DScore},
			{"VLines", func(p *Panel) { p.VLines.Row-- }, o.DScore},
			{"Sub", func(p *Panel) { p.Sub = p.Sub[:len(p.Sub)-1] }, o.DScore},
			{"P", func(p *Panel) { p.P = p.P[:len(p.P)-1] }, o.DScore},
			{"P", func(p *Panel) { p.P = p.P[:len(p.P)-1] }, o.Outer},
			{"YParts", func(p *Panel) { p.YParts = p.YParts[:len(p.YParts)-1] }, o.Outer},
			{"X", func(p *Panel) { p.X = p.X[:len(p.X)-3] }, o.Outer},
			{"as it is", func(p *Panel) { p.Fresh = true }, o.Outer},
			{"parts", func(p *Panel) { p.YParts = p.YParts[1:] }, func(p *Panel) { o.CutLines(p.YParts, p.Y, p.Lanes, p.C, 1) }},
			{"rows", func(p *Panel) { p.Y.Data = p.Y.Data[:len(p.Y.Data)-4] }, func(p *Panel) { o.CutLines(p.YParts, p.Y, p.Lanes, p.C, 1) }},
			{"lanes", func(p *Panel) { p.YParts = make([]uint16, 2*len(p.YParts)) }, func(p *Panel) { o.CutLines(p.YParts, Rows{Data: p.Y.Data}, p.Lanes+1, p.C, 1) }},
			{"Since", func(p *Panel) { p.Since, p.Until = []int{0, 16, 32}, []int{64, 64, 64} }, o.Mix},
			{"keys", func(p *Panel) { p.K.Data = p.K.Data[:len(p.K.Data)-4] }, func(p *Panel) { o.CutKeys(p.KParts.Data, p.K, p.N, p.D, 1, false) }},
			{"parts", func(p *Panel) { p.N += 16 }, func(p *Panel) { o.CutKeys(p.KParts.Data, Rows{Data: p.K.Data}, p.N, p.D, 1, false) }},
			{"values", func(p *Panel) { p.V.Data = p.V.Data[:len(p.V.Data)-4] }, func(p *Panel) { o.CutValues(p.VParts.Data, nil, p.V, p.N, p.C, false) }},
			{"parts", func(p *Panel) { p.N += 32 }, func(p *Panel) { o.CutValues(p.VParts.Data, nil, Rows{Data: p.V.Data}, p.N, p.C, false) }},
		} {
			p := random(o, o.Lanes, 64, 40, 40)
			p.S, p.Fresh, p.Scale = nil, false, nil
			fs := fences{}
			fs.cut(t, o, p, true, false)
			fs.cutBack(t, o, p, p.Lanes, true)
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

// Tiles are the same after a signal, whose handler, and whoever runs after it, may use the registers: the runtime sends them to stop goroutines.
func TestTilesOutliveSignals(t *testing.T) {
	for _, o := range cutting(t) {
		fs := fences{}
		p := random(o, o.Lanes, 256, 64, 64)
		fs.cut(t, o, p, true, false)
		fs.cutBack(t, o, p, p.Lanes, true)
		for i := range p.Qt {
			p.Qt[i] /= 8
		}
		all := func() [3][]float32 {
			p.Fresh, p.Scale = true, nil
			o.Score(p)
			o.Mix(p)
			clear(p.X)
			p.Fresh = false
			o.Outer(p)
			o.DScore(p)
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
					t.Errorf("%s: other numbers in turn %d", o.ISA, i)
				}
			}
		}
		close(stop)
		if n := <-sent; n < 30 {
			t.Errorf("only %d signals", n)
		}
	}
}
