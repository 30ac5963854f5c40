package asmgen

import (
	"fmt"
	"math/bits"
)

// neon is tuned for cores with two to four pipes that multiply, add, shift and compare, and with
// two or three loads a cycle. A multiply-add takes four cycles, so 16 accumulators, 4 vectors of
// lanes by 4 rows, keep four pipes busy. With 4 registers for lanes and 4 for elements, 8 are left
// for the weights of Flash. These instructions compete with products, so their number decides the
// speed.
//
// Elements are loaded four at a time, and fma multiplies by one of them in its register. So 16
// multiply-adds take 5 loads and no broadcast.
//
// Alternatives: 3 vectors by 8 rows need 35 registers; 5 by 4 leave 3 registers, and few lengths
// are multiples of their 20 lanes; 6 by 4 leave none.
// Tuning: docs/tuning.md#neon
var neon = &target{
	name: "neon", arch: "arm64", vec: 4, vecs: 4, spell: newARM,
	registerFile: registerFile{regs: 31, roles: armRegs},
	tables:       tables{degree: 6},
	probes:       probes{chains: 24, reads: 8},
	traits:       traits{byElement: true, pooled: true},
	rows:         4, cols: []int{16, 8, 4, 4}, queries: 4, wide: 3, storeLanes: 4,
	powers:   []power{{way: "Series", ulps: "1", emit: (*gen).exp2Series, constants: (*gen).seriesConstants}},
	readings: []reading{{"NonTemporal", "PLDL1STRM", true}},
}

// armSets are the instruction sets of arm64.
var armSets = []*target{neon}

// arm spells NEON. Go writes the destination last. Its assembler lacks the arithmetic of float
// vectors except VFMLA and VFMLS. The missing instructions are WORDs, with a comment in the
// spelling of later assemblers; TestWords checks one against the other. The instruction decides
// whether a vector register is written V or F.
type arm struct{ *file }

func newARM(f *file) isa { return arm{f} }

// R18 belongs to the system, R27 to the assembler, R28 is g and R29 the frame pointer; R16 and R17
// are the linker's.
var armRegs = map[reg]string{
	panel: "R0", lanes: "R1", weightsAt: "R1", lanesAt: "R2", elem: "R3", elemAt: "R4", elemAt4: "R5", stride: "R6", stride3: "R7", out: "R8", count: "R9",
	steps: "R10", aux: "R11", refs: "R11", nextRow: "R12", products: "R13", pause: "R24",
	columns: "R15", rowsLeft: "R19", apart: "R20", apart3: "R21", outStride: "R22", refsOf: "R23", lead: "R24", leadAt: "R25", leadBy: "R25", resultAt: "R21", factors: "R21",
}

const (
	address       = "R14" // address of an operand that no addressing mode computes
	constants     = "R26" // address of the constants
	fetched   vec = 31    // an operand from memory; nests do not use this register
)

func (a arm) v(v vec) string   { return fmt.Sprintf("V%d", a.number(v)) }
func (a arm) f(v vec) string   { return fmt.Sprintf("F%d", a.number(v)) }
func (a arm) s4(v vec) string  { return a.v(v) + ".S4" }
func (a arm) b16(v vec) string { return a.v(v) + ".B16" }

// m returns an operand in memory. If it has an index, m first emits instructions that compute the
// address.
func (a arm) m(m mem) string {
	base := a.register(m.base)
	if m.times != 0 {
		a.emit("ADD", a.shifted(m.index, m.times), base, address)
		base = address
	}
	switch off := m.off + m.vectors*a.bytes(); {
	case m.field != "":
		return fmt.Sprintf("(%s)(%s)", m.field, base)
	case off != 0:
		return fmt.Sprintf("%d(%s)", off, base)
	}
	return "(" + base + ")"
}

func (a arm) shifted(n reg, by int) string {
	if by == 1 {
		return a.register(n)
	}
	return fmt.Sprintf("%s<<%d", a.register(n), bits.TrailingZeros(uint(by)))
}

// in returns a register with the operand. It emits a load first if the operand is not in a
// register.
func (a arm) in(o operand) vec {
	if v, ok := o.(vec); ok {
		return v
	}
	a.load(fetched, o)
	return fetched
}

// word emits an instruction on float vectors that the assembler lacks. code is the instruction with
// V0 as every operand.
func (a arm) word(code uint32, op string, dst, x, y vec) {
	code |= uint32(y)<<16 | uint32(x)<<5 | uint32(dst)
	a.emit(fmt.Sprintf("WORD $%#x // %s %s, %s, %s", code, op, a.s4(y), a.s4(x), a.s4(dst)))
}

// unary emits an instruction that converts vectors from one arrangement to another.
func (a arm) unary(code uint32, op string, src vec, from string, dst vec, to string) {
	a.emit(fmt.Sprintf("WORD $0x%08x // %s %s.%s, %s.%s", code|uint32(src)<<5|uint32(dst), op, a.v(src), from, a.v(dst), to))
}

func (a arm) widen(dst vec, m mem, c cells) {
	switch c {
	case f16, bf16:
		a.emit("FMOVD", a.m(m), a.f(dst))
	case i8:
		a.emit("FMOVS", a.m(m), a.f(dst))
	}
	a.convert(dst, c)
}

// convert converts the cells at the beginning of a register to floats.
func (a arm) convert(v vec, c cells) {
	switch c {
	case f16:
		a.unary(0x0e217800, "VFCVTL", v, "H4", v, "S4")
	case bf16:
		a.unary(0x2e613800, "VSHLL $16,", v, "H4", v, "S4")
	case i8:
		a.unary(0x0f08a400, "VSXTL", v, "B8", v, "H8")
		a.unary(0x0f10a400, "VSXTL", v, "H4", v, "S4")
		a.toFloat(v, v)
	}
}

func (a arm) widenOne(dst vec, m mem, c cells) {
	kind := ".H[0]"
	if c == i8 {
		kind = ".B[0]"
	}
	a.zero(dst)
	a.emit("VLD1", a.m(m), a.v(dst)+kind)
	a.convert(dst, c)
}

func (a arm) narrow(m mem, src, _ vec) {
	a.unary(0x0e216800, "VFCVTN", src, "S4", src, "H4")
	a.emit("FMOVD", a.f(src), a.m(m))
}

func (a arm) storeHigh(m mem, src, _ vec) {
	h8 := a.v(src) + ".H8"
	a.emit("VUZP2", h8, h8, h8)
	a.emit("FMOVD", a.f(src), a.m(m))
}

func (a arm) gatherFour(dst vec, at, stride, stride3 reg) {
	a.loadOne(dst, mem{base: at})
	for i := 1; i < 4; i++ {
		a.emit("VLD1", a.m(row(at, stride, stride3, i, 0)), fmt.Sprintf("%s.S[%d]", a.v(dst), i))
	}
}

func (a arm) load(dst vec, from operand) {
	switch from := from.(type) {
	case mem:
		a.emit("FMOVQ", a.m(from), a.f(dst))
	case constant:
		a.setup = fmt.Sprintf("\tMOVD $%s<>(SB), %s\n", pool, constants)
		a.emit("FMOVQ", fmt.Sprintf("%d(%s)", a.places[from], constants), fmt.Sprintf("%s // %s", a.f(dst), from))
	case vec:
		a.emit("VMOV", a.b16(from), a.b16(dst))
	}
}

func (a arm) fma(acc, x vec, y operand) {
	if e, ok := y.(element); ok {
		i := uint32(e.at)
		code := 0x4f801000 | i>>1<<11 | i&1<<21 | uint32(e.of)<<16 | uint32(x)<<5 | uint32(acc)
		a.emit(fmt.Sprintf("WORD $%#x // VFMLA %s.S[%d], %s, %s", code, a.v(e.of), i, a.s4(x), a.s4(acc)))
		return
	}
	a.emit("VFMLA", a.s4(a.in(y)), a.s4(x), a.s4(acc))
}

func (a arm) fnma(acc, x vec, y operand) { a.emit("VFMLS", a.s4(a.in(y)), a.s4(x), a.s4(acc)) }

func (a arm) toFloat(dst, x vec) {
	a.unary(0x4e21d800, "VSCVTF", x, "S4", dst, "S4")
}

func (a arm) loadPair(dst vec, m mem)  { a.emit("FMOVD", a.m(m), a.f(dst)) }
func (a arm) storePair(m mem, src vec) { a.emit("FMOVD", a.f(src), a.m(m)) }
func (a arm) swapPairs(dst, x vec)     { a.emit("VREV64", a.s4(x), a.s4(dst)) }
func (a arm) loadTwice(dst vec, m mem) {
	a.loadPair(dst, m)
	a.emit("VZIP1", a.s4(dst), a.s4(dst), a.s4(dst))
}

func (a arm) storeUnless(m mem, src, word, bit, tmp, tmp2 vec) {
	a.emit("VCMTST", a.s4(bit), a.s4(word), a.s4(tmp))
	a.load(tmp2, m)
	a.emit("VBIF", a.b16(tmp), a.b16(src), a.b16(tmp2))
	a.store(m, tmp2)
}

func (a arm) argFloat(dst vec, name string, at int) {
	a.emit("FMOVS", fmt.Sprintf("%s+%d(FP)", name, at), a.f(dst))
	a.duplicate(dst)
}

func (a arm) broadcast(dst vec, m mem) {
	a.loadOne(dst, m)
	a.duplicate(dst)
}

func (a arm) broadcast64(dst vec, m mem) {
	a.emit("FMOVD", a.m(m), a.f(dst))
	a.emit("FCVTDS", a.f(dst), a.f(dst))
	a.duplicate(dst)
}

func (a arm) duplicate(v vec) { a.emit("VDUP", a.v(v)+".S[0]", a.s4(v)) }

func (a arm) loadOne(dst vec, from operand) { a.emit("FMOVS", a.m(from.(mem)), a.f(dst)) }
func (a arm) storeOne(m mem, src vec)       { a.emit("FMOVS", a.f(src), a.m(m)) }
func (a arm) loadFour(dst vec, m mem)       { a.load(dst, m) }
func (a arm) storeFour(m mem, src vec)      { a.store(m, src) }
func (a arm) pairs(dst, x, y, _ vec)        { a.word(0x6e20d400, "VFADDP", dst, x, y) }
func (a arm) quarters(_, _ vec)             {} // a vector is one four
func (a arm) hintNear(m mem)                { a.emit("PRFM", a.m(m), "PLDL1KEEP") }
func (a arm) hintRead(m mem)                { a.emit("PRFM", a.m(m), a.reading.instruction) }
func (a arm) hint(m mem)                    { a.emit("PRFM", a.m(m), "PLDL2KEEP") }
func (a arm) shiftLeft(dst, x vec, n int)   { a.emit("VSHL", imm(n), a.s4(x), a.s4(dst)) }
func (a arm) shiftRight(dst, x vec, n int)  { a.emit("VUSHR", imm(n), a.s4(x), a.s4(dst)) }
func (a arm) addInt(dst, x vec, y operand)  { a.emit("VADD", a.s4(a.in(y)), a.s4(x), a.s4(dst)) }
func (a arm) broadcastInt(dst vec, src reg) { a.emit("VDUP", a.register(src), a.s4(dst)) }
func (a arm) store(m mem, src vec)          { a.emit("FMOVQ", a.f(src), a.m(m)) }
func (a arm) zero(dst vec)                  { a.emit("VMOVI", "$0", a.v(dst)+".B16") }
func (a arm) add(dst, x vec, y operand)     { a.word(0x4e20d400, "VFADD", dst, x, a.in(y)) }
func (a arm) sub(dst, x vec, y operand)     { a.word(0x4ea0d400, "VFSUB", dst, x, a.in(y)) }
func (a arm) mul(dst, x vec, y operand)     { a.word(0x6e20dc00, "VFMUL", dst, x, a.in(y)) }
func (a arm) div(dst, x, y, _ vec)          { a.quotient(dst, x, y) }
func (a arm) quotient(dst, x, y vec)        { a.word(0x6e20fc00, "VFDIV", dst, x, y) }
func (a arm) subInt(dst, x, y vec)          { a.emit("VSUB", a.s4(y), a.s4(x), a.s4(dst)) }
func (a arm) and(dst, x, y vec)             { a.emit("VAND", a.b16(y), a.b16(x), a.b16(dst)) }
func (a arm) max(dst, x vec, y operand)     { a.word(0x4e20f400, "VFMAX", dst, x, a.in(y)) }
func (a arm) min(dst, x vec, y operand)     { a.word(0x4ea0f400, "VFMIN", dst, x, a.in(y)) }
func (a arm) larger(dst, x, y vec)          { a.word(0x4e20c400, "VFMAXNM", dst, x, y) }
func (a arm) get(dst reg, m mem)            { a.emit("MOVD", a.m(m), a.register(dst)) }
func (a arm) put(m mem, src reg)            { a.emit("MOVD", a.register(src), a.m(m)) }
func (a arm) getBool(dst reg, m mem)        { a.emit("MOVBU", a.m(m), a.register(dst)) }
func (a arm) move(dst, src reg)             { a.emit("MOVD", a.register(src), a.register(dst)) }
func (a arm) set(dst reg, n int)            { a.emit("MOVD", imm(n), a.register(dst)) }
func (a arm) increase(dst reg, by int)      { a.emit("ADD", imm(by), a.register(dst)) }
func (a arm) step(dst reg, vectors int)     { a.increase(dst, vectors*a.bytes()) }
func (a arm) multiply(dst, n reg)           { a.emit("MUL", a.register(n), a.register(dst)) }
func (a arm) plus(dst, n reg)               { a.emit("ADD", a.register(n), a.register(dst)) }
func (a arm) subtract(dst, n reg)           { a.emit("SUB", a.register(n), a.register(dst)) }
func (a arm) scratch(dst reg)               { a.emit("ADD", "$16", "RSP", a.register(dst)) }
func (a arm) lower(dst reg, bits int)       { a.emit("LSR", imm(bits), a.register(dst)) }
func (a arm) jump(to string)                { a.emit("B", to) }
func (a arm) align()                        { a.emit("PCALIGN", "$64") }
func (a arm) ret()                          { a.emit("RET") }
func (a arm) offset(dst, b, n reg, by int) {
	a.emit("ADD", a.shifted(n, by), a.register(b), a.register(dst))
}

func (a arm) scale(dst reg, by int) {
	a.emit("MOVD", imm(by), address)
	a.emit("MUL", address, a.register(dst))
}

func (a arm) plusAt(dst reg, m mem) {
	a.emit("MOVD", a.m(m), address)
	a.emit("ADD", address, a.register(dst))
}

func (a arm) arg(dst reg, name string, at int) {
	a.emit("MOVD", fmt.Sprintf("%s+%d(FP)", name, at), a.register(dst))
}

func (a arm) result(name string, at int, src reg) {
	a.emit("MOVD", a.register(src), fmt.Sprintf("%s+%d(FP)", name, at))
}

func (a arm) jumpBelow(x reg, n int, to string)   { a.jumpIf("BLT", a.register(x), imm(n), to) }
func (a arm) jumpAtLeast(x reg, n int, to string) { a.jumpIf("BGE", a.register(x), imm(n), to) }
func (a arm) jumpLess(x, y reg, to string)        { a.jumpIf("BLT", a.register(x), a.register(y), to) }

func (a arm) jumpUnless(m mem, bit int, to string) {
	a.emit("MOVBU", a.m(m), address)
	a.emit("TBZ", imm(bit), address, to)
}

func (a arm) jumpIf(branch, x, y, to string) {
	a.emit("CMP", y, x)
	a.emit(branch, to)
}

// transpose joins pairs of rows, then pairs of pairs.
func (a arm) transpose() {
	for i := 0; i < 4; i += 2 {
		a.emit("VTRN1", a.s4(vec(i+1)), a.s4(vec(i)), a.s4(vec(4+i)))
		a.emit("VTRN2", a.s4(vec(i+1)), a.s4(vec(i)), a.s4(vec(5+i)))
	}
	for i := range 2 {
		d2 := func(n int) string { return a.v(vec(n)) + ".D2" }
		a.emit("VTRN1", d2(6+i), d2(4+i), d2(i))
		a.emit("VTRN2", d2(6+i), d2(4+i), d2(2+i))
	}
}

func (a arm) jumpAbove(x, y vec, to string) {
	a.above(x, x, y)
	a.emit("VADDV", a.s4(x), a.v(x))
	a.emit("FMOVS", a.f(x), address)
	a.emit("CBNZW", address, to)
}

// above sets all bits of an element where x is above y, and clears them elsewhere.
func (a arm) above(dst, x, y vec) { a.word(0x6ea0e400, "VFCMGT", dst, x, y) }

func (a arm) replaceAbove(dst, by, x, y, tmp vec) {
	a.above(tmp, x, y)
	a.emit("VBIT", a.b16(tmp), a.b16(by), a.b16(dst))
}

func (a arm) replaceAboveInt(dst vec, by constant, x, y, tmp vec) {
	a.word(0x4ea03400, "VCMGT", tmp, x, y)
	a.emit("VBIT", a.b16(tmp), a.b16(a.in(by)), a.b16(dst))
}
