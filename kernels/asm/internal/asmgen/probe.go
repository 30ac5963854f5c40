package asmgen

import "fmt"

// peak emits the probe of multiply-adds: independent chains, enough of them to hide the latency.
func (g *gen) peak() {
	g.function("Peak", "(rounds int, x *float32)", 0, 16, fmt.Sprintf(`
var sum [%d][%d]float32
for range rounds {
	for i := range sum {
		sum[i] = fma(x[0], x[1], sum[i])
	}
}`, g.chains, g.vec))
	g.take(lanes, count)
	g.arg(count, "rounds", 0)
	x, y := vec(g.chains), vec(g.chains+1)
	g.vectors(span{"sums", 0, g.chains}, span{"x", x, 1}, span{"y", y, 1})
	g.arg(lanes, "x", 8)
	g.broadcast(x, mem{base: lanes})
	g.broadcast(y, mem{base: lanes, off: 4})
	for i := range g.chains {
		g.zero(vec(i))
	}
	g.align()
	g.label("round")
	for i := range g.chains {
		g.fma(vec(i), x, y)
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "round")
	g.ret()
}

// touchAhead is the distance in bytes at which the probe of bandwidth touches a line of each page,
// so that the CPU has translated the page's address in time. More than one touch a page would cost
// cached reads as much as it gains reads from memory.
// Tuning: docs/tuning.md#probe-pages
const (
	touchAhead = 28 << 10
	page       = 4 << 10
)

// read emits the probe of bandwidth for one reading, which prefetches ahead bytes ahead. It returns
// a sum of all elements, so that no read can be left out.
func (g *gen) read() {
	g.function("Read"+g.reading.name, "(x *float32, rounds, ahead int, sum *float32)", 0, 32, fmt.Sprintf(`
for i := range %d * rounds {
	sum[i%%%d] += x[i]
}`, g.reads*g.vec, g.vec))
	g.take(lanes, out, count, steps, aux)
	g.arg(lanes, "x", 0)
	g.arg(count, "rounds", 8)
	g.arg(aux, "ahead", 16)
	g.vectors(span{"sums", 0, g.reads})
	for i := range g.reads {
		g.zero(vec(i))
	}
	g.label("page")
	g.prefetch(mem{base: lanes, off: touchAhead})
	g.set(steps, page/(g.reads*g.bytes()))
	g.align()
	g.label("round")
	g.probeLines()
	for i := range g.reads {
		g.add(vec(i), vec(i), mem{base: lanes, vectors: i})
	}
	g.step(lanes, g.reads)
	g.increase(count, -1)
	g.jumpBelow(count, 1, "read")
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "round")
	g.jump("page")
	g.label("read")
	for n := g.reads / 2; n > 0; n /= 2 {
		for i := range n {
			g.add(vec(i), vec(i), vec(i+n))
		}
	}
	g.arg(out, "sum", 24)
	at := mem{base: out}
	g.add(0, 0, at)
	g.store(at, 0)
	g.ret()
}

// update emits the probe of a pass that reads and writes memory, for one reading.
func (g *gen) update() {
	g.function("Update"+g.reading.name, "(x *float32, rounds, ahead int)", 0, 24, fmt.Sprintf(`
for i := range %d * rounds {
	x[i] *= 1
}`, g.reads*g.vec))
	g.take(lanes, count, steps, aux)
	g.arg(lanes, "x", 0)
	g.arg(count, "rounds", 8)
	g.arg(aux, "ahead", 16)
	ones := vec(g.reads)
	g.vectors(span{"numbers", 0, g.reads}, span{"ones", ones, 1})
	g.load(ones, one)
	g.label("page")
	g.prefetch(mem{base: lanes, off: touchAhead})
	g.set(steps, page/(g.reads*g.bytes()))
	g.align()
	g.label("round")
	g.probeLines()
	for i := range g.reads {
		g.mul(vec(i), ones, mem{base: lanes, vectors: i})
	}
	for i := range g.reads {
		g.store(mem{base: lanes, vectors: i}, vec(i))
	}
	g.step(lanes, g.reads)
	g.increase(count, -1)
	g.jumpBelow(count, 1, "done")
	g.increase(steps, -1)
	g.jumpAtLeast(steps, 1, "round")
	g.jump("page")
	g.label("done")
	g.ret()
}

// probeLines prefetches the lines of a round ahead, where the reading's probes do.
func (g *gen) probeLines() {
	if g.macros != nil {
		fmt.Fprintf(g.text, "#ifdef %s\n", probedMacro)
	}
	for off := 0; off < g.reads*g.bytes() && g.reading.probed; off += line {
		g.prefetchRead(mem{base: lanes, index: aux, times: 1, off: off})
	}
	if g.macros != nil {
		g.text.WriteString("#endif\n")
	}
}

// chainLength is the number of additions in a round of the chain, and chainPass the number in one
// pass of its loop. They are large, so that the loop's own instructions take a negligible part of
// the time, even while a sibling thread is busy.
const chainLength, chainPass = 512, 128

// chain emits the probe of the clock: additions that wait for one another. They add a register, as
// some CPUs fold additions of constants. Some CPUs lower the clock for wide multiply-adds, and for
// a while after them. So a few multiply-adds run beside the additions, without delaying them.
// Tuning: docs/tuning.md#probe-chain
func (g *gen) chain() {
	const apart = 32
	g.function("Chain", "(rounds int)", 0, 8, fmt.Sprintf(`
for range rounds {
	x += 1 // %d times, each a cycle after the one before
	sum[i] = fma(sum[i], sum[i], sum[i]) // once in %d additions
}`, chainLength, apart))
	g.take(elem, count, aux)
	g.arg(count, "rounds", 0)
	g.scale(count, chainLength/chainPass)
	x, y := elem, aux
	g.set(x, 0)
	g.set(y, 1)
	g.besides()
	g.align()
	g.label("pass")
	for i := range chainPass {
		g.plus(x, y)
		if i%apart == 0 {
			g.beside(i / apart)
		}
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "pass")
	g.ret()
}

// besides prepares the multiply-adds that run beside the instructions of chain and slots. beside
// emits one of them.
func (g *gen) besides() {
	g.vectors(span{"sums", 0, g.chains})
	for i := range g.chains {
		g.zero(vec(i))
	}
}

func (g *gen) beside(i int) {
	sum := vec(i % g.chains)
	g.fma(sum, sum, sum)
}

// slotsLength is the number of instructions in a round of slots, and slotsPass the number in one
// pass of its loop. Both include the loop's own two: an addition, and a comparison that a CPU fuses
// with its jump.
const slotsLength, slotsPass = 504, 126

// slots emits the probe of how many instructions a CPU starts in a cycle: four additions, then two
// copies, none of which waits for another. A busy sibling thread takes a share of these slots, even
// where multiply-adds alone would not be slowed. Multiply-adds run beside them, as in chain.
func (g *gen) slots() {
	const apart = 42
	g.function("Slots", "(rounds int)", 0, 8, fmt.Sprintf(`
for range rounds {
	x[i] += y // four times, then
	z[i] = y // twice; with those of the loop, %d instructions in all
	sum[i] = fma(sum[i], sum[i], sum[i]) // once in %d instructions
}`, slotsLength, apart))
	g.take(lanes, lanesAt, elem, elemAt, elemAt4, stride, stride3, out, count, steps, aux, nextRow)
	g.arg(count, "rounds", 0)
	x, y, z := []reg{lanes, lanesAt, elem, elemAt, stride, stride3, out, steps}, aux, []reg{elemAt4, nextRow}
	for _, x := range x {
		g.set(x, 0)
	}
	g.set(y, 1)
	g.scale(count, slotsLength/slotsPass)
	g.besides()
	g.align()
	g.label("pass")
	for i := range slotsPass - 2 {
		switch period, in := i/6, i%6; {
		case i%apart == 0:
			g.beside(i / apart)
		case in < 4:
			g.plus(x[(4*period+in)%len(x)], y)
		default:
			g.move(z[in-4], y)
		}
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "pass")
	g.ret()
}
