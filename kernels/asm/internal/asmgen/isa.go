package asmgen

// A target is an instruction set: its geometry, its registers, and how it spells the operations
// that nests call.
type target struct {
	name, arch string
	registerFile
	tables
	probes
	traits
	vec        int     // floats in a vector
	vecs       int     // vectors in a row of lanes
	rows       int     // rows of a micro-tile: Shape.Keys and Shape.Cols
	cols       []int   // columns that Mix computes at once, by vectors in use, less one
	queries    int     // queries that Dot computes at once
	wide       int     // vectors in a row of a micro-tile of Outer
	storeLanes int     // lanes that Store moves at once
	smaller    *target // set whose Load and Store move what is too small for this set's; nil: none
	powers     []power
	readings   []reading
	only       []string // loops that the set has; nil: all that it is able to run
	spell      func(*file) isa
}

// A registerFile lists the registers of a set.
type registerFile struct {
	regs  int            // vector registers
	roles map[reg]string // integer registers
}

// tables describe how 2^x is looked up.
type tables struct {
	entries int // length of the table; 0: none
	degree  int // degree of the polynomial
}

// probes give the size of a probe's round.
type probes struct {
	chains int // independent accumulators of Peak
	reads  int // vectors that Read reads in a round
}

// traits are differences between sets that nests depend on.
type traits struct {
	byElement  bool // fma multiplies by one element of a register; if not, it is broadcast first
	checksEach bool // Flash compares each vector with its limit separately
	pooled     bool // constants are stored one after another, under one symbol
}

// A reading is one way to prefetch rows that are read once.
type reading struct {
	name        string // suffix of the names of the loops that use it
	instruction string // the prefetch instruction, or its operand
	// Read prefetches too. If not, contiguous memory is read fastest without prefetches.
	probed bool
}

// bytes returns the size of a vector.
func (t *target) bytes() int { return 4 * t.vec }

// row returns the size of a row of lanes.
func (t *target) row() int { return t.bytes() * t.vecs }

// A vec is a vector register, by number.
type vec int

// Roles of integer registers.
const (
	panel     reg = "panel"     // the call
	lanes     reg = "lanes"     // rows of lanes that a micro-tile multiplies: Qt, P
	lanesAt   reg = "lanesAt"   // current row of lanes
	weightsAt reg = "weightsAt" // Flash: current row of weights
	elem      reg = "elem"      // first of the elements that a micro-tile broadcasts, in K or V
	elemAt    reg = "elemAt"    // current element
	elemAt4   reg = "elemAt4"   // elemAt plus four strides, or three for six rows
	elemAt8   reg = "elemAt8"   // elemAt plus eight strides
	elemAt12  reg = "elemAt12"  // elemAt plus twelve strides
	stride    reg = "stride"    // bytes from one row of elements to the next
	stride3   reg = "stride3"   // three times stride
	out       reg = "out"       // address of the micro-tile's results
	count     reg = "count"     // results left
	steps     reg = "steps"     // steps left in the innermost loop
	aux       reg = "aux"       // scratch, as a function needs it
	refs      reg = "refs"      // M
	nextRow   reg = "nextRow"   // Flash: the row of K to prefetch
	products  reg = "products"  // memory in the frame: AMX tiles of terms and of sums
	source    reg = "source"    // Flash: the row at Flash.Prefetch
	pause     reg = "pause"     // Flash: the row of weights to pause at
	columns   reg = "columns"   // columns left
	rowsLeft  reg = "rowsLeft"  // rows left
	apart     reg = "apart"     // bytes from one row of lanes to the next, if not a constant
	apart3    reg = "apart3"    // three times apart
	outStride reg = "outStride" // bytes from one row of results to the next
	refsOf    reg = "refsOf"    // Weigh: M
	lead      reg = "lead"      // bytes from rows to prefetched ones; Weigh: the line to prefetch
	leadAt    reg = "leadAt"    // current row being prefetched
	leadBy    reg = "leadBy"    // Weigh: bytes from one such line to the next
	flags     reg = "flags"     // AVX2: result of the comparison before a jump
	factors   reg = "factors"   // Solve: factors of rows
	resultAt  reg = "resultAt"  // the row of results to prefetch
)

// A mem is an operand in memory, at base + times*index + off bytes + vectors vectors, or a field of
// package asm's structs. Only the spelling knows the size of a vector, which need not be a
// constant.
type mem struct {
	base    reg
	index   reg
	times   int // 0: no index
	off     int
	vectors int
	field   string // field of the block at base, as go_asm.h names it
}

// An operand is a vec, a mem or a constant. fma also accepts an element, where the set multiplies
// by element.
type operand interface{ operand() }

func (vec) operand()      {}
func (mem) operand()      {}
func (constant) operand() {}
func (every) operand()    {}
func (element) operand()  {}

// A constant is the name of a vector in the file's data.
type constant string

// An every is a constant whose elements are all equal; only one of them is read.
type every constant

// An element is one element of a register.
type element struct {
	of vec
	at int
}

// An isa spells operations, destination first. Every set has these operations, which suffice for
// Score, Mix and the probes. The operation decides whether a vector holds floats or integers of 32
// bits. Further operations are capabilities.
type isa interface {
	// vectors of floats
	load(dst vec, from operand)
	store(m mem, src vec)
	broadcast(dst vec, m mem)
	broadcast64(dst vec, m mem) // a float64, rounded
	zero(dst vec)
	add(dst, a vec, b operand)
	sub(dst, a vec, b operand)
	mul(dst, a vec, b operand)
	fma(acc, a vec, b operand)  // acc += a*b, rounded once
	fnma(acc, a vec, b operand) // acc -= a*b, rounded once

	// integers of the machine's size, including addresses
	set(dst reg, n int)
	move(dst, src reg)
	get(dst reg, m mem)
	put(m mem, src reg)
	getBool(dst reg, m mem)                // 1 for true
	arg(dst reg, name string, at int)      // loads an argument at bytes into the function's frame
	argFloat(dst vec, name string, at int) // broadcasts a float32 argument
	result(name string, at int, src reg)   // stores a result
	scratch(dst reg)                       // address of memory in the frame, at a multiple of 64
	offset(dst, base, n reg, by int)       // dst = base + by*n
	increase(dst reg, by int)
	step(dst reg, vectors int) // dst += the size of the vectors
	scale(dst reg, by int)
	multiply(dst, n reg)
	plus(dst, n reg)
	plusAt(dst reg, m mem)
	subtract(dst, n reg)
	lower(dst reg, bits int) // shifts right

	// jumps: comparisons are signed
	jump(to string)
	jumpBelow(a reg, n int, to string)    // if a < n
	jumpAtLeast(a reg, n int, to string)  // if a >= n
	jumpLess(a, b reg, to string)         // if a < b
	jumpUnless(m mem, bit int, to string) // if a bit of a byte is 0
	align()                               // aligns the loop that follows
	ret()
}

// capabilities are the operations that only some sets have. A loop is written only for sets with
// its capabilities; for others package asm keeps the portable loop.
type capabilities struct {
	ordered
	bitwise
	single
	paired
	celled
	summing
	dividing
	transposing
	hinting
}

// capabilitiesOf returns the capabilities of a set's spelling.
func capabilitiesOf(spelling isa) (c capabilities) {
	c.ordered, _ = spelling.(ordered)
	c.bitwise, _ = spelling.(bitwise)
	c.single, _ = spelling.(single)
	c.paired, _ = spelling.(paired)
	c.celled, _ = spelling.(celled)
	c.summing, _ = spelling.(summing)
	c.dividing, _ = spelling.(dividing)
	c.transposing, _ = spelling.(transposing)
	c.hinting, _ = spelling.(hinting)
	return c
}

// An ordered isa compares floats.
type ordered interface {
	max(dst, a vec, b operand) // NaN if b is
	larger(dst, a, b vec)      // a number if b is
	min(dst, a vec, b operand)
	jumpAbove(a, b vec, to string)       // if an element of a is above that of b; destroys a
	replaceAbove(dst, by, a, b, tmp vec) // dst = by where a is above b; destroys tmp
}

// A bitwise isa has operations on a vector's bits.
type bitwise interface {
	shiftLeft(dst, a vec, n int)
	shiftRight(dst, a vec, n int) // of unsigned numbers
	addInt(dst, a vec, b operand)
	subInt(dst, a, b vec)
	and(dst, a, b vec)
	toFloat(dst, a vec)                                  // converts from integers
	broadcastInt(dst vec, src reg)                       // broadcasts the low 32 bits
	replaceAboveInt(dst vec, by constant, a, b, tmp vec) // replaceAbove for integers
	storeUnless(m mem, src, word, bit, tmp, tmp2 vec)    // stores the elements where word&bit is 0
}

// A single isa moves one element. Loading it clears the others.
type single interface {
	loadOne(dst vec, from operand)
	storeOne(m mem, src vec)
}

// A paired isa moves and swaps pairs of neighbours.
type paired interface {
	loadPair(dst vec, m mem) // loads one pair
	storePair(m mem, src vec)
	loadTwice(dst vec, m mem) // loads half as many elements as a vector has, each of them twice
	swapPairs(dst, a vec)
}

// A celled isa converts cells to float32, without their scale: a vector of them, or one cell
// followed by zeros.
type celled interface {
	widen(dst vec, m mem, c cells)
	widenOne(dst vec, m mem, c cells)
	narrow(m mem, src, temp vec)    // stores a vector as F16, rounded; may destroy src and temp
	storeHigh(m mem, src, temp vec) // stores upper halves of elements; may destroy src and temp
}

// A summing isa adds up a vector's elements. pairs adds neighbours within each four elements of a,
// b and dst: a0+a1, a2+a3, b0+b1, b2+b3. quarters adds all fours of v to its first, pairing the
// upper half with the lower. Both may destroy temp.
type summing interface {
	pairs(dst, a, b, temp vec)
	quarters(v, temp vec)
	loadFour(dst vec, m mem)  // loads four elements and clears the others
	storeFour(m mem, src vec) // stores the first four elements
	// gatherFour loads four elements, stride bytes apart, and clears the others.
	gatherFour(dst vec, at, stride, stride3 reg)
}

// A dividing isa divides.
type dividing interface {
	div(dst, a, b, tmp vec) // dst = a/b for b not 0, nearly rounded; destroys a and tmp
	quotient(dst, a, b vec) // dst = a/b, rounded once
}

// A transposing isa exchanges element i of register j and element j of register i, for as many of
// the first registers as a vector has elements. The same number of registers after them is scratch.
type transposing interface{ transpose() }

// A hinting isa prefetches the cache line of an address, which need not exist. Without it loops
// prefetch nothing.
type hinting interface {
	hint(m mem)     // to the second-level cache
	hintNear(m mem) // to the first-level cache
	hintRead(m mem) // by the current reading
}

// prefetch prefetches to the second cache, if the set has hints.
func (g *gen) prefetch(m mem) {
	if g.hinting != nil {
		g.hint(m)
	}
}

// prefetchNear prefetches to the first cache, if the set has hints.
func (g *gen) prefetchNear(m mem) {
	if g.hinting != nil {
		g.hintNear(m)
	}
}

// prefetchRead prefetches a line that is read once, by the current reading, if the set has hints.
func (g *gen) prefetchRead(m mem) {
	if g.hinting != nil {
		g.hintRead(m)
	}
}

// loadCells loads a vector of cells of any type as float32.
func (g *gen) loadCells(dst vec, m mem, c cells) {
	if c == f32 {
		g.load(dst, m)
	} else {
		g.widen(dst, m, c)
	}
}

// loadCell loads one cell of any type as float32 and clears the other elements.
func (g *gen) loadCell(dst vec, m mem, c cells) {
	if c == f32 {
		g.loadOne(dst, m)
	} else {
		g.widenOne(dst, m, c)
	}
}

// A halved isa stores half as many lanes as its vectors have elements.
type halved interface {
	loadHalf(dst vec, half int, m mem) // half 0 comes first: it clears the upper half
	// transposeHalves puts row i in register i, for half as many rows as a vector has elements.
	// Before it, half h of register r has column r%4 + 4h + 8(r/4).
	transposeHalves()
}

// A tabled isa has the operations of exp2 with a table.
type tabled interface {
	muladd(acc, a vec, b operand)       // acc = acc*a + b, rounded once
	lookup(dst, index vec, in constant) // dst[i] = in[index[i] mod its length]
	// lookupTwo sets dst[i] = (low, high)[index[i] mod their length].
	lookupTwo(dst, index vec, low, high constant, tmp vec)
}

// A flooring isa has the operations of exp2Floored.
type flooring interface {
	tabled
	aboveFloor(dst, a vec)          // dst = a-⌊a⌋
	keepAbove(x vec, least operand) // records the elements where x is not least or less
	scaleKept(v, x vec)             // v *= 2^⌊x⌋ in the recorded elements, and 0 elsewhere
}
