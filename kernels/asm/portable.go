package asm

import (
	"math"
	"unsafe"
)

// Portable returns the loops in plain Go, for tiles of any geometry. They round every product
// (float32(a*b)+c), so that a compiler that would fuse the two gives the same bits.
//
// The loops that matter keep eight accumulators: eight lanes, or four lanes of two keys. With a
// broadcast element and the operands in flight, these fit the sixteen registers that Go's compiler
// has for floats; twelve would spill. The third index of p[at:at+8:at+8] tells the compiler that
// the slice is not empty.
// Tuning: docs/tuning.md#portable
func Portable(lanes, vec, keys, cols, rank int) *Ops {
	o := &Ops{
		ISA:   "go",
		Shape: Shape{Lanes: lanes, Vec: vec, Keys: keys, Cols: cols, Rank: rank, Group: keys},
		ulps:  .54,
		Panel: PanelOps{
			Score: score,
			Exp:   func(p *Softmax) { exp(p, keys) },
			Flash: func(p *Flash) { flash(p, keys, vec) },
			Raise: func(p *Softmax) { raise(p, keys) },
			Top:   top,
			Mix:   func(p *Mix) { mix(p, vec) },
		},
		Edit:   EditOps{Cap: capRows, Add: addRows, Slope: slopeRows, Hide: hideRows},
		Back:   BackOps{DScore: dscore, Outer: outer, OuterT: outerT, Inner: inner},
		Recur:  RecurOps{Solve: solve, Step: step, Fade: fade, Products: runningProducts},
		Decode: DecodeOps{Dot: dot, Weigh: weigh, Sum: sum},
		Vector: VectorOps{Load: load, Store: store, Rotate: rotate, Widen: widen, Narrow: narrow, Finite: finite, Inverse: inverse, Elu: elu, Exp: expOf, Scale: scaleRows, Times: times, Over: over},
		Probe:  ProbeOps{Peak: peak, PeakWidth: float64(vec), Chain: chain, Slots: slots, Read: read, Update: update},
	}
	o.Streamed = o
	return o
}

// Go returns the portable loops in the geometry that suits them best: eight lanes, and tiles of any
// width.
func Go() *Ops { return Portable(8, 1, 8, 1, 1) }

func load(m *Move) {
	factor := m.factor()
	for lane := range m.Rows {
		for c, x := range m.Outside.Row(lane, m.D) {
			m.Tile[c*m.Lanes+lane] = float32(float64(x) * factor)
		}
	}
	for c := 0; c < m.D && m.Rows < m.Width; c++ {
		clear(m.Tile[c*m.Lanes:][m.Rows:m.Width])
	}
}

// factor returns the factor of Load.
func (m *Move) factor() float64 {
	if m.Factor == 0 {
		return 1
	}
	return m.Factor
}

func store(m *Move) bool {
	zero := float32(0)
	for lane := range m.Rows {
		s := m.Scale[lane]
		out := m.Outside.Row(lane, m.D)
		for c := range out {
			out[c] = m.Tile[c*m.Lanes+lane] * s
			zero += out[c] * 0
		}
	}
	return zero == 0
}

func inverse(to, from []float32) bool {
	zero := float32(0)
	for i, x := range from {
		to[i] = 1 / x
		if to[i] > math.MaxFloat32 {
			to[i] = 0
		}
		zero += x * 0
	}
	return zero == 0
}

func inner(to []float32, x, y Rows, d int) {
	clear(to)
	for i := 0; i < len(to) && d > 0; i++ {
		to[i] = product(x.Row(i, d), y.Row(i, d))
	}
}

func score(p *Scores) { scoreRows(&p.Panel, &p.Product, 0, p.N) }

// scoreRows computes the scores of rows from..to. It applies the factor to the finished sum in
// float64, so that it costs one rounding.
func scoreRows(p *Panel, of *Product, from, to int) {
	qt := of.Queries.lanes
	for j := from; j < to; j++ {
		k, row := of.Keys.rows.Row(j, of.D), p.P[j*p.Lanes:][:p.Width]
		lane := 0
		for ; lane+8 <= p.Width; lane += 8 {
			dot8((*[8]float32)(row[lane:]), k, qt, lane, p.Lanes, of.Factor)
		}
		for ; lane < p.Width; lane++ {
			s, at := float32(0), lane
			for _, x := range k {
				s += float32(qt[at] * x)
				at += p.Lanes
			}
			row[lane] = float32(float64(s) * of.Factor)
		}
	}
}

// dot8 computes r[i] = f Σ_x k[x] qt[x*stride+at+i].
func dot8(r *[8]float32, k, qt []float32, at, stride int, f float64) {
	var a0, a1, a2, a3, a4, a5, a6, a7 float32
	for _, x := range k {
		q := (*[8]float32)(qt[at : at+8 : at+8])
		a0 += float32(q[0] * x)
		a1 += float32(q[1] * x)
		a2 += float32(q[2] * x)
		a3 += float32(q[3] * x)
		a4 += float32(q[4] * x)
		a5 += float32(q[5] * x)
		a6 += float32(q[6] * x)
		a7 += float32(q[7] * x)
		at += stride
	}
	r[0], r[1], r[2], r[3] = float32(float64(a0)*f), float32(float64(a1)*f), float32(float64(a2)*f), float32(float64(a3)*f)
	r[4], r[5], r[6], r[7] = float32(float64(a4)*f), float32(float64(a5)*f), float32(float64(a6)*f), float32(float64(a7)*f)
}

// mask hides the rows from..to that a lane may not see. It works lane by lane, so that it stores
// hidden scores only.
func mask(p *Panel, b *Band, from, to int) {
	if from >= to {
		return
	}
	for lane := range p.Width {
		lo := min(max(int(b.Lo[lane])-b.Key, from), to)
		hi := min(max(int(b.Hi[lane])-b.Key, lo), to)
		hide(p, lane, from, lo)
		hide(p, lane, hi, to)
	}
}

// hide hides rows from..to from a lane.
func hide(p *Panel, lane, from, to int) {
	for at := from*p.Lanes + lane; at < to*p.Lanes; at += p.Lanes {
		p.P[at] = negInf
	}
}

func exp(p *Softmax, keys int) { p.Done = expRows(p, keys, p.From, p.N) }

// expRows turns scores of rows from..to into weights, group by group. It returns the first row that
// it did not process.
func expRows(p *Softmax, keys, from, to int) (done int) {
	for ; from < to; from += keys {
		if !expGroup(p, 0, from, min(from+keys, to)) {
			return from
		}
	}
	return to
}

func flash(p *Flash, keys, vec int) {
	lane := 0 // first lane that has not left
	for j := p.From; j < p.N; j += keys {
		for p.Until != nil && lane < p.Width && p.Until[lane/vec] <= j {
			lane += vec
		}
		end := min(j+keys, p.N)
		if !p.Scored {
			scoreRows(&p.Panel, &p.Product, j, end)
			mask(&p.Panel, &p.Band, max(j, p.Plain), end)
		}
		p.Scored = false
		if expGroup(&p.Softmax, lane, j, end) {
			continue
		}
		if seed(&p.Softmax, lane, j, end); !expGroup(&p.Softmax, lane, j, end) {
			p.Done = j
			return
		}
	}
	p.Done = p.N
}

// seed makes M the largest score of a group in lanes lane..Width that have seen no key. Raise would
// give the same result, as all that it scales is 0 there. Lanes with a sum that is not 0 are left
// to Raise.
func seed(p *Softmax, lane, from, to int) {
	for ; lane < p.Width; lane++ {
		if p.M[lane] != Unset || p.L[lane] != 0 {
			continue
		}
		for at := from*p.Lanes + lane; at < to*p.Lanes; at += p.Lanes {
			if x := p.P[at]; x > p.M[lane] {
				p.M[lane] = x
			}
		}
	}
}

// expGroup turns the scores of one group of rows into weights in lanes first..Width. If a lane goes
// over its limit, it reports false and leaves all scores as they are.
func expGroup(p *Softmax, first, from, to int) bool {
	for lane := first; lane < p.Width; lane++ {
		limit := p.M[lane] + Limit
		for at := from*p.Lanes + lane; at < to*p.Lanes; at += p.Lanes {
			if p.P[at] > limit {
				return false
			}
		}
	}
	for lane := first; lane < p.Width; lane++ {
		ref, sum, sumZ := p.M[lane], float32(0), float32(0)
		for at := from*p.Lanes + lane; at < to*p.Lanes; at += p.Lanes {
			z := p.P[at]
			e := exp2(float64(z) - float64(ref))
			p.P[at] = e
			sum += e
			if p.S != nil && e != 0 { // 0*-Inf
				sumZ += float32(e * z)
			}
		}
		p.L[lane] += sum
		if p.S != nil {
			p.S[lane] += sumZ
		}
	}
	return true
}

func top(p *Softmax) {
	m := p.M[:p.Width]
	for j := range p.N {
		for lane, x := range p.P[j*p.Lanes:][:len(m)] {
			if x > m[lane] {
				m[lane] = x
			}
		}
	}
}

func raise(p *Softmax, keys int) {
	const far, least = 126, 0x1p-100
	from, to := p.Done*p.Lanes, min(p.Done+keys, p.N)*p.Lanes
	for lane := range p.Width {
		m := p.M[lane]
		top := m
		for at := from + lane; at < to; at += p.Lanes {
			if x := p.P[at]; x > top {
				top = x
			}
		}
		if !(top > m+Limit) {
			continue
		}
		f := float32(0)
		if d := top - m; d > far {
			p.M[lane] = top
		} else {
			k := math.RoundToEven(float64(d))
			f, p.M[lane] = float32(math.Ldexp(1, -int(k))), m+float32(k)
		}
		p.L[lane] *= f
		if p.S != nil {
			p.S[lane] *= f
		}
		p.Keep[lane] *= f
		for j := range p.Done {
			w := &p.P[j*p.Lanes+lane]
			if *w *= f; *w < least {
				*w = 0
			}
		}
	}
	p.From, p.Scored = p.Done, true
}

// finite reports whether a row has neither NaN nor infinities: no exponent is all ones. It checks
// two numbers at a time, as every output is checked.
func finite(row []float32) bool {
	const (
		exponents = 0x7f800000_7f800000
		one       = 0x00800000_00800000 // carries out of an exponent that is all ones
		carries   = 0x80000000_80000000
	)
	var bad uint64
	if len(row) > 0 && uintptr(unsafe.Pointer(&row[0]))%8 != 0 {
		bad |= uint64(math.Float32bits(row[0]))&exponents + one
		row = row[1:]
	}
	if len(row)%2 != 0 {
		bad |= uint64(math.Float32bits(row[len(row)-1]))&exponents + one
		row = row[:len(row)-1]
	}
	if len(row) > 0 {
		for _, pair := range unsafe.Slice((*uint64)(unsafe.Pointer(&row[0])), len(row)/2) {
			bad |= pair&exponents + one
		}
	}
	return bad&carries == 0
}

// mix computes Mix. Keys of even and of odd index have separate sums, each with half the roundings.
func mix(p *Mix, vec int) {
	v := &p.Values.rows
	for from, to := 0, 0; from < p.Width; from = to { // lanes that use the same rows
		first, n := 0, p.N
		if to = p.Width; p.Until != nil {
			first, n = p.Since[from/vec], p.Until[from/vec]
			for to = from + vec; to < p.Width && p.Since[to/vec] == first && p.Until[to/vec] == n; {
				to += vec
			}
		}
		for c := range p.C {
			row := p.O[c*p.Lanes:][:to]
			switch {
			case p.Fresh:
				clear(row[from:])
			case p.Keep != nil:
				for lane := from; lane < to; lane++ {
					row[lane] *= p.Keep[lane]
				}
			}
			lane := from
			for ; lane+4 <= to; lane += 4 {
				mix4((*[4]float32)(row[lane:]), p.P, first*p.Lanes+lane, p.Lanes, v.Data, first*v.Stride+c, v.Stride, n-first)
			}
			for ; lane < to; lane++ {
				var s [2]float32
				for j := first; j < n; j++ {
					s[j%2] += float32(p.P[j*p.Lanes+lane] * v.Data[j*v.Stride+c])
				}
				row[lane] += s[0] + s[1]
			}
		}
	}
}

// mix4 computes o[i] += Σ_j p[j*ps+at+i] v[j*vs+c].
func mix4(o *[4]float32, p []float32, at, ps int, v []float32, c, vs, n int) {
	var a0, a1, a2, a3, b0, b1, b2, b3 float32
	for ; n >= 2; n -= 2 {
		q, x := (*[4]float32)(p[at:at+4:at+4]), v[c]
		a0 += float32(q[0] * x)
		a1 += float32(q[1] * x)
		a2 += float32(q[2] * x)
		a3 += float32(q[3] * x)
		at += ps
		c += vs
		q, x = (*[4]float32)(p[at:at+4:at+4]), v[c]
		b0 += float32(q[0] * x)
		b1 += float32(q[1] * x)
		b2 += float32(q[2] * x)
		b3 += float32(q[3] * x)
		at += ps
		c += vs
	}
	if n > 0 {
		q, x := (*[4]float32)(p[at:at+4:at+4]), v[c]
		a0 += float32(q[0] * x)
		a1 += float32(q[1] * x)
		a2 += float32(q[2] * x)
		a3 += float32(q[3] * x)
	}
	o[0] += a0 + b0
	o[1] += a1 + b1
	o[2] += a2 + b2
	o[3] += a3 + b3
}

func dscore(p *DScore) {
	dot := p.Dot.lanes
	for j := range p.N {
		row, v := p.P[j*p.Lanes:][:p.Width], p.Values.rows.Row(j, p.C)
		for lane := range row {
			s, at := float32(0), lane
			for _, x := range v {
				s += float32(dot[at] * x)
				at += p.Lanes
			}
			row[lane] *= s - p.Sub[lane]
		}
	}
}

func outer(p *Outer) {
	p.mustBePlain()
	if p.C == 0 {
		return
	}
	for j := range p.N {
		x := p.X[j*p.XStride:][:p.C]
		if p.Fresh {
			clear(x)
		} else if p.Keep != nil {
			multiply(x, p.Keep[j])
		}
		accumulate(x, p.P[j*p.Lanes:][:p.Width], p.Y.rows)
		if p.Scale != nil {
			multiply(x, p.Scale[j])
		}
	}
}

func multiply(x []float32, by float32) {
	for c := range x {
		x[c] *= by
	}
}

func outerT(p *Outer) {
	p.mustBePlain()
	if p.C == 0 {
		return
	}
	for j := range p.N {
		if x := p.X[j*p.XStride:][:p.C]; p.Fresh {
			clear(x)
		} else if p.Keep != nil {
			multiply(x, p.Keep[j])
		}
	}
	for lane := range p.Width {
		y := p.Y.rows.Row(lane, p.C)
		for j, w := range p.P[lane*p.Lanes:][:p.N] {
			x := p.X[j*p.XStride:][:len(y)]
			for c := range y {
				x[c] += float32(w * y[c])
			}
		}
	}
	for j := 0; j < p.N && p.Scale != nil; j++ {
		multiply(p.X[j*p.XStride:][:p.C], p.Scale[j])
	}
}

func expOf(to, from []float32) {
	for i, x := range from {
		to[i] = float32(math.Exp(float64(x)))
	}
}

// elu computes Elu. It computes e^x directly, since e^x-1, plus 1, would cancel.
func elu(to, from []float32, _ uintptr) {
	for i, x := range from {
		if x <= 0 {
			to[i] = float32(math.Exp(float64(x)))
		} else {
			to[i] = x + 1
		}
	}
}
