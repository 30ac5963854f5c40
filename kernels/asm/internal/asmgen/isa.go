package asmgen

// A target is an instruction set: its geometry, its registers, and how it spells the operations of the nests.
type target struct {
	name, arch string
	registerFile
	tables
	probes
	traits
	vec        int     // floats in a vector
	vecs       int     // vectors in a row of lanes
	rows       int     // rows of a product tile: Ops.Keys and Ops.Cols
	cols       []int   // columns that Mix takes at once, of tiles of 1, 2 and more vectors
	queries    int     // queries that Dot takes at once
	wide       int     // vectors in a row of a tile of Outer
	storeLanes int     // lanes that Store moves at once
	smaller    *target // whose moves do what is too small for those of this set
	powers     []power
	ways       []way
	only       []string // loops that the set brings, where it does not bring all that it is able to
	spell      func(*file) isa
}

// A registerFile says which registers a set has.
type registerFile struct {
	regs  int            // vector registers
	roles map[reg]string // integer registers
}

// tables say how 2^x is looked up.
type tables struct {
	entries int // of the table
	degree  int // of the polynomial
}

// probes say how long a round of a probe is.
type probes struct {
	chains int // independent accumulators of Peak
	reads  int // vectors of Read
}

// traits are how a set differs in what loops are written for.
type traits struct {
	byElement  bool // it multiplies by one element of a register; else that element is broadcast to one
	checksEach bool // Flash compares each vector with its limit by itself
	pooled     bool // constants are stored one after another, under one symbol
}

// A way to ask memory for rows that are read once.
type way struct {
	name   string // behind those of the loops that ask so
	asks   string // the instruction, or what it takes
	probed bool   // memory that lies in a row is read fastest so too; else, where nothing is asked for
}

// bytes is the size of a vector, row that of a row of lanes.
func (t *target) bytes() int { return 4 * t.vec }
func (t *target) row() int   { return t.bytes() * t.vecs }

// A vec is a vector register by number.
type vec int

// Roles of integer registers.
const (
	panel     reg = "panel"     // the argument block
	lanes     reg = "lanes"     // rows of lanes that a tile multiplies: Qt, P
	lanesAt   reg = "lanesAt"   // and the one that it has come to
	weightsAt reg = "weightsAt" // Flash: the row of weights that it has come to
	elem      reg = "elem"      // the first of the elements that a tile broadcasts: in K, V
	elemAt    reg = "elemAt"    // and of those that it has come to
	elemAt4   reg = "elemAt4"   // four strides further; of six rows, three
	elemAt8   reg = "elemAt8"   // eight
	elemAt12  reg = "elemAt12"  // and twelve
	stride    reg = "stride"    // bytes from one row of these to the next
	stride3   reg = "stride3"   // three times as many
	out       reg = "out"       // where the tile's results go
	count     reg = "count"     // results still to do
	steps     reg = "steps"     // steps of the innermost loop still to do
	aux       reg = "aux"       // what a function says it is
	refs      reg = "refs"      // M
	nextRow   reg = "nextRow"   // Flash: the row of K that is asked for
	products  reg = "products"  // memory of the function's own: tiles of parts, and of sums
	source    reg = "source"    // Flash: the row that Panel.Next says
	pause     reg = "pause"     // Flash: the row of weights to pause at
	columns   reg = "columns"   // columns still to do
	rowsLeft  reg = "rowsLeft"  // rows still to do
	apart     reg = "apart"     // bytes from one row of lanes to the next, where they lie in rows of their own
	apart3    reg = "apart3"    // three times as many
	outStride reg = "outStride" // and from one row of results to the next
	refsOf    reg = "refsOf"    // Weigh: M
	lead      reg = "lead"      // bytes from rows to those asked for meanwhile; Weigh: the line asked for
	leadAt    reg = "leadAt"    // the row of these that it has come to
	leadBy    reg = "leadBy"    // Weigh: and bytes from one of them to the next
	flags     reg = "flags"     // AVX2: the comparison that a jump follows
	resultAt  reg = "resultAt"  // the row of results asked for
)

// A mem is an operand in memory: base + times*index + off bytes and so many vectors, or a field of package asm's structs. How long a vector is, is the spelling's
// affair: it may be no constant.
type mem struct {
	base    reg
	index   reg
	times   int // 0: no index
	off     int
	vectors int
	field   string // as go_asm.h names it, of the block at base
}

// An operand is a vec, a mem or a constant; of fma, by element, an element too.
type operand interface{ operand() }

func (vec) operand()      {}
func (mem) operand()      {}
func (constant) operand() {}
func (every) operand()    {}
func (element) operand()  {}

// A constant is a vector of the file's data, by name.
type constant string

// An every is a constant whose elements are all the same, of which one is read.
type every constant

// An element of a register.
type element struct {
	of vec
	at int
}

// An isa spells operations, destination first: those that every set has, with which Score, Mix and the probes are written. What a vector holds, floats or integers
// of 32 bits, is the operation's affair. Further operations are capabilities.
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

	// integers of the machine's size, addresses among them
	set(dst reg, n int)
	move(dst, src reg)
	get(dst reg, m mem)
	put(m mem, src reg)
	getBool(dst reg, m mem)                // 1 for true
	arg(dst reg, name string, at int)      // an argument of the function, so many bytes into its frame
	argFloat(dst vec, name string, at int) // a float32 among them, in all elements
	result(name string, at int, src reg)   // and a result
	scratch(dst reg)                       // memory of the function's own, at a multiple of 64 in a frame that is 64 bytes larger
	offset(dst, base, n reg, by int)       // dst = base + by*n
	increase(dst reg, by int)
	step(dst reg, vectors int) // dst += the size of so many vectors
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
	align()                               // the loop that follows
	ret()
}

// Capabilities are what a set may have beside. A loop that needs one which its set lacks is not written, and package asm keeps the portable one.
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

// capabilitiesOf returns those that a set's spelling has.
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
	jumpAbove(a, b vec, to string)       // if an element of a is above that of b. It destroys a
	replaceAbove(dst, by, a, b, tmp vec) // dst = by where a is above b. It destroys tmp
}

// A bitwise isa has operations on a vector's bits.
type bitwise interface {
	shiftLeft(dst, a vec, n int)
	shiftRight(dst, a vec, n int) // of numbers without a sign
	addInt(dst, a vec, b operand)
	subInt(dst, a, b vec)
	and(dst, a, b vec)
	toFloat(dst, a vec)                                  // of integers
	broadcastInt(dst vec, src reg)                       // its low 32 bits
	replaceAboveInt(dst vec, by constant, a, b, tmp vec) // replaceAbove of integers
	storeUnless(m mem, src, word, bit, tmp, tmp2 vec)    // the elements where word has no bit in common with bit
}

// A single isa moves one element: loaded, it stands before zeros.
type single interface {
	loadOne(dst vec, from operand)
	storeOne(m mem, src vec)
}

// A paired isa knows pairs of neighbours.
type paired interface {
	loadPair(dst vec, m mem) // one
	storePair(m mem, src vec)
	loadTwice(dst vec, m mem) // half as many elements, each of them twice
	swapPairs(dst, a vec)
}

// A celled isa makes cells float32, but for their scale: a vector of them, or one before zeros.
type celled interface {
	widen(dst vec, m mem, c cells)
	widenOne(dst vec, m mem, c cells)
	narrow(m mem, src, temp vec)    // stores a vector as F16, rounded. It may destroy both
	storeHigh(m mem, src, temp vec) // stores the upper halves of a vector's elements; the same holds
}

// A summing isa adds up a vector's elements. pairs does each four elements of dst, a and b by themselves: a0+a1, a2+a3, b0+b1, b2+b3. quarters adds all fours of v
// to its first, pairing the upper half with the lower. They may destroy temp.
type summing interface {
	pairs(dst, a, b, temp vec)
	quarters(v, temp vec)
	loadFour(dst vec, m mem)                     // before zeros
	storeFour(m mem, src vec)                    // the first four elements
	gatherFour(dst vec, at, stride, stride3 reg) // four elements, before zeros, so many bytes apart
}

// A dividing isa divides.
type dividing interface {
	div(dst, a, b, tmp vec) // dst = a/b where b is not 0, nearly as rounded; a and tmp lost
	quotient(dst, a, b vec) // dst = a/b, rounded once
}

// A transposing isa exchanges element i of register j and element j of register i of the first registers, as many as a vector has elements, with as many more for
// a scratch.
type transposing interface{ transpose() }

// A hinting isa asks for the cache line of an address, which need not exist. Loops of others ask for nothing.
type hinting interface {
	hint(m mem)     // to the second-level cache
	hintNear(m mem) // to the first-level cache
	hintOnce(m mem) // as the way at hand says
}

// prefetch, prefetchNear and ask are these where a set has them.
func (g *gen) prefetch(m mem) {
	if g.hinting != nil {
		g.hint(m)
	}
}

func (g *gen) prefetchNear(m mem) {
	if g.hinting != nil {
		g.hintNear(m)
	}
}

func (g *gen) ask(m mem) {
	if g.hinting != nil {
		g.hintOnce(m)
	}
}

// loadCells and loadCell load cells of any type: a vector of them, or one before zeros.
func (g *gen) loadCells(dst vec, m mem, c cells) {
	if c == f32 {
		g.load(dst, m)
	} else {
		g.widen(dst, m, c)
	}
}

func (g *gen) loadCell(dst vec, m mem, c cells) {
	if c == f32 {
		g.loadOne(dst, m)
	} else {
		g.widenOne(dst, m, c)
	}
}

// A halved isa stores half as many lanes as its vectors have elements.
type halved interface {
	loadHalf(dst vec, half int, m mem) // the lower one, 0, first: it empties the upper one
	// transposeHalves makes row i of half as many as a vector has elements in register i. Before, half h of register r has a column of them, which is
	// r%4 + 4h + 8(r/4).
	transposeHalves()
}

// A tabled isa has the operations of exp2 with a table.
type tabled interface {
	muladd(acc, a vec, b operand)                          // acc = acc*a + b, rounded once
	lookup(dst, index vec, in constant)                    // dst[i] = in[index[i] mod its length]
	lookupTwo(dst, index vec, low, high constant, tmp vec) // the same in two constants, one after the other
}

// A flooring isa has the operations of exp2Floored.
type flooring interface {
	tabled
	aboveFloor(dst, a vec)          // dst = a-⌊a⌋
	keepAbove(x vec, least operand) // where x is not up to least it is kept in mind
	scaleKept(v, x vec)             // v *= 2^⌊x⌋ there, and 0 elsewhere
}
