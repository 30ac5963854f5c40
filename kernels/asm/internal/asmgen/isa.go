package asmgen

// A target is an instruction set: its geometry, its registers, and how it spells the operations of the nests.
type target struct {
	name, arch string
	vec        int // floats in a vector
	vecs       int // vectors in a row of lanes
	rows       int // rows of a product tile: Ops.Keys and Ops.Cols
	chains     int // independent accumulators of the peak probe
	reads      int // vectors a round of the bandwidth probe
	spell      func(*gen) isa
}

// bytes is the size of a vector, row that of a row of lanes.
func (t *target) bytes() int { return 4 * t.vec }
func (t *target) row() int   { return t.bytes() * t.vecs }

// A vec is a vector register by number.
type vec int

// A reg is an integer register by the part it plays. Parts that never meet in one function may share a register.
type reg int

const (
	panel   reg = iota // the argument block
	lanes              // rows of lanes that a tile multiplies: Qt, P
	lanesAt            // and the one that it has come to
	elem               // the first of the elements that a tile broadcasts: in K, V
	elemAt             // and of those that it has come to
	elemAt4            // four strides further
	stride             // bytes from one row of these to the next
	stride3            // three times as many
	out                // where the tile's results go
	count              // results still to do
	steps              // steps of the innermost loop still to do
	aux                // what a function says it is
)

// A mem is an operand in memory: base + times*index + off bytes, or a field of package asm's structs.
type mem struct {
	base  reg
	index reg
	times int // 0: no index
	off   int
	field string // as go_asm.h names it, of the block at base
}

// An operand is a vec or a mem.
type operand interface{ operand() }

func (vec) operand() {}
func (mem) operand() {}

// An isa spells operations, destination first. What a vector holds, floats or integers of 32 bits, is the operation's affair.
type isa interface {
	// floats
	load(dst vec, m mem)
	store(m mem, src vec)
	broadcast(dst vec, m mem)
	broadcast64(dst vec, m mem) // a float64, rounded
	zero(dst vec)
	add(dst, a vec, b operand)
	mul(dst, a vec, b operand)
	fma(acc, a vec, b operand) // acc += a*b, rounded once

	// integers of the machine's size
	arg(dst reg, name string, at int)    // an argument of the function
	get(dst reg, m mem)                  // from memory
	move(dst, src reg)                   //
	offset(dst, base reg, n reg, by int) // dst = base + by*n
	increase(dst reg, by int)            //
	scale(dst reg, by int)               // dst *= by
	multiply(dst, n reg)                 // dst *= n
	subtract(dst, n reg)                 // dst -= n
	jumpBelow(a reg, n int, to string)   // if a < n, signed
	jumpAtLeast(a reg, n int, to string) // if a >= n, signed
	jump(to string)
	align() // of the loop that follows
	ret()
}
