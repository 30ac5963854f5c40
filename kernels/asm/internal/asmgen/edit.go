package asmgen

import (
	"fmt"
	"math"
)

// sweep emits the rest of a function (p *Edit, from, to int, ...). It is a loop over the vectors of
// lanes in use, and in it a loop over rows from..to, many at a time and then one. begin is emitted
// before the rows of a vector and end after them. Besides vectors, they may use count, aux, elem
// and elemAt.
func (g *gen) sweep(many int, begin func(), rows func(n int), end func()) {
	const width = stride // size of all lanes in bytes
	g.arg(panel, "p", 0)
	g.get(width, g.of("Width"))
	g.scale(width, 4)
	g.get(out, g.of("P"))
	g.arg(count, "from", 8)
	g.scale(count, g.row())
	g.offset(out, out, count, 1)
	g.set(vectorAt, 0)

	g.label("vector")
	begin()
	g.offset(rowAt, out, vectorAt, 1)
	g.arg(steps, "to", 16)
	g.arg(count, "from", 8)
	g.subtract(steps, count)
	for _, n := range []int{many, 1} {
		loop, end := fmt.Sprint("rows", n), fmt.Sprint("end", n)
		g.jumpBelow(steps, n, end)
		g.align()
		g.label(loop)
		rows(n)
		g.increase(rowAt, n*g.row())
		g.increase(steps, -n)
		g.jumpAtLeast(steps, n, loop)
		g.label(end)
	}
	end()
	g.increase(vectorAt, g.bytes())
	g.jumpLess(vectorAt, width, "vector")
	g.ret()
}

// vectorAt is the current vector of a sweep in bytes from the first lane, and rowAt the address of
// that vector in a row.
const vectorAt, rowAt = stride3, lanesAt

// swept returns the current vector of the sweep, i rows further.
func (g *gen) swept(i int) mem { return mem{base: rowAt, off: i * g.row()} }

// column returns the current vector of the sweep in a row of lanes.
func column(base reg) mem { return mem{base: base, index: vectorAt, times: 1} }

// capScores emits Ops.Cap. With n the integer nearest to 2x/ln 2 and r = x - n*(ln 2)/2,
//
//	e^2x - 1 = 2^n*(e^2r - 1) + (2^n - 1)    tanh x = (e^2x - 1) / (e^2x + 1)
//
// The polynomial for e^2r - 1 has no constant, so that a small x, where n is 0, loses nothing.
// Adding 1.5*2^23 rounds and leaves n in the low bits, which are shifted into the exponent. The
// result is off by 3.33 ulp at most (TestCap). A rational function of x, of degrees 5 and 4 in x²,
// takes four instructions fewer and is off by 4.7 ulp.
//
// From 9.02 on, tanh is 1 in float32, and so is this result. Rows are computed together because
// their dependency chains are long.
func (g *gen) capScores() {
	g.function("Cap", "(p *Edit, from, to int, scale float32)", 0, 28, g.sweptDoc(`
		x := &p.P[j*%[1]d+lane]
		*x = scale * tanh(*x)`))
	g.take(panel, lanesAt, stride, stride3, out, count, steps)
	together := 3 // as many rows as registers allow, up to 4, a divisor of 32
	if g.regs > 16 {
		together = 4
	}
	const scale = vec(0)
	g.vectors(span{"scale", scale, 1}, span{"rows", 1, 4 * together})
	g.sweep(together, func() {
		g.argFloat(scale, "scale", 24)
	}, func(n int) {
		each := func(do func(x, n, p, t vec, i int)) {
			for i := range n {
				first := vec(1 + 4*i)
				do(first, first+1, first+2, first+3, i)
			}
		}
		each(func(x, _, _, t vec, i int) {
			g.load(x, g.swept(i))
			g.load(t, capMost)
			g.min(x, t, x)
		})
		each(func(x, _, _, t vec, _ int) {
			g.load(t, capLeast)
			g.max(x, t, x)
		})
		each(func(x, n, _, _ vec, _ int) {
			g.load(n, whole)
			g.fma(n, x, capLog)
		})
		each(func(_, n, _, t vec, _ int) { g.sub(t, n, whole) })
		each(func(x, _, _, t vec, _ int) { g.fma(x, t, capLn) })
		each(func(_, n, p, _ vec, _ int) {
			g.shiftLeft(n, n, fraction)
			g.addInt(n, n, one)
			g.load(p, capCoefficient(capDegree))
		})
		for power := capDegree - 1; power > 0; power-- {
			each(func(x, _, p, t vec, _ int) {
				if (capDegree-power)%2 == 0 {
					p, t = t, p
				}
				g.load(t, capCoefficient(power))
				g.fma(t, p, x)
			})
		}
		each(func(x, n, p, t vec, _ int) { // the degree is even: t has the sum
			g.mul(t, t, x)
			g.sub(p, n, one)
		})
		each(func(_, n, p, t vec, _ int) { g.fma(p, n, t) })
		each(func(_, _, p, t vec, _ int) { g.add(t, p, two) })
		each(func(x, n, p, t vec, _ int) { g.div(n, p, t, x) })
		each(func(_, n, _, _ vec, i int) {
			g.mul(n, n, scale)
			g.store(g.swept(i), n)
		})
	}, func() {})
}

// addScores emits Ops.Add. A bias may be far larger than a score, and its product with the factor
// must not be rounded twice. So the factor is the sum of two float32 numbers, and the error of the
// product with the first is computed, negated, and subtracted:
//
//	p = b*factor    e = p - b*factor - b*rest - scale*s    result = p - e
//
// Where p is infinite, e has the other sign, or is NaN, before the score is added. It is clamped to
// finite numbers there, and is unchanged where p is finite. The output is the larger of the result
// and the least of lowest, bias and score: it is -Inf where bias or score is.
func (g *gen) addScores() {
	g.function("Add", "(p *Edit, from, to int, scale, factor, rest, lowest float32)", 0, 40, g.sweptDoc(`
		x, bias := &p.P[j*%[1]d+lane], p.Bias[j*%[1]d+lane]
		*x = max(scale*(*x) + (factor+rest)*bias, min(*x, bias, lowest))`))
	g.take(panel, lanesAt, elem, elemAt, stride, stride3, out, count, steps)
	const (
		together                   = 3
		scale, factor, rest, lower = vec(0), vec(1), vec(2), vec(3)
		lowest                     = vec(4)
		biases                     = elem
		biasAt                     = elemAt // the vector of the sweep
	)
	g.vectors(span{"scale", scale, 1}, span{"factor", factor, 1}, span{"rest", rest, 1}, span{"lower", lower, 1}, span{"lowest", lowest, 1}, span{"rows", 5, 3 * together})
	g.sweep(together, func() {
		g.argFloat(scale, "scale", 24)
		g.argFloat(factor, "factor", 28)
		g.argFloat(rest, "rest", 32)
		g.argFloat(lowest, "lowest", 36)
		g.load(lower, errorLeast)
		g.get(biases, g.of("Bias"))
		g.arg(count, "from", 8)
		g.scale(count, g.row())
		g.offset(biases, biases, count, 1)
		g.offset(biasAt, biases, vectorAt, 1)
	}, func(n int) {
		for i := range n {
			bias, product, err := vec(5+3*i), vec(6+3*i), vec(7+3*i)
			g.load(bias, mem{base: biasAt, off: i * g.row()})
			g.mul(product, bias, factor)
			g.load(err, product)
			g.fnma(err, bias, factor)
			g.fnma(err, bias, rest)
			g.larger(err, err, lower)
			g.min(err, err, errorMost)
			g.fnma(err, scale, g.swept(i))
			g.sub(product, product, err)
			g.min(bias, lowest, bias)
			g.min(bias, bias, g.swept(i))
			g.max(product, bias, product)
			g.store(g.swept(i), product)
		}
		g.increase(biasAt, n*g.row())
	}, func() {})
}

// slopeScores emits Ops.Slope. Distances decrease from row to row, exactly. The first is a
// difference of integers, since positions may be too large for a float32.
func (g *gen) slopeScores() {
	g.function("Slope", "(p *Edit, from, to int, scale float32)", 0, 28, g.sweptDoc(`
		x := &p.P[j*%[1]d+lane]
		*x = scale*(*x) + (p.SlopeHi[lane] + p.SlopeLo[lane]) * abs(p.Pos[lane]-j)`))
	g.take(panel, lanesAt, stride, stride3, out, count, steps, aux)
	const (
		high, low, abs = vec(0), vec(1), vec(2)
		distance       = vec(3) // and after it the distances of the next rows
		first          = distance + slopeRows
		scale          = first + 2*slopeRows
	)
	g.vectors(span{"high", high, 1}, span{"low", low, 1}, span{"abs", abs, 1}, span{"distances", distance, slopeRows}, span{"rows", first, 2 * slopeRows}, span{"scale", scale, 1})
	g.sweep(slopeRows, func() {
		g.argFloat(scale, "scale", 24)
		g.get(aux, g.of("SlopeHi"))
		g.load(high, column(aux))
		g.get(aux, g.of("SlopeLo"))
		g.load(low, column(aux))
		g.load(abs, absolute)
		g.get(aux, g.of("Pos"))
		g.load(distance, column(aux))
		g.arg(count, "from", 8)
		g.broadcastInt(first, count)
		g.subInt(distance, distance, first)
		g.toFloat(distance, distance)
		for i := vec(1); i < slopeRows; i++ {
			g.sub(distance+i, distance+i-1, one)
		}
	}, func(n int) {
		for i := range n {
			d, x, far := distance+vec(i), first+2*vec(i), first+2*vec(i)+1
			g.and(far, d, abs)
			g.mul(x, far, low)
			g.fma(x, far, high)
			g.fma(x, scale, g.swept(i))
			g.store(g.swept(i), x)
			if n == 1 {
				g.sub(d, d, one)
			} else {
				g.sub(d, d, slopeStep)
			}
		}
	}, func() {})
}

// slopeRows is the number of rows that Slope computes at a time.
const slopeRows = 4

// hideScores emits Ops.Hide for the rows of one row of words: from is a multiple of 32, and to is
// at most from+32.
func (g *gen) hideScores() {
	g.function("Hide", "(p *Edit, from, to int)", 0, 24, g.sweptDoc(`
		if p.Bits[from/32*%[1]d+lane]>>(j-from)&1 == 0 {
			p.P[j*%[1]d+lane] = -Inf
		}`))
	g.take(panel, lanesAt, stride, stride3, out, count, steps, aux)
	const minus, word, bit, tmp = vec(0), vec(1), vec(2), vec(3)
	const together = 4
	g.vectors(span{"minus", minus, 1}, span{"word", word, 1}, span{"bit", bit, 1}, span{"temps", tmp, 2})
	g.sweep(together, func() {
		g.load(minus, hidden)
		g.load(bit, next)
		g.get(aux, g.of("Bits"))
		g.arg(count, "from", 8)
		g.scale(count, g.row()/32)
		g.offset(aux, aux, count, 1)
		g.load(word, column(aux))
	}, func(n int) {
		for i := range n {
			g.storeUnless(g.swept(i), minus, word, bit, tmp, tmp+1)
			g.addInt(bit, bit, bit)
		}
	}, func() {})
}

// sweptDoc returns the equivalent Go of a sweep.
func (g *gen) sweptDoc(row string) string {
	return fmt.Sprintf(`
for lane := range p.Width { // %[2]d at a time
	for j := from; j < to; j++ {`+row+`
	}
}`, g.vecs*g.vec, g.vec)
}

const (
	capMost  constant = "capMost"
	capLeast constant = "capLeast"
	capLog   constant = "capLog"
	capLn    constant = "capLn"
	two      constant = "two"

	errorMost  constant = "errorMost"
	errorLeast constant = "errorLeast"
	absolute   constant = "absolute"
	slopeStep  constant = "slopeStep"
)

func (g *gen) editConstants() {
	const most = 1 << 110
	g.constant(errorMost, "more than the rounding error of a finite product", same(most))
	g.constant(errorLeast, "", same(-most))
	g.constant(absolute, "all bits but the sign", func(int) uint32 { return math.MaxInt32 })
	g.constant(slopeStep, "rows that Slope computes at a time", same(slopeRows))
	g.constant(capMost, "has a tanh of 1", same(10))
	g.constant(capLeast, "", same(-10))
	g.constant(capLog, "2/ln 2", same(2*math.Log2E))
	g.constant(capLn, "-(ln 2)/2", same(-math.Ln2/2))
	g.constant(two, "", same(2))
	for i, c := range minimax(-.5, .5, capDegree) {
		if i > 0 {
			g.constant(capCoefficient(i), fmt.Sprintf("of r^%d in e^2r", i), same(c*math.Pow(2*math.Log2E, float64(i))))
		}
	}
}

const capDegree = 6

func capCoefficient(power int) constant { return constant(fmt.Sprint("capCoefficient", power)) }
