//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"math"
	"unsafe"
)

// tileLoops are the assembly loops that multiply AMX tiles of terms, or split numbers into terms.
type tileLoops struct {
	all, single termLoops // for rows of three terms a number, and of one
	hide        []hideLoop
	dscore      []dscoreLoop // by vectors in use
	outer       []outerTiles // the most columns first
	lanes       func(to *uint16, from *float32, rows int, factor float32)
	lines       [2]packLoop // for a vector of lanes, and for a pair of vectors
	peak        func(rounds int)
}

// termLoops are the loops that multiply or make the terms of keys or values. score and flash are
// indexed by vectors in use, mix by AMX tiles of columns.
type termLoops struct {
	score   []scoreLoop
	flash   []flashLoop
	mix     []mixLoop
	rows    packLoop
	columns func(to *uint16, from *float32, rows, stride, mask int) (small int)
}

type (
	scoreLoop func(q, k *uint16, p *float32, groups, steps int, config *tileConfig)
	flashLoop func(q, k *uint16, p, m, l *float32, groups, steps int, config *tileConfig, next uintptr, by int, lo, hi *int32, key, hidden int) (done int)
	mixLoop   func(v *uint16, p, o, keep *float32, rows, by, columns, fresh int, config *tileConfig)
	hideLoop  func(p *float32, lo, hi *int32, key, rows int)
	packLoop  func(to *uint16, from *float32, rows, stride, mask int, factor float32)

	dscoreLoop     func(dot, v *uint16, p, sub *float32, rows, steps int, config *tileConfig)
	outerTilesLoop func(p *float32, y *uint16, x *float32, rows, xby, mask int, config *tileConfig, factor float32)
)

// of returns the loops for rows of one term a number, or of three.
func (t *tileLoops) of(single bool) *termLoops {
	if single {
		return &t.single
	}
	return &t.all
}

// outerTiles are the loops of Outer for tiles AMX tiles of columns, by vectors in use.
type outerTiles struct {
	tiles int
	loops []outerTilesLoop
}

// outerOf returns the loops for the largest number of AMX tiles that the columns fill, the last one
// at least in part.
func (t *tileLoops) outerOf(columns int) *outerTiles {
	i := 0
	for columns <= (t.outer[i].tiles-1)*tileRows {
		i++
	}
	return &t.outer[i]
}

// A tileConfig is the operand of LDTILECFG, which sets the number of rows of 64 bytes of each AMX
// tile.
type tileConfig [64]byte

// tileConfigs returns, for each number of rows from 0 to 16, the configuration in which the first
// AMX tiles have that number of rows, and the others 16.
func tileConfigs(first int) (all [tileRows + 1]tileConfig) {
	for rows := range all {
		c := &all[rows]
		c[0] = 1 // the palette, of which there is one
		for t := range 8 {
			c[16+2*t], c[48+t] = 64, tileRows
			if t < first {
				c[48+t] = byte(rows)
			}
		}
	}
	return all
}

// In Score the first six AMX tiles are sums and terms of keys; in Mix the first five are sums and
// terms of values.
var scoreConfigs, mixConfigs = tileConfigs(6), tileConfigs(5)

// An AMX tile has up to tileRows rows. Each sum of a product of AMX tiles adds tileDepth products.
const tileRows, tileDepth = 16, 32

const (
	tileSize      = tileRows * tileDepth // elements of an AMX tile
	termsOfTile   = 3 * tileSize         // elements of the AMX tiles of terms of 16 x 32 numbers
	columnsAtOnce = 4                    // AMX tiles of columns that Mix and Outer compute at once
	// flashAtOnce is a number of rows whose scores stay in the first cache until they are weights.
	flashAtOnce = 128

	tilePeakAtOnce = 1000
	// tilePeakRound is the operations of a round; six products of terms count as one product.
	tilePeakRound = 2 * tileRows * tileSize
	// tilePeakWidth is the multiply-adds in a cycle; a product of AMX tiles takes tileRows cycles.
	tilePeakWidth = tileSize / 6.
)

// setTiles replaces the loops that multiply packed blocks.
func (l *loops) setTiles(o *Ops, power *powerLoops) {
	t := l.tiles
	o.Shape.Group = max(l.keys, tileDepth)
	o.Probe.PeakWidth = tilePeakWidth
	o.Probe.Peak = func(rounds int) int64 {
		for left := rounds; left > 0; left -= tilePeakAtOnce {
			t.peak(min(left, tilePeakAtOnce))
		}
		return tilePeakRound * int64(max(rounds, 0))
	}
	o.Pack = Pack{worth: o.Tuning.packingPays, size: packedSize, keys: l.packKeys, values: l.packValues, lines: l.packLines, queries: l.packQueries}
	rows := *o // loops for blocks that are not packed
	o.Panel.Score = func(p *Scores) {
		if !p.packed() {
			rows.Panel.Score(p)
			return
		}
		l.scoreTiles(&p.Panel, &p.Product, 0, p.N)
	}
	o.Panel.Flash = func(p *Flash) {
		if !p.packed() {
			rows.Panel.Flash(p)
			return
		}
		l.checkExp(&p.Softmax)
		reach("Keep", len(p.Keep), 1, p.Width, 0)
		if p.Plain < p.N {
			l.checkBand(p)
		}
		l.flashTiles(power, p)
	}
	o.Panel.Mix = func(p *Mix) {
		if p.Values.terms == nil {
			rows.Panel.Mix(p)
			return
		}
		l.mixTiles(p)
		if v := p.Values; v.cols > 0 {
			keep, fresh := p.Keep, p.Fresh
			p.Values, p.Keep, p.Fresh = ValueRows(Rows{Data: v.small, Stride: v.cols}), nil, false
			rows.Panel.Mix(p)
			p.Values, p.Keep, p.Fresh = v, keep, fresh
		}
	}
	o.Back.DScore = func(p *DScore) {
		if !p.packed() || p.C == 0 {
			rows.Back.DScore(p)
			return
		}
		l.dscoreTiles(p)
	}
	o.Back.Outer = func(p *Outer) {
		if p.Y.terms == nil {
			rows.Back.Outer(p)
			return
		}
		l.outerTiles(p)
	}
}

// packed reports whether scores are products of packed operands.
func (p *Product) packed() bool {
	return p.Keys.terms != nil && p.Queries.terms != nil && Normal(p.Factor)
}

// packingPays implements Pack.Worth. The backward pass packs more, and columns that do not fill an
// AMX tile cost as much as if they did.
// Tuning: docs/tuning.md#packing
func (t Path) packingPays(pass Pass, d, queries, keys int) bool {
	from := t.PackFrom
	if pass == Backward {
		from = 2 * from * max(d, 64) / 64 * max(d, tileDepth) / d
	}
	return queries >= from && keys >= from
}

// packedSize implements Pack.Size: two terms are as large as a float32.
func packedSize(kind Kind, n, d int) int {
	switch kind {
	case Keys:
		return 3 * up(n, tileRows) * up(d, tileDepth) / 2
	case Values:
		return 3*up(n, tileDepth)*up(d, tileRows)/2 + n*d
	case Lines: // for each vector of lanes, its terms alone or beside those of the next vector
		return 3 * up(d, tileRows) * n
	default:
		return 3 * up(d, tileDepth) * n / 2
	}
}

// lift is the power of two by which small numbers are multiplied before they are split into terms,
// so that a product that an AMX tile flushes to 0 is less than a float32 can hold.
const lift = 30

// lifted returns the power of two by which numbers are lifted, and their factor.
func (f Form) lifted() (int, float32) {
	if f.Lift {
		return lift, 1 << lift
	}
	return 0, 1
}

// up returns n rounded up to a multiple of of.
func up(n, of int) int { return (n + of - 1) / of * of }

func (l *loops) packKeys(to *KeyBlock, n, d int, f Form) {
	factor, from := float32(0), &to.rows
	to.single, to.each = f.Type == BF16, 3*up(d, tileDepth)
	to.lift, factor = f.lifted()
	reach("keys", len(from.Data), n, d, from.Stride)
	reach("terms of keys", len(to.terms), up(n, tileRows), to.each, to.each)
	for j := 0; j < n; j += tileRows {
		for c := 0; c < d; c += tileDepth {
			at := j*to.each + c/tileDepth*termsOfTile
			l.tiles.of(to.single).rows(&to.terms[at], &from.Data[j*from.Stride+c], min(n-j, tileRows), from.Stride, columnMask(min(d-c, tileDepth)), factor)
		}
	}
}

func (l *loops) packValues(to *ValueBlock, n, d int, f Form) {
	from, found := &to.rows, 0
	to.single, to.each, to.cols = f.Type == BF16, 3*up(d, tileRows), 0
	reach("values", len(from.Data), n, d, from.Stride)
	reach("terms of values", len(to.terms), up(n, tileDepth), to.each, to.each)
	reach("small values", len(to.small), n, d, d)
	for j := 0; j < n; j += tileDepth {
		for c := 0; c < d; c += tileRows {
			found |= l.tiles.of(to.single).columns(&to.terms[j*to.each+c/tileRows*termsOfTile], &from.Data[j*from.Stride+c], min(n-j, tileDepth), from.Stride, columnMask(min(d-c, tileRows)))
		}
	}
	if found == 0 {
		return
	}
	to.cols = d
	for j := range n {
		for c, x := range from.Row(j, d) {
			if x >= leastTerm || x <= -leastTerm || x != x {
				x = 0
			}
			if to.small[j*d+c] = x; x != 0 {
				at := j/tileDepth*tileDepth*to.each + c/tileRows*termsOfTile + c%tileRows*tileDepth + j%tileDepth
				to.terms[at], to.terms[at+tileSize], to.terms[at+2*tileSize] = 0, 0, 0
			}
		}
	}
}

// packQueries splits the lanes in use into terms. The terms include the factor.
func (l *loops) packQueries(to *QueryTile, width, d int, factor float64, f Form) {
	up1, lanes := float64(1), l.lanes()
	to.each = 3 * tileDepth
	if to.lift = 0; f.Lift {
		to.lift, up1 = lift, 1<<lift
	}
	vectors := l.vectors(width)
	reach("lanes of queries", len(to.lanes), d, width, lanes)
	reach("terms of queries", len(to.terms), up(d, tileDepth)/tileDepth, vectors*termsOfTile, lanes/l.vec*termsOfTile)
	for c := 0; c < d; c += tileDepth {
		for v := range vectors {
			at := c/tileDepth*(lanes/l.vec) + v
			l.tiles.lanes(&to.terms[at*termsOfTile], &to.lanes[c*lanes+v*l.vec], min(d-c, tileDepth), float32(factor*up1))
		}
	}
}

func (l *loops) packLines(to *LineBlock, n, d int, f Form) {
	factor, lanes, from := float32(0), l.lanes(), &to.rows
	to.each = 3 * tileDepth
	to.lift, factor = f.lifted()
	reach("lines", len(from.Data), n, d, from.Stride)
	reach("terms of lines", len(to.terms), up(d, tileRows)/tileRows, up(n, l.vec)/l.vec*termsOfTile, lanes/l.vec*termsOfTile)
	if n > lanes {
		panic(fmt.Errorf("asm/%s: Lines: %d rows for %d lanes: pack at most one row for each lane", l.isa, n, lanes))
	}
	for c := 0; c < d; c += tileRows {
		for lane := 0; lane < n; lane += l.vec {
			at, pair := (c/tileRows*lanes+lane)/l.vec*termsOfTile, 1-up(n-lane, l.vec)/l.vec%2
			l.tiles.lines[pair](&to.terms[at], &from.Data[lane*from.Stride+c], min(n-lane, l.vec<<pair), from.Stride, columnMask(min(d-c, tileRows)), factor)
		}
	}
}

// leastTerm is the least magnitude of values that are split into terms. It equals asmgen's
// leastTermPower.
const leastTerm = 0x1p-60

// columnMask returns a mask with a bit for each column.
func columnMask(columns int) int { return 1<<columns - 1 }

// checkTiles panics if slices are too short for the products of rows from..to, or if row from does
// not begin an AMX tile. It returns the vectors in use, and the number of AMX tiles that the
// columns fill.
func (l *loops) checkTiles(p *Panel, of *Product, from, to int) (width, steps int) {
	width, steps = l.checkWidth(p), up(of.D, tileDepth)/tileDepth
	reach("terms of queries", len(of.Queries.terms), steps, width*termsOfTile, l.vecs*termsOfTile)
	reach("terms of keys", len(of.Keys.terms), up(to, tileRows), of.Keys.each, of.Keys.each)
	reach("P", len(p.P), to, p.Width, p.Lanes)
	if of.Keys.each != 3*up(of.D, tileDepth) || from%tileRows != 0 {
		panic(fmt.Errorf("asm/%s: Keys: %d terms in a row of %d columns, from row %d: pack them with this set's Pack", l.isa, of.Keys.each, of.D, from))
	}
	return width, steps
}

// scoreTiles computes rows from..to of P; from is a multiple of 16.
func (l *loops) scoreTiles(p *Panel, of *Product, from, to int) {
	width, steps := l.checkTiles(p, of, from, to)
	if width == 0 || steps == 0 {
		return
	}
	score, q, k := l.tiles.of(of.Keys.single).score[width-1], &of.Queries.terms[0], of.Keys.terms
	step := termsAtOnce(to-from, of.D, p.Width)
	for to-from >= tileRows {
		groups := max(min(step, to-from)/tileRows, 1)
		score(q, &k[from*of.Keys.each], &p.P[from*p.Lanes], groups, steps, &scoreConfigs[tileRows])
		from += groups * tileRows
	}
	if from < to {
		score(q, &k[from*of.Keys.each], &p.P[from*p.Lanes], 1, steps, &scoreConfigs[to-from])
	}
}

// termsAtOnce returns the number of rows, of n, that one call multiplies by terms. A row's product
// has columns columns and lanes lanes.
func termsAtOnce(n, columns, lanes int) int {
	columns = up(columns, tileDepth)
	return atOnce(n, tileRows, columns*lanes, 6*columns+4*lanes, 6*columns*lanes)
}

// flashTiles computes Flash of packed operands. It does not leave early but raises references
// itself. Vectors do not leave before others either, since the band hides the remaining keys from
// them.
func (l *loops) flashTiles(power *powerLoops, p *Flash) {
	weigh := func(from, to int) {
		for p.Done = l.exp(power, &p.Softmax, from, to); p.Done < to; p.Done = l.exp(power, &p.Softmax, p.Done, to) {
			l.panel.raise(&p.Softmax, min(l.keys, p.N-p.Done))
		}
	}
	most := max(termsAtOnce(p.N, p.D, p.Width)/tileRows, 1) // groups
	for from := p.From; from < p.N && p.Width > 0; {
		groups, to := min((p.N-from)/tileRows, most), min(from+flashAtOnce, p.N)
		if plain := p.Plain - from; plain > 0 && plain < groups*tileRows && plain%tileRows != 0 {
			groups, to = plain/tileRows, from+tileRows // the group that Plain is in goes alone
		}
		if groups > 0 && p.S == nil {
			done := from + l.flashGroups(p, from, groups)
			if from += groups * tileRows; done < from { // the group holds its scores
				from = up(done+1, tileRows)
				weigh(done, from)
			}
			continue
		}
		l.scoreTiles(&p.Panel, &p.Product, from, to)
		if first := max(from, p.Plain); first < to {
			l.tiles.hide[l.vectors(p.Width)-1](&p.P[first*p.Lanes], &p.Lo[0], &p.Hi[0], p.Key+first, to-first)
		}
		weigh(from, to)
		from = to
	}
	p.Done, p.Scored = p.N, false
}

// flashGroups computes groups groups of 16 rows, and returns the number of rows that it finished.
func (l *loops) flashGroups(p *Flash, from, groups int) int {
	plain := min(max(p.Plain-from, 0)/tileRows, groups)
	width, steps := l.checkTiles(&p.Panel, &p.Product, from, from+groups*tileRows)
	return l.tiles.of(p.Keys.single).flash[width-1](&p.Queries.terms[0], &p.Keys.terms[from*p.Keys.each], &p.P[from*p.Lanes], &p.M[0], &p.L[0], groups, steps, &scoreConfigs[tileRows],
		p.At+uintptr(from*p.By), p.By, unsafe.SliceData(p.Lo), unsafe.SliceData(p.Hi), p.Key+from, groups-plain) / (4 * p.Lanes)
}

// mixTiles computes Mix of packed operands, one vector of lanes after another.
func (l *loops) mixTiles(p *Mix) {
	width, v := l.checkMix(p), &p.Values
	reach("terms of values", len(v.terms), up(p.N, tileDepth), v.each, v.each)
	if v.each != 3*up(p.C, tileRows) {
		panic(fmt.Errorf("asm/%s: Values: %d terms in a row of %d columns: pack them with this set's Pack", l.isa, v.each, p.C))
	}
	for i := range width {
		since, until, keep := 0, p.N, &ones[0]
		if p.Until != nil {
			since, until = p.Since[i], p.Until[i]
		}
		if p.Keep != nil {
			keep = &p.Keep[i*l.vec]
		}
		if since%tileDepth != 0 {
			panic(fmt.Errorf("asm/%s: Since is %v: it must have multiples of %d where values are packed", l.isa, p.Since, tileDepth))
		}
		for c := 0; c < p.C; {
			tiles, rows := min((p.C-c)/tileRows, columnsAtOnce), tileRows
			columns := tiles * tileRows
			if tiles == 0 {
				tiles, rows, columns = 1, p.C-c, p.C-c
			}
			var values *uint16
			var weights *float32
			if since < until { // some rows
				values, weights = &v.terms[since*v.each+c/tileRows*termsOfTile], &p.P[since*p.Lanes+i*l.vec]
			}
			l.tiles.of(v.single).mix[tiles-1](values, weights, &p.O[c*p.Lanes+i*l.vec], keep, until-since, 2*tileDepth*v.each, columns, indicator(p.Fresh), &mixConfigs[rows])
			c += columns
		}
	}
}

// dscoreTiles computes DScore of packed operands.
func (l *loops) dscoreTiles(p *DScore) {
	width, steps, v := l.checkPanel(&p.Panel), up(p.C, tileDepth)/tileDepth, &p.Values
	reach("terms of Dot", len(p.Dot.terms), steps, width*termsOfTile, l.vecs*termsOfTile)
	reach("terms of values", len(v.terms), up(p.N, tileRows), v.each, v.each)
	reach("Sub", len(p.Sub), 1, p.Width, 0)
	if v.each != 3*up(p.C, tileDepth) {
		panic(fmt.Errorf("asm/%s: Values: %d terms in a row of %d columns: pack them with this set's Pack", l.isa, v.each, p.C))
	}
	step := termsAtOnce(p.N, p.C, p.Width)
	for j := 0; j < p.N && width > 0; j += step {
		l.tiles.dscore[width-1](&p.Dot.terms[0], &v.terms[j*v.each], &p.P[j*p.Lanes], &p.Sub[0], min(step, p.N-j), steps, &scoreConfigs[tileRows])
	}
}

// outerTiles computes Outer of packed operands. It reads whole vectors of lanes.
func (l *loops) outerTiles(p *Outer) {
	vectors, lower := up(p.Width, l.vec)/l.vec, float32(math.Ldexp(1, -p.Lift-p.Y.lift))
	by := p.Lanes / l.vec * termsOfTile
	reach("P", len(p.P), p.N, vectors*l.vec, p.Lanes)
	reach("terms of Y", len(p.Y.terms), up(p.C, tileRows)/tileRows, vectors*termsOfTile, by)
	reach("X", len(p.X), p.N, p.C, p.XStride)
	if p.Lanes != l.lanes() || vectors > l.vecs || p.Fresh || p.Keep != nil || p.Scale != nil {
		panic(fmt.Errorf("asm/%s: Y is packed, for %d of %d lanes: want rows of %d lanes, and neither Fresh, Keep nor Scale", l.isa, p.Width, p.Lanes, l.lanes()))
	}
	if vectors == 0 || p.N == 0 || p.C == 0 {
		return
	}
	for c := 0; c < p.C; {
		of := l.tiles.outerOf(p.C - c)
		loop, columns := of.loops[vectors-1], min(p.C-c, of.tiles*tileRows)
		step := termsAtOnce(p.N, columns, vectors*l.vec)
		for j := 0; j < p.N; j += step {
			loop(&p.P[j*p.Lanes], &p.Y.terms[c/tileRows*by], &p.X[j*p.XStride+c], min(step, p.N-j), 4*p.XStride,
				columnMask(columns-(of.tiles-1)*tileRows), &scoreConfigs[tileRows], lower)
		}
		c += columns
	}
}
