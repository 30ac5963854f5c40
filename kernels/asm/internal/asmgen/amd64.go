package asmgen

import (
	"fmt"
	"strconv"
	"strings"
)

// AVX2 has 16 registers: 12 accumulators, 3 for a row of lanes, 1 for the broadcast element.
// AVX-512 has 32, so its micro-tile has twice the rows.
var (
	avx2 = &target{
		name: "avx2", arch: "amd64", vec: 8, vecs: 3, spell: newX86("Y"),
		registerFile: registerFile{regs: 16, roles: x86Regs},
		tables:       tables{entries: 8, degree: 3},
		probes:       probes{chains: 12, reads: 8},
		rows:         4, cols: []int{12, 6, 4}, queries: 2, wide: 2, storeLanes: 8,
		powers: avx2Powers, readings: x86Readings,
	}
	avx512 = &target{
		name: "avx512", arch: "amd64", vec: 16, vecs: 3, spell: newX86("Z"), smaller: avx2,
		registerFile: registerFile{regs: 32, roles: x86Regs},
		tables:       tables{entries: 32, degree: 2},
		probes:       probes{chains: 24, reads: 8},
		traits:       traits{checksEach: true},
		rows:         8, cols: []int{16, 8, 8}, queries: 4, wide: 4, storeLanes: 8,
		powers: avx512Powers, readings: x86Readings,
	}
)

// x86Sets are the instruction sets of amd64.
var x86Sets = []*target{avx2, avx512, amx}

// The ways to compute 2^x. On some CPUs both units that multiply 512 bits do all other vector work
// too. There a sum, a comparison into a mask and VSCALEFPS cost as much as a multiply-add. On
// others comparisons and look-ups in two vectors cost that much, while sums and integers are free.
// Tuning: docs/tuning.md#vector-units
var (
	avx2Powers   = []power{{way: "Table", ulps: "1.25", emit: (*gen).exp2Table, constants: (*gen).tableConstants}}
	avx512Powers = []power{
		{way: "Table", ulps: "1.75", emit: (*gen).exp2Tables, constants: (*gen).tableConstants},
		{way: "Reduced", name: "Floored", ulps: "1.6", emit: (*gen).exp2Floored, constants: (*gen).flooredConstants, prefetches: true},
	}
)

// x86Readings are the two hints for rows that are read once. Non-temporal lines go to the first
// cache and are dropped from there. On some CPUs that saves the transfer to the second cache. On
// others it also bypasses the second cache's queue, which can wait for more lines.
// Tuning: docs/tuning.md#prefetch-hints
var x86Readings = []reading{{"NonTemporal", "PREFETCHNTA", true}, {"Temporal", "PREFETCHT1", false}}

// x86 spells AVX2 and AVX-512, which differ in the letter of their registers and little else. Go
// writes the destination last.
type x86 struct {
	*file
	letter string
}

func newX86(letter string) func(*file) isa { return func(f *file) isa { return x86{f, letter} } }

var x86Regs = map[reg]string{
	panel: "AX", lanes: "DI", weightsAt: "DI", lanesAt: "SI", elem: "BX", elemAt: "R8", elemAt4: "R15", stride: "R9", stride3: "R10", out: "DX", count: "CX",
	steps: "R11", aux: "R12", refs: "R12", nextRow: "R13", products: "R14", source: "R14", pause: "BP",
	columns: "R12", rowsLeft: "R12", apart: "R13", apart3: "R14", outStride: "R14", refsOf: "R13", lead: "BP", leadAt: "R15", leadBy: "R14", resultAt: "R10", factors: "R10", elemAt8: "R13", elemAt12: "R14", flags: "R15",
}

func (x x86) v(v vec) string    { return x.letter + strconv.Itoa(x.number(v)) }
func (x x86) low(v vec) string  { return "X" + strconv.Itoa(x.number(v)) } // the lowest 128 bits
func (x x86) half(v vec) string { return "Y" + strconv.Itoa(x.number(v)) } // lower 256 of 512 bits

func (x x86) m(m mem) string {
	s := "(" + x.register(m.base) + ")"
	if m.times != 0 {
		s += fmt.Sprintf("(%s*%d)", x.register(m.index), m.times)
	}
	switch off := m.off + m.vectors*x.target.bytes(); {
	case m.field != "":
		return "(" + m.field + ")" + s
	case off != 0:
		return strconv.Itoa(off) + s
	}
	return s
}

func (x x86) o(o operand) string {
	switch o := o.(type) {
	case vec:
		return x.v(o)
	case mem:
		return x.m(o)
	case constant, every:
		return fmt.Sprint(o) + "<>(SB)"
	}
	panic("asmgen: unknown kind of operand")
}

// oneOf returns the suffix of an AVX-512 instruction that broadcasts one element, or "".
func oneOf(o operand) string {
	if _, ok := o.(every); ok {
		return ".BCST"
	}
	return ""
}

func imm(n int) string { return "$" + strconv.Itoa(n) }

func (x x86) load(dst vec, from operand) {
	op := "VMOVUPS"
	if _, ok := from.(every); ok {
		op = "VBROADCASTSS"
	}
	x.emit(op, x.o(from), x.v(dst))
}

func (x x86) store(m mem, src vec)          { x.emit("VMOVUPS", x.v(src), x.m(m)) }
func (x x86) broadcast(dst vec, m mem)      { x.emit("VBROADCASTSS", x.m(m), x.v(dst)) }
func (x x86) zero(dst vec)                  { x.emit("VXORPS", x.v(dst), x.v(dst), x.v(dst)) }
func (x x86) add(dst, a vec, b operand)     { x.emit("VADDPS", x.o(b), x.v(a), x.v(dst)) }
func (x x86) mul(dst, a vec, b operand)     { x.emit("VMULPS", x.o(b), x.v(a), x.v(dst)) }
func (x x86) fma(acc, a vec, b operand)     { x.emit("VFMADD231PS", x.o(b), x.v(a), x.v(acc)) }
func (x x86) fnma(acc, a vec, b operand)    { x.emit("VFNMADD231PS", x.o(b), x.v(a), x.v(acc)) }
func (x x86) subInt(dst, a, b vec)          { x.emit("VPSUBD", x.v(b), x.v(a), x.v(dst)) }
func (x x86) toFloat(dst, a vec)            { x.emit("VCVTDQ2PS", x.v(a), x.v(dst)) }
func (x x86) and(dst, a, b vec)             { x.emit("VANDPS", x.v(b), x.v(a), x.v(dst)) }
func (x x86) loadOne(dst vec, from operand) { x.emit("VMOVSS", x.o(from), x.low(dst)) }
func (x x86) storeOne(m mem, src vec)       { x.emit("VMOVSS", x.low(src), x.m(m)) }
func (x x86) loadFour(dst vec, m mem)       { x.emit("VMOVUPS", x.m(m), x.low(dst)) }
func (x x86) storeFour(m mem, src vec)      { x.emit("VMOVUPS", x.low(src), x.m(m)) }
func (x x86) hint(m mem)                    { x.emit("PREFETCHT1", x.m(m)) }
func (x x86) hintNear(m mem)                { x.emit("PREFETCHT0", x.m(m)) }
func (x x86) hintRead(m mem)                { x.emit(x.reading.instruction, x.m(m)) }
func (x x86) get(dst reg, m mem)            { x.emit("MOVQ", x.m(m), x.register(dst)) }
func (x x86) put(m mem, src reg)            { x.emit("MOVQ", x.register(src), x.m(m)) }
func (x x86) getBool(dst reg, m mem)        { x.emit("MOVBQZX", x.m(m), x.register(dst)) }
func (x x86) move(dst, src reg)             { x.emit("MOVQ", x.register(src), x.register(dst)) }
func (x x86) increase(dst reg, by int)      { x.emit("ADDQ", imm(by), x.register(dst)) }
func (x x86) step(dst reg, vectors int)     { x.increase(dst, vectors*x.target.bytes()) }
func (x x86) scale(dst reg, by int)         { x.emit("IMULQ", imm(by), x.register(dst)) }
func (x x86) multiply(dst, n reg)           { x.emit("IMULQ", x.register(n), x.register(dst)) }
func (x x86) plus(dst, n reg)               { x.emit("ADDQ", x.register(n), x.register(dst)) }
func (x x86) plusAt(dst reg, m mem)         { x.emit("ADDQ", x.m(m), x.register(dst)) }
func (x x86) subtract(dst, n reg)           { x.emit("SUBQ", x.register(n), x.register(dst)) }
func (x x86) lower(dst reg, bits int)       { x.emit("SHRQ", imm(bits), x.register(dst)) }
func (x x86) swap(a, b reg)                 { x.emit("XCHGQ", x.register(a), x.register(b)) }
func (x x86) jump(to string)                { x.emit("JMP", to) }
func (x x86) align()                        { x.emit("PCALIGN", "$64") }
func (x x86) jumpBelow(a reg, n int, to string) {
	x.emit("CMPQ", x.register(a), imm(n))
	x.emit("JLT", to)
}

func (x x86) jumpUnless(m mem, bit int, to string) {
	x.emit("TESTB", imm(1<<bit), x.m(m))
	x.emit("JEQ", to)
}

func (x x86) jumpAtLeast(a reg, n int, to string) {
	x.emit("CMPQ", x.register(a), imm(n))
	x.emit("JGE", to)
}

func (x x86) arg(dst reg, name string, at int) {
	x.emit("MOVQ", fmt.Sprintf("%s+%d(FP)", name, at), x.register(dst))
}

func (x x86) offset(dst, base, n reg, by int) {
	x.emit("LEAQ", x.m(mem{base: base, index: n, times: by}), x.register(dst))
}

func (x x86) broadcast64(dst vec, m mem) {
	x.emit("VCVTSD2SS", x.m(m), x.low(dst), x.low(dst))
	x.emit("VBROADCASTSS", x.low(dst), x.v(dst))
}

func (x x86) widen(dst vec, m mem, c cells) {
	switch c {
	case f16:
		x.emit("VCVTPH2PS", x.m(m), x.v(dst))
	case bf16:
		x.emit("VPMOVZXWD", x.m(m), x.v(dst))
		x.shiftLeft(dst, dst, 16)
	case i8:
		x.emit("VPMOVSXBD", x.m(m), x.v(dst))
		x.toFloat(dst, dst)
	}
}

// widenOne loads one cell. It inserts a bfloat16 directly into the upper half of its element.
func (x x86) widenOne(dst vec, m mem, c cells) {
	insert, place := "VPINSRW", 0
	switch c {
	case bf16:
		place = 1
	case i8:
		insert = "VPINSRB"
	}
	x.zero(dst)
	x.emit(insert, imm(place), x.m(m), x.low(dst), x.low(dst))
	switch c {
	case f16:
		x.emit("VCVTPH2PS", x.low(dst), x.low(dst))
	case i8:
		x.emit("VPMOVSXBD", x.low(dst), x.low(dst))
		x.emit("VCVTDQ2PS", x.low(dst), x.low(dst))
	}
}

func (x x86) narrow(m mem, src, _ vec) { x.emit("VCVTPS2PH", "$0", x.v(src), x.m(m)) }

func (x x86) storeHigh(m mem, src, temp vec) {
	x.shiftRight(src, src, 16)
	if x.letter == "Z" {
		x.emit("VPMOVDW", x.v(src), x.m(m))
		return
	}
	x.emit("VEXTRACTF128", "$1", x.v(src), x.low(temp))
	x.emit("VPACKUSDW", x.low(temp), x.low(src), x.low(src))
	x.storeFour(m, src)
}

func (x x86) gatherFour(dst vec, at, stride, stride3 reg) {
	x.loadOne(dst, mem{base: at})
	for i := 1; i < 4; i++ {
		x.emit("VINSERTPS", imm(i<<4), x.m(row(at, stride, stride3, i, 0)), x.low(dst), x.low(dst))
	}
}

// pairs adds neighbouring elements. AVX-512 has no horizontal addition, so it adds the elements at
// odd places to those at even places.
func (x x86) pairs(dst, a, b, temp vec) {
	if x.letter == "Y" {
		x.emit("VHADDPS", x.v(b), x.v(a), x.v(dst))
		return
	}
	x.emit("VSHUFPS", "$0x88", x.v(b), x.v(a), x.v(temp))
	x.emit("VSHUFPS", "$0xdd", x.v(b), x.v(a), x.v(dst))
	x.add(dst, temp, dst)
}

func (x x86) quarters(v, temp vec) {
	quarter := "VEXTRACTF128"
	if x.letter == "Z" {
		x.emit("VEXTRACTF64X4", "$1", x.v(v), x.half(temp))
		x.emit("VADDPS", x.half(temp), x.half(v), x.half(v))
		quarter = "VEXTRACTF32X4" // which can encode registers 16 to 31
	}
	x.emit(quarter, "$1", x.half(v), x.low(temp))
	x.emit("VADDPS", x.low(temp), x.low(v), x.low(v))
}

func (x x86) sub(dst, a vec, b operand)      { x.emit("VSUBPS", x.o(b), x.v(a), x.v(dst)) }
func (x x86) max(dst, a vec, b operand)      { x.emit("VMAXPS", x.o(b), x.v(a), x.v(dst)) }
func (x x86) min(dst, a vec, b operand)      { x.emit("VMINPS", x.o(b), x.v(a), x.v(dst)) }
func (x x86) larger(dst, a, b vec)           { x.max(dst, a, b) }
func (x x86) muladd(acc, a vec, b operand)   { x.emit("VFMADD213PS"+oneOf(b), x.o(b), x.v(a), x.v(acc)) }
func (x x86) lookup(dst, i vec, in constant) { x.emit("VPERMPS", x.o(in), x.v(i), x.v(dst)) }
func (x x86) lookupTwo(dst, i vec, low, high constant, tmp vec) {
	x.emit("VMOVAPS", x.v(i), x.v(dst))
	x.load(tmp, low)
	x.emit("VPERMI2PS", x.o(high), x.v(tmp), x.v(dst))
}

// keepAbove compares by "not less or equal", which is true of NaN.
func (x x86) keepAbove(a vec, least operand) {
	x.emit("VCMPPS"+oneOf(least), "$0x16", x.o(least), x.v(a), "K1")
}

func (x x86) aboveFloor(dst, a vec) { x.emit("VREDUCEPS", "$1", x.v(a), x.v(dst)) }

func (x x86) scaleKept(v, by vec) { x.emit("VSCALEFPS.Z", x.v(by), x.v(v), "K1", x.v(v)) }

func (x x86) shiftLeft(dst, a vec, n int)  { x.emit("VPSLLD", imm(n), x.v(a), x.v(dst)) }
func (x x86) shiftRight(dst, a vec, n int) { x.emit("VPSRLD", imm(n), x.v(a), x.v(dst)) }
func (x x86) addInt(dst, a vec, b operand) { x.emit("VPADDD", x.o(b), x.v(a), x.v(dst)) }
func (x x86) set(dst reg, n int)           { x.emit("MOVQ", imm(n), x.register(dst)) }
func (x x86) jumpLess(a, b reg, to string) {
	x.emit("CMPQ", x.register(a), x.register(b))
	x.emit("JLT", to)
}

func (x x86) replaceAbove(dst, by, a, b, tmp vec) {
	if x.letter == "Z" {
		x.emit("VCMPPS", greater, x.v(b), x.v(a), "K1")
		x.emit("VMOVAPS", x.v(by), "K1", x.v(dst))
	} else {
		x.emit("VCMPPS", greater, x.v(b), x.v(a), x.v(tmp))
		x.emit("VBLENDVPS", x.v(tmp), x.v(by), x.v(dst), x.v(dst))
	}
}

func (x x86) replaceAboveInt(dst vec, by constant, a, b, tmp vec) {
	if x.letter == "Z" {
		x.emit("VPCMPGTD", x.v(b), x.v(a), "K1")
		x.emit("VMOVUPS", x.o(by), "K1", x.v(dst))
	} else {
		x.emit("VPCMPGTD", x.v(b), x.v(a), x.v(tmp))
		x.emit("VBLENDVPS", x.v(tmp), x.o(by), x.v(dst), x.v(dst))
	}
}

func (x x86) loadPair(dst vec, m mem)  { x.emit("VMOVSD", x.m(m), x.low(dst)) }
func (x x86) storePair(m mem, src vec) { x.emit("VMOVSD", x.low(src), x.m(m)) }
func (x x86) swapPairs(dst, a vec)     { x.emit("VPERMILPS", "$0xb1", x.v(a), x.v(dst)) }
func (x x86) loadTwice(dst vec, m mem) {
	x.emit("VPMOVZXDQ", x.m(m), x.v(dst))
	x.emit("VMOVSLDUP", x.v(dst), x.v(dst))
}

func (x x86) storeUnless(m mem, src, word, bit, tmp, tmp2 vec) {
	if x.letter == "Z" {
		x.emit("VPTESTNMD", x.v(bit), x.v(word), "K1")
		x.emit("VMOVUPS", x.v(src), "K1", x.m(m))
	} else { // loads and stores all: a masked store is slow on some CPUs
		x.emit("VPAND", x.v(bit), x.v(word), x.v(tmp))
		x.emit("VPCMPEQD", x.v(bit), x.v(tmp), x.v(tmp))
		x.emit("VBLENDVPS", x.v(tmp), x.m(m), x.v(src), x.v(tmp2))
		x.store(m, tmp2)
	}
}

func (x x86) argFloat(dst vec, name string, at int) {
	x.emit("VBROADCASTSS", fmt.Sprintf("%s+%d(FP)", name, at), x.v(dst))
}

func (x x86) broadcastInt(dst vec, src reg) {
	x.emit("VMOVD", x.register(src), x.low(dst))
	x.emit("VPBROADCASTD", x.low(dst), x.v(dst))
}

func (x x86) scratch(dst reg) {
	x.emit("LEAQ", "63(SP)", x.register(dst))
	x.emit("ANDQ", "$-64", x.register(dst))
}

func (x x86) result(name string, at int, src reg) {
	x.emit("MOVQ", x.register(src), fmt.Sprintf("%s+%d(FP)", name, at))
}

// div divides. AVX-512's division takes 16 cycles, in which no other division starts. An estimate
// of the reciprocal, good to 2^-14, and one Newton step take four pipelined instructions.
func (x x86) div(dst, a, b, tmp vec) {
	if x.letter != "Z" {
		x.emit("VDIVPS", x.v(b), x.v(a), x.v(dst))
		return
	}
	x.emit("VRCP14PS", x.v(b), x.v(tmp))
	x.mul(dst, a, tmp)
	x.fnma(a, b, dst)
	x.fma(dst, a, tmp)
}

func (x x86) quotient(dst, a, b vec) { x.emit("VDIVPS", x.v(b), x.v(a), x.v(dst)) }

func (x x86) shuffle(op, selects string, a, b, dst int) {
	x.emit(op, append(strings.Fields(selects), x.v(vec(b)), x.v(vec(a)), x.v(vec(dst)))...)
}

// transpose takes twice the steps in AVX-512, where quarters of registers are exchanged in two
// steps.
func (x x86) transpose() {
	x.transposeFours(x.vec)
	if x.letter == "Y" {
		x.exchange("VPERM2F128", "$0x20", "$0x31")
		return
	}
	for i := range 4 {
		even, odd := x.vec+4*i, x.vec+4*i+2
		for j := range 2 {
			x.shuffle("VSHUFF64X2", "$0x88", i+8*j, i+8*j+4, even+j)
			x.shuffle("VSHUFF64X2", "$0xdd", i+8*j, i+8*j+4, odd+j)
		}
		for j, from := range []int{even, odd} {
			x.shuffle("VSHUFF64X2", "$0x88", from, from+1, i+4*j)
			x.shuffle("VSHUFF64X2", "$0xdd", from, from+1, i+4*j+8)
		}
	}
}

func (x x86) transposeHalves() {
	x.transposeFours(8)
	x.exchange("VSHUFF64X2", "$0x88", "$0xdd")
}

// transposeFours transposes squares of four within 128 bits of each four of n registers: it joins
// pairs of rows, then pairs of pairs.
func (x x86) transposeFours(n int) {
	for i := 0; i < n; i += 2 {
		x.shuffle("VUNPCKLPS", "", i, i+1, n+i)
		x.shuffle("VUNPCKHPS", "", i, i+1, n+i+1)
	}
	for i := 0; i < n; i += 4 {
		x.shuffle("VSHUFPS", "$0x44", n+i, n+i+2, i)
		x.shuffle("VSHUFPS", "$0xee", n+i, n+i+2, i+1)
		x.shuffle("VSHUFPS", "$0x44", n+i+1, n+i+3, i+2)
		x.shuffle("VSHUFPS", "$0xee", n+i+1, n+i+3, i+3)
	}
}

// exchange joins the even and the odd quarters of two registers, four times.
func (x x86) exchange(op, even, odd string) {
	for i := range 4 {
		x.shuffle(op, even, i, 4+i, 8+i)
		x.shuffle(op, odd, i, 4+i, 4+i)
		x.emit("VMOVAPS", x.v(vec(8+i)), x.v(vec(i)))
	}
}

func (x x86) loadHalf(dst vec, half int, m mem) {
	if half == 0 {
		x.emit("VMOVUPS", x.m(m), x.half(dst))
	} else {
		x.emit("VINSERTF64X4", "$1", x.m(m), x.v(dst), x.v(dst))
	}
}

// greater is the predicate of VCMPPS for "greater", false for NaN.
const greater = "$0x1e"

func (x x86) jumpAbove(a, b vec, to string) {
	if x.letter == "Z" {
		x.emit("VCMPPS", greater, x.v(b), x.v(a), "K1")
		x.emit("KORTESTW", "K1", "K1")
	} else {
		x.emit("VCMPPS", greater, x.v(b), x.v(a), x.v(a))
		x.take(flags)
		x.emit("VMOVMSKPS", x.v(a), x.register(flags))
		x.emit("TESTL", x.register(flags), x.register(flags))
		x.free(flags)
	}
	x.emit("JNE", to)
}

// ret clears the upper halves of the registers: dirty ones slow down the SSE code that Go compiles
// to on some CPUs.
func (x x86) ret() {
	x.emit("VZEROUPPER")
	x.emit("RET")
}
