//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"unsafe"
)

// tileLoops are the assembly loops that multiply tiles of parts.
type tileLoops struct {
	all, single partLoops // by how many parts rows of keys and values have
	hide        []hideLoop
	dscore      []dscoreLoop     // by vectors
	outer       []outerTilesLoop // of columnsAtOnce tiles of columns, by vectors
	outer1      []outerTilesLoop // of one tile
	pairs       func(to *uint16, from *float32, rows int, factor float32)
	lines       [2]cutLoop // of a vector of lanes, and of a pair
	peak        func(rounds int)
}

// partLoops are those that touch parts of keys or values: score, flash and hide by vectors, mix by tiles of columns.
type partLoops struct {
	score   []scoreLoop
	flash   []flashLoop
	mix     []mixLoop
	rows    cutLoop
	columns func(to *uint16, from *float32, rows, stride, mask int) (small int)
}

type (
	scoreLoop func(q, k *uint16, p *float32, groups, steps int, config *tileConfig)
	flashLoop func(q, k *uint16, p, m, l *float32, groups, steps int, config *tileConfig, next uintptr, by int, lo, hi *int32, key, hidden int) (done int)
	mixLoop   func(v *uint16, p, o, keep *float32, rows, by, columns, fresh int, config *tileConfig)
	hideLoop  func(p *float32, lo, hi *int32, key, rows int)
	cutLoop   func(to *uint16, from *float32, rows, stride, mask int, factor float32)

	dscoreLoop     func(dot, v *uint16, p, sub *float32, rows, steps int, config *tileConfig)
	outerTilesLoop func(p *float32, y *uint16, x *float32, rows, xby, mask int, config *tileConfig, factor float32)
)

// of are the loops for such rows.
func (t *tileLoops) of(single bool) *partLoops {
	if single {
		return &t.single
	}
	return &t.all
}

// A tileConfig says how many rows each tile has, of 64 bytes.
type tileConfig [64]byte

// tileConfigs are those whose first tiles have from 0 to 16 rows, and others 16.
func tileConfigs(first int) (all [tileRows + 1]tileConfig) {
	for rows := range all {
		c := &all[rows]
		c[0] = 1 // the only kind there is
		for t := range 8 {
			c[16+2*t], c[48+t] = 64, tileRows
			if t < first {
				c[48+t] = byte(rows)
			}
		}
	}
	return all
}

// Sums and parts of keys are the first six tiles of Score, and sums and parts of values the first five of Mix.
var scoreConfigs, mixConfigs = tileConfigs(6), tileConfigs(5)

const (
	tileSize      = tileRows * tileDepth // elements of a tile,
	partsOfTile   = 3 * tileSize         // and of its three parts
	flashAtOnce   = 128                  // rows whose scores the first cache holds until they are weights
	columnsAtOnce = 4                    // tiles of columns that Mix and Outer do at once

	// On a Xeon (family 6, model 167), d = 64 and 8 heads, 128 queries and keys take .94 of the time that they take without parts, 192 .84, and 96 would take 1.01;
	// under a causal mask 256 take .96, 384 .86, and 192 would take 1.06; 2048 with a window of 512 keys .81, of 256 .98, and of 128 1.25. 16 queries of each of 8 heads
	// that share 1024 keys take .68; but 64 of each and 64 keys would take 1.10 (60 to 6629 rounds by turns in one process).
	partsFrom = 128

	tilePeakAtOnce = 1000
	tilePeakRound  = 2 * tileRows * tileSize // operations of a round of peak, whose six products of parts are one of numbers
	tilePeakWidth  = tileSize / 6.           // multiply-adds of a cycle: a product of parts takes one for each row of a tile
)

// byTiles replaces what multiplies tiles where a panel has parts.
func (l *loops) byTiles(o *Ops, power *powerLoops) {
	t := l.tiles
	o.PeakWidth, o.PartsFrom = tilePeakWidth, partsFrom
	o.Peak = func(rounds int) int64 {
		for left := rounds; left > 0; left -= tilePeakAtOnce {
			t.peak(min(left, tilePeakAtOnce))
		}
		return tilePeakRound * int64(max(rounds, 0))
	}
	o.CutKeys = func(to []uint16, from Rows, n, d int, factor float32, single bool) Parts {
		p := Parts{Data: to, Row: 3 * up(d, tileDepth), Single: single}
		reach("keys", len(from.Data), n, d, from.Stride)
		reach("parts", len(to), 1, KeyParts(n, d), 0)
		for j := 0; j < n; j += tileRows {
			for c := 0; c < d; c += tileDepth {
				at := j*p.Row + c/tileDepth*partsOfTile
				t.of(single).rows(&to[at], &from.Data[j*from.Stride+c], min(n-j, tileRows), from.Stride, columnMask(min(d-c, tileDepth)), factor)
			}
		}
		return p
	}
	o.CutValues = func(to []uint16, small []float32, from Rows, n, d int, single bool) Parts {
		p, found := Parts{Data: to, Row: 3 * up(d, tileRows), Single: single}, 0
		reach("values", len(from.Data), n, d, from.Stride)
		reach("parts", len(to), 1, ValueParts(n, d), 0)
		reach("small", len(small), n, d, d)
		for j := 0; j < n; j += tileDepth {
			for c := 0; c < d; c += tileRows {
				found |= t.of(single).columns(&to[j*p.Row+c/tileRows*partsOfTile], &from.Data[j*from.Stride+c], min(n-j, tileDepth), from.Stride, columnMask(min(d-c, tileRows)))
			}
		}
		if found != 0 {
			p.Small, p.Columns = small[:n*d], d
			for j := range n {
				for c, x := range from.Row(j, d) {
					if x >= leastCut || x <= -leastCut || x != x {
						x = 0
					}
					if p.Small[j*d+c] = x; x != 0 {
						at := j/tileDepth*tileDepth*p.Row + c/tileRows*partsOfTile + c%tileRows*tileDepth + j%tileDepth
						to[at], to[at+tileSize], to[at+2*tileSize] = 0, 0, 0
					}
				}
			}
		}
		return p
	}
	o.CutQueries = func(p *Panel) {
		width := l.checkWidth(p)
		reach("Qt", len(p.Qt), p.D, p.Width, p.Lanes)
		reach("QtParts", len(p.QtParts), up(p.D, tileDepth)/tileDepth, width*partsOfTile, p.Lanes/l.vec*partsOfTile)
		for c := 0; c < p.D; c += tileDepth {
			for v := range width {
				at := c/tileDepth*(p.Lanes/l.vec) + v
				t.pairs(&p.QtParts[at*partsOfTile], &p.Qt[c*p.Lanes+v*l.vec], min(p.D-c, tileDepth), float32(p.FactorLeft()))
			}
		}
	}
	o.CutLines = func(to []uint16, from Rows, n, d int, factor float32) {
		lanes := l.lanes
		reach("rows", len(from.Data), n, d, from.Stride)
		reach("parts", len(to), up(d, tileRows)/tileRows, up(n, l.vec)/l.vec*partsOfTile, lanes/l.vec*partsOfTile)
		if n > lanes {
			panic(fmt.Errorf("asm/%s: %d rows for %d lanes", l.isa, n, lanes))
		}
		for c := 0; c < d; c += tileRows {
			for lane := 0; lane < n; lane += l.vec {
				at, pair := (c/tileRows*lanes+lane)/l.vec*partsOfTile, 1-up(n-lane, l.vec)/l.vec%2
				t.lines[pair](&to[at], &from.Data[lane*from.Stride+c], min(n-lane, l.vec<<pair), from.Stride, columnMask(min(d-c, tileRows)), factor)
			}
		}
	}
	score, flash, mix, dscore, outer := o.Score, o.Flash, o.Mix, o.DScore, o.Outer
	o.Score = func(p *Panel) {
		if !multiplied(p) {
			score(p)
			return
		}
		l.scoreTiles(p, 0, p.N)
	}
	o.Flash = func(p *Panel) {
		if !multiplied(p) {
			flash(p)
			return
		}
		l.checkExp(p)
		reach("Keep", len(p.Keep), 1, p.Width, 0)
		if p.Plain < p.N {
			l.checkMask(p)
		}
		l.flashTiles(power, p)
	}
	o.Mix = func(p *Panel) {
		if p.VParts.Data == nil {
			mix(p)
			return
		}
		l.mixTiles(p)
		if small := p.VParts.Small; small != nil {
			v, keep, fresh := p.V, p.Keep, p.Fresh
			p.V, p.Keep, p.Fresh = Rows{Data: small, Stride: p.VParts.Columns}, nil, false
			mix(p)
			p.V, p.Keep, p.Fresh = v, keep, fresh
		}
	}
	o.DScore = func(p *Panel) {
		if p.VLines.Data == nil || p.C == 0 {
			dscore(p)
			return
		}
		l.dscoreTiles(p)
	}
	o.Outer = func(p *Panel) {
		if p.YParts == nil {
			outer(p)
			return
		}
		l.outerTiles(p)
	}
}

// leastCut is the least number of values that has parts, as the generator has it.
const leastCut = 0x1p-60

// multiplied is whether a panel's scores are products of parts.
func multiplied(p *Panel) bool {
	return p.KParts.Data != nil && p.QtParts != nil && Normal(p.Factor)
}

// columnMask has a bit for each column.
func columnMask(columns int) int { return 1<<columns - 1 }

// checkTiles panics if the panel's slices are too short for the products of rows from one, the first of a tile, to another, and returns the vectors in use and the
// steps that its columns take.
func (l *loops) checkTiles(p *Panel, from, to int) (width, steps int) {
	width, steps = l.checkWidth(p), up(p.D, tileDepth)/tileDepth
	next := l.vectors(l.lanes)
	reach("QtParts", len(p.QtParts), steps, width*partsOfTile, next*partsOfTile)
	reach("KParts", len(p.KParts.Data), up(to, tileRows), p.KParts.Row, p.KParts.Row)
	reach("P", len(p.P), to, p.Width, p.Lanes)
	if p.KParts.Row != 3*up(p.D, tileDepth) || from%tileRows != 0 {
		panic(fmt.Errorf("asm/%s: KParts: %d elements a row of %d columns, from row %d", l.isa, p.KParts.Row, p.D, from))
	}
	return width, steps
}

// scoreTiles does rows from one to another.
func (l *loops) scoreTiles(p *Panel, from, to int) {
	width, steps := l.checkTiles(p, from, to)
	if width == 0 || steps == 0 {
		return
	}
	score, k := l.tiles.of(p.KParts.Single).score[width-1], p.KParts.Data
	step := partsAtOnce(to-from, p.D, p.Width)
	for to-from >= tileRows {
		groups := max(min(step, to-from)/tileRows, 1)
		score(&p.QtParts[0], &k[from*p.KParts.Row], &p.P[from*p.Lanes], groups, steps, &scoreConfigs[tileRows])
		from += groups * tileRows
	}
	if from < to {
		score(&p.QtParts[0], &k[from*p.KParts.Row], &p.P[from*p.Lanes], 1, steps, &scoreConfigs[to-from])
	}
}

// partsAtOnce returns how many of n rows one call multiplies by parts, whose products are so many
// columns by so many lanes.
func partsAtOnce(n, columns, lanes int) int {
	columns = up(columns, tileDepth)
	return atOnce(n, tileRows, columns*lanes, 6*columns+4*lanes, 6*columns*lanes)
}

// flashTiles does not leave: it raises references itself. Nor do vectors leave before others, since the mask hides from them all that comes after.
func (l *loops) flashTiles(power *powerLoops, p *Panel) {
	exp := power.exp
	if p.S != nil {
		exp = power.expSums
	}
	weigh := func(from, to int) {
		for p.Done = exp(p, from, to); p.Done < to; p.Done = exp(p, p.Done, to) {
			l.raise(p, min(l.keys, p.N-p.Done))
		}
	}
	most := max(partsAtOnce(p.N, p.D, p.Width)/tileRows, 1) // groups
	for from := p.From; from < p.N && p.Width > 0; {
		groups, to := min((p.N-from)/tileRows, most), min(from+flashAtOnce, p.N)
		if plain := p.Plain - from; plain > 0 && plain < groups*tileRows && plain%tileRows != 0 { // that group by itself
			groups, to = plain/tileRows, from+tileRows
		}
		if groups > 0 && p.S == nil {
			done := from + l.flashGroups(p, from, groups)
			if from += groups * tileRows; done < from { // the group's scores are there
				from = up(done+1, tileRows)
				weigh(done, from)
			}
			continue
		}
		l.scoreTiles(p, from, to)
		if first := max(from, p.Plain); first < to {
			l.tiles.hide[l.vectors(p.Width)-1](&p.P[first*p.Lanes], &p.Edit.Lo[0], &p.Edit.Hi[0], p.Edit.Key+first, to-first)
		}
		weigh(from, to)
		from = to
	}
	p.Done, p.Scored = p.N, false
}

// flashGroups does groups of rows, and returns how many rows it did.
func (l *loops) flashGroups(p *Panel, from, groups int) int {
	plain := min(max(p.Plain-from, 0)/tileRows, groups)
	width, steps := l.checkTiles(p, from, from+groups*tileRows)
	return l.tiles.of(p.KParts.Single).flash[width-1](&p.QtParts[0], &p.KParts.Data[from*p.KParts.Row], &p.P[from*p.Lanes], &p.M[0], &p.L[0], groups, steps, &scoreConfigs[tileRows],
		p.Next+uintptr(from*p.NextBy), p.NextBy, unsafe.SliceData(p.Edit.Lo), unsafe.SliceData(p.Edit.Hi), p.Edit.Key+from, groups-plain) / (4 * p.Lanes)
}

// mixTiles does a vector of lanes after another.
func (l *loops) mixTiles(p *Panel) {
	width := l.checkMix(p)
	parts := p.VParts
	reach("VParts", len(parts.Data), up(p.N, tileDepth), parts.Row, parts.Row)
	if parts.Row != 3*up(p.C, tileRows) {
		panic(fmt.Errorf("asm/%s: VParts: %d elements a row of %d columns", l.isa, parts.Row, p.C))
	}
	for v := range width {
		since, until, keep := 0, p.N, &ones[0]
		if p.Until != nil {
			since, until = p.Since[v], p.Until[v]
		}
		if p.Keep != nil {
			keep = &p.Keep[v*l.vec]
		}
		if since%tileDepth != 0 {
			panic(fmt.Errorf("asm/%s: Since is %v: it must have multiples of %d where values are cut", l.isa, p.Since, tileDepth))
		}
		for c := 0; c < p.C; {
			tiles, rows := min((p.C-c)/tileRows, columnsAtOnce), tileRows
			columns := tiles * tileRows
			if tiles == 0 {
				tiles, rows, columns = 1, p.C-c, p.C-c
			}
			var values *uint16
			var weights *float32
			if since < until { // and else there are none
				values, weights = &parts.Data[since*parts.Row+c/tileRows*partsOfTile], &p.P[since*p.Lanes+v*l.vec]
			}
			l.tiles.of(parts.Single).mix[tiles-1](values, weights, &p.O[c*p.Lanes+v*l.vec], keep, until-since, 2*tileDepth*parts.Row, columns, set(p.Fresh), &mixConfigs[rows])
			c += columns
		}
	}
}

// dscoreTiles is DScore by parts.
func (l *loops) dscoreTiles(p *Panel) {
	width, steps := l.checkWidth(p), up(p.C, tileDepth)/tileDepth
	reach("DotParts", len(p.DotParts), steps, width*partsOfTile, l.vectors(l.lanes)*partsOfTile)
	reach("VLines", len(p.VLines.Data), up(p.N, tileRows), p.VLines.Row, p.VLines.Row)
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	reach("Sub", len(p.Sub), 1, p.Width, 0)
	if p.VLines.Row != 3*up(p.C, tileDepth) {
		panic(fmt.Errorf("asm/%s: VLines: %d elements a row of %d columns", l.isa, p.VLines.Row, p.C))
	}
	step := partsAtOnce(p.N, p.C, p.Width)
	for j := 0; j < p.N && width > 0; j += step {
		l.tiles.dscore[width-1](&p.DotParts[0], &p.VLines.Data[j*p.VLines.Row], &p.P[j*p.Lanes], &p.Sub[0], min(step, p.N-j), steps, &scoreConfigs[tileRows])
	}
}

// outerTiles is Outer by parts. It reads whole vectors of lanes.
func (l *loops) outerTiles(p *Panel) {
	vectors := up(p.Width, l.vec) / l.vec
	by := p.Lanes / l.vec * partsOfTile
	reach("P", len(p.P), p.N, vectors*l.vec, p.Lanes)
	reach("YParts", len(p.YParts), up(p.C, tileRows)/tileRows, vectors*partsOfTile, by)
	reach("X", len(p.X), p.N, p.C, p.XStr)
	if p.Lanes != l.lanes || vectors*l.vec > l.lanes || p.Fresh || p.Scale != nil {
		panic(fmt.Errorf("asm/%s: parts of %d of %d lanes: they are added to what is there, as it is", l.isa, p.Width, p.Lanes))
	}
	if vectors == 0 || p.N == 0 || p.C == 0 {
		return
	}
	for c := 0; c < p.C; {
		loop, tiles := l.tiles.outer[vectors-1], columnsAtOnce
		if p.C-c <= (columnsAtOnce-1)*tileRows {
			loop, tiles = l.tiles.outer1[vectors-1], 1
		}
		columns := min(p.C-c, tiles*tileRows)
		step := partsAtOnce(p.N, columns, vectors*l.vec)
		for j := 0; j < p.N; j += step {
			loop(&p.P[j*p.Lanes], &p.YParts[c/tileRows*by], &p.X[j*p.XStr+c], min(step, p.N-j), 4*p.XStr,
				columnMask(columns-(tiles-1)*tileRows), &scoreConfigs[tileRows], p.Lower)
		}
		c += columns
	}
}
