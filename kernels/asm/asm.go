// Package asm holds the inner loops of the kernels, as one value per instruction set: Ops. Algorithms are written over Ops, so an
// instruction set is added by supplying loops and no algorithm, and an algorithm without any assembly.
//
// # The panel
//
// Every loop works on a Panel, a block of N keys against a tile of queries. Queries stand in lanes, so a row maximum, a row sum, a rescale
// and a mask are element-wise over lanes, nothing is reduced horizontally, and nothing of K or V is packed:
//
//	        Lanes                      D                         C
//	    ┌───────────┐          ┌───────────────┐         ┌───────────────┐
//	Qt  │ q0 q1 q2 .│ D    K   │ k0 . . . . .  │ N   V   │ v0 . . . . .  │ N      rows of K and V in place,
//	    └───────────┘          │ k1 . . . . .  │         │ v1 . . . . .  │        any stride between them
//	    ┌───────────┐          └───────────────┘         └───────────────┘
//	P   │ .  .  .  .│ N    P = K Qt, then P = 2^(P-M)
//	    └───────────┘
//	    ┌───────────┐
//	O   │ .  .  .  .│ C    O += V^T P, transposed once at the end
//	    └───────────┘
//	M, L, S  one number a lane: reference, Σ P, Σ P*score
//
// Scores are in base-2 logarithms: Factor is log2(e)*scale/T.
//
// # The lazy maximum
//
// Softmax does not need the maximum, only a reference M near it. Exp leaves M alone while no score is above M+Limit, and returns early,
// with Done rows finished, when a lane of the group at Done goes over. Raise lifts M in those lanes, by a whole number so that multiplying what
// was summed by the power of two in between rounds nothing, and Exp goes on from there. A lane starts at M = Unset, which any score exceeds,
// so the first visible group seeds it; Flash does that itself, as there is nothing to multiply. Groups of Keys rows start at multiples of Keys in the absolute key index: a lane's history depends on
// its own scores alone.
//
// NaN is above nothing: it becomes a weight that is NaN, and so does a score of +Inf, to which M is raised. Such a lane's L and O are NaN from
// there on, and no other lane's.
//
// # Sums
//
// A score is summed in the order of the columns, and multiplied by Factor when the sum is done, if the queries are not Scaled by it.
//
// A lane of L and of S is summed over the keys of a group, from zero, and then added to what was there; a lane of O over the
// keys of one Mix. A hidden key (score -Inf) contributes an exact 0, so cutting hidden keys off either end of a block changes no bit.
//
// # Parts
//
// Units that multiply tiles of bfloat16 do so much more of that than others of float32 that a product of float32 is worth being made of theirs: each number is the
// sum of three of bfloat16, its parts, and a product of two numbers that of six products of parts: the other three are some 2^-22 of it at most. The set amx does that, where
// there are parts: of keys, of values, and of queries, which Ops.CutKeys, CutValues and CutQueries make once for all that multiply them; for the backward pass CutLines
// makes those of queries and gradients that stand in rows. Weights it cuts by itself.
// Numbers of bfloat16 are their only part, and three products are left. Without parts, and in all else, it is avx512. With d = 64 and 4096 keys flash does 1.3 to
// 1.4 times as many operations so, on a Xeon (family 6, model 167), as AVX-512's multiply-adds at their peak.
//
// A unit of tiles takes operands below 2^-126 as 0, and makes results 0 that are. Values below 2^-60 have no parts, therefore, and are multiplied as they are
// (Parts.Small); and nobody cuts where scores themselves are asked for. The backward pass, whose numbers may all be small, makes them larger first. What is not
// finite becomes a part that is not.
//
// # Assembly
//
// Go's runtime cannot stop a goroutine inside assembly, and a garbage collection waits until it has
// stopped all of them. So one call of assembly does at most 2^21 multiply-adds and touches at most
// a MiB; a loop that is given more makes several calls, by rows or columns, with the same bits. A
// call takes one group of rows at least, which may be more than that where rows have more than some
// 5000 columns. TestBounds counts the calls of everything that is made of loops.
//
// The sets avx2, avx512, amx and neon are written by internal/asmgen. Their loops take no lengths on trust: loops.go checks every slice first. Weights
// there are 0 up to 2^-100 (neon: 2^-99.5), and else within 1.75 ulp of 2^(score-M), less 2^-100, the difference being rounded first. Build tag purego leaves
// the sets out.
//
// Loops that compute 2^x are there once for each way that suits a CPU (suited).
//
// The loops of decoding, whose speed is that of memory, are there once for each way to ask for rows that are read once: alike but for that, so that a CPU
// runs those by which it reads fastest (suited).
package asm

import (
	"math"
	"unsafe"
)

// Unset is the reference M of a lane that has seen no key yet.
const Unset = -math.MaxFloat32

// Limit is how far above M, in base-2 logarithms, a score may be. It bounds P by 2^40, so that O stays below n*2^40*max|V|: with 2^20 keys,
// values up to 2^67 do not overflow, and a row that does is answered by its definition. Scores that are unit normals never come near. With a
// standard deviation of 30, a tile of 48 queries and 2048 keys asks for a raise in some 41 groups of 256 in a simulation, and in some 77 with a
// limit of 8; on a Xeon (family 6, model 207) that was worth 4 % to avx512.
const Limit = 40

// Rows is a block of rows in place: row j starts at Data[j*Stride].
type Rows struct {
	Data   []float32
	Stride int
}

// Parts are rows, each number as the sum of three of type BF16, in the order in which Ops.CutKeys or CutValues lays them out. Rows are cut in whole
// groups (Ops.Group).
type Parts struct {
	Data    []uint16
	Row     int       // elements for each row,
	Single  bool      // of which only those of the first part count: all numbers are of type BF16
	Small   []float32 // rows of values too small to be cut, which have no parts and are 0 elsewhere; nil if there are none
	Columns int       // of those
}

// From returns the parts of rows from row j on, the first of a group.
func (p Parts) From(j int) Parts {
	p.Data = p.Data[j*p.Row:]
	if p.Small != nil {
		p.Small = p.Small[j*p.Columns:]
	}
	return p
}

// KeyParts, ValueParts and QueryParts are how many elements the parts of n rows of d columns have, and those of queries of d columns in lanes. LineParts is the same
// for rows of which each stands for a lane: in the place of each vector of lanes are its parts alone, or beside those of the next one.
func KeyParts(n, d int) int       { return 3 * up(n, tileRows) * up(d, tileDepth) }
func ValueParts(n, d int) int     { return 3 * up(n, tileDepth) * up(d, tileRows) }
func QueryParts(d, lanes int) int { return 3 * up(d, tileDepth) * lanes }
func LineParts(d, lanes int) int  { return 6 * up(d, tileRows) * lanes }

// Products of tiles have up to so many rows, and sums so many terms.
const tileRows, tileDepth = 16, 32

// up rounds n up to a multiple.
func up(n, of int) int { return (n + of - 1) / of * of }

// Row returns the first n elements of row j.
func (r *Rows) Row(j, n int) []float32 { return r.Data[j*r.Stride:][:n:n] }

// From returns the rows from row j on.
func (r Rows) From(j int) Rows {
	return Rows{r.Data[j*r.Stride:], r.Stride}
}

// Ahead is the address of a row, which there need not be.
func (r Rows) Ahead(j int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(r.Data))) + 4*uintptr(j*r.Stride)
}

// A Panel is the argument block of one call. It lives in a worker's scratch: on the stack it would escape through the func fields of Ops.
type Panel struct {
	Lanes int // row length of Qt, P, O, and of the transposed side of a Move
	Width int // lanes in use, a multiple of Ops.Vec
	N     int // keys
	D, C  int // columns of K; columns of V

	Factor  float64   // of the scores,
	Scaled  bool      // which Qt holds already
	Qt      []float32 // [D][Lanes]
	QtParts []uint16  // of Qt times FactorLeft, as Ops.CutQueries makes them: three tiles for each vector of lanes, of 32 columns after another; or nil
	K, V    Rows
	KParts  Parts // of K and V, as Ops.CutKeys and CutValues make them, if a set multiplies those
	VParts  Parts
	P       []float32 // [N][Lanes]
	O       []float32 // [C][Lanes]
	M, L, S []float32 // [Lanes]; S may be nil

	From   int  // Exp, Flash: first row to do, a multiple of Ops.Keys
	Done   int  // Exp, Flash: rows finished
	Scored bool // Flash: the group at From holds scores already

	Edit  Edit
	Plain int       // Flash: rows from here on are hidden from a lane as Edit says by Lo and Hi
	Since []int     // Mix: vector i of the lanes uses rows from Since[i], of which the first is 0 and none is more than Until[0],
	Until []int     // up to Until[i]; both do not decrease. nil: all N. Flash: up to Until[i] too, as Ops.Flash says
	Keep  []float32 // [Lanes]; Raise, Mix: what becomes of O; for Mix, nil is 1

	// Outer, OuterT and Mix ask memory for what comes next, a line in some steps of a tile, AheadBy bytes after the last one. There need be nothing; 0: nothing
	// new is asked for, and AheadBy is 0 too. Outer and OuterT begin at Ahead. If AheadLen is not 0, they set AheadBy so that they ask for so many bytes in
	// even steps. OuterT asks for another line with each, Beside bytes from it. Mix begins with each tile, at the columns at hand of a row at Ahead, after it
	// has exchanged this for Then: these take turns.
	Ahead, Then      uintptr
	AheadBy, ThenBy  int
	AheadLen, Beside int

	// Where Ops.Gathers or CutKeys, Flash without S asks memory for 128 bytes of as many rows as it has of K before the last group, from Next on, NextBy
	// bytes apart. There need be nothing; 0: it asks for nothing new, and NextBy is 0 too.
	Next   uintptr
	NextBy int

	X     []float32 // Outer: [N][XStride]
	XStr  int       // Outer: row length of X
	Y     Rows      // Outer: one row a lane, C columns
	Fresh bool      // Outer, Mix: what is in X, O counts as 0
	Scale []float32 // Outer: [N], nil: none
	Dot   []float32 // DScore: [C][Lanes], the incoming gradient transposed
	Sub   []float32 // DScore: [Lanes]

	VLines   Parts    // DScore: of V, as CutKeys makes them,
	DotParts []uint16 // and of Dot, as CutQueries makes those of Qt
	YParts   []uint16 // Outer: of Y, as CutLines makes them,
	Lower    float32  // and what sums of products are multiplied by
}

// FactorLeft is the factor that sums of products have still to be multiplied by.
func (p *Panel) FactorLeft() float64 {
	if p.Scaled {
		return 1
	}
	return p.Factor
}

// An Edit says what becomes of scores between the product and the weights.
type Edit struct {
	Lo, Hi []int32 // Flash: [Lanes], rows Lo <= Key+j < Hi of the block are visible
	Key    int

	Scale            float64   // Cap: of tanh; Add, Slope: of the score, whose product is not rounded apart
	Add              []float32 // Add: [N][Lanes], the bias
	Factor           float64   // of it
	Bounded          bool      // Add: a sum of finite numbers is -MaxFloat32 at least
	SlopeHi, SlopeLo []float32 // Slope: [Lanes]; the slope is their sum, so that its rounding does not grow with the distance
	Pos              []int32   // Slope: [Lanes], less than 2^31 from any row of the block; distances from 2^24 on are rounded
	Bits             []uint32  // Hide: [N/32, rounded up][Lanes]; row j is visible if bit j%32 of row j/32 is set
}

// A Move is a tile of rows on its way into lanes or out of them.
type Move struct {
	Lanes, Width int
	Rows         int // rows that exist, at most Width: Load zeroes the other lanes, Store leaves them
	D            int
	Tile         []float32 // [D][Lanes]
	Outside      Rows
	Factor       float64   // Load: of each number; 0 is 1
	Scale        []float32 // Store: one factor a lane
}

// Ops is the set of loops of one instruction set. Slices that are too short for the lengths in the panel are a panic, before assembly touches
// anything.
type Ops struct {
	ISA              string
	Lanes, Vec       int // queries in a tile; floats in a vector, the unit of a short tile
	Keys, Cols, Rank int // rows that Score, Mix, Outer take at once

	// Ahead is how far ahead, in bytes, loops that read what is read once best ask memory for it. Streamed are the loops that do so best where it comes
	// from memory in one stream: these, or others that differ in nothing else. A copy of Ops still says those of its original.
	Ahead    int
	Streamed *Ops
	// Room is how many bytes the cache keeps of what Weigh asks for until they are read.
	Room int
	// CutKeys and CutValues cut n rows of d columns in parts, CutQueries a panel's queries, and CutLines rows that stand for lanes. Score, Flash, Mix, DScore and Outer
	// of a set that has them multiply those where the panel has them. They are nil elsewhere. Rows may be said to be single, if all their numbers are of type BF16,
	// and to be multiplied by a factor first. CutValues needs room for as many numbers that are too small, and that may be where the rows are.
	CutKeys    func(to []uint16, from Rows, n, d int, factor float32, single bool) Parts
	CutValues  func(to []uint16, small []float32, from Rows, n, d int, single bool) Parts
	CutQueries func(*Panel)
	CutLines   func(to []uint16, from Rows, n, d int, factor float32)
	// PartsFrom is how many queries must see a key, in the mean, for it to be worth cutting, and how many keys a query.
	PartsFrom int
	// Gathers is whether rows of K, and of V, that lie between others are worth bringing together where they are read several times, whatever caches hold.
	// Flash asks for them then.
	Gathers bool
	// ulps is how far weights are from 2^(score-M) at most, the difference being rounded first in assembly.
	ulps float64
	// FactorFirst is whether Score and Flash take a product less for each score if the panel is Scaled.
	FactorFirst bool

	// Load transposes rows into lanes, Tile[c][lane] = Factor Outside[lane][c]; Store is the way back, Outside[lane][c] = Tile[c][lane]*Scale[lane].
	// It says whether all of these are finite.
	Load  func(*Move)
	Store func(*Move) (finite bool)
	// Score is P[j][lane] = Factor Σ_x K[j][x] Qt[x][lane] for all N rows, without Factor if it is Scaled.
	Score func(*Panel)
	// Cap is P[j][lane] = Edit.Scale tanh(P[j][lane]). In assembly, tanh is within 3.4 ulp.
	Cap func(*Panel)
	// Add is P[j][lane] = Edit.Scale P[j][lane] + Edit.Factor Edit.Add[j][lane], the product with
	// the bias not rounded apart: Edit.Biased. In assembly, that product is an infinity where a
	// float32 cannot hold it.
	Add func(*Panel)
	// Slope is P[j][lane] = Edit.Scale P[j][lane] + (Edit.SlopeHi[lane] + Edit.SlopeLo[lane]) |Edit.Pos[lane]-j|, the product not rounded apart.
	Slope func(*Panel)
	// Hide is P[j][lane] = -Inf where bit j%32 of Edit.Bits[j/32][lane] is 0.
	Hide func(*Panel)
	// Exp is P = 2^(score-M), L += P, S += P*score for rows From to N, leaving early as the package doc says.
	Exp func(*Panel)
	// Flash is Score and Exp fused, for blocks that need no Edit but a mask. When it leaves early, only the group at Done holds scores.
	//
	// With Until, whose last row must be N and the others whole groups, vectors leave at theirs, the first ones first, Unit lanes together; only the last ones
	// may leave where those before do. Factor must be Normal then.
	Flash func(*Panel)
	// Raise lifts M, in the lanes that are over their limit in the group at Done, to within half of their highest score. P before Done, L, S and
	// Keep are multiplied by the power of two that goes with it; where that makes P less than 2^-100, it is 0. From is set to go on from Done.
	Raise func(*Panel)
	// Top makes M the largest score of each lane, or leaves it if it is larger, for the softmax in two passes.
	Top func(*Panel)
	// Finite says that no number is NaN or an infinity.
	Finite func([]float32) bool
	// Inverse is to[i] = 1/from[i], or 0 where that would be +Inf. It says whether all numbers of from are finite. to is as long, and may be it.
	Inverse func(to, from []float32) (finite bool)
	// Mix is O[c][lane] = Keep[lane] O[c][lane] + Σ_j P[j][lane] V[j][c], without the first term if Fresh.
	Mix func(*Panel)
	// DScore is P[j][lane] *= Σ_c V[j][c] Dot[c][lane] - Sub[lane].
	DScore func(*Panel)
	// Outer is X[j][c] += Σ_lane P[j][lane] Y[lane][c] over Width lanes, for N rows and C columns. X counts as 0
	// before if Fresh, and if there is a Scale, row j is multiplied by Scale[j] after. Lanes and Width may be anything.
	Outer func(*Panel)
	// OuterT is Outer with P transposed: X[j][c] += Σ_lane P[lane][j] Y[lane][c], with N numbers in a row of P.
	OuterT func(*Panel)
	// Inner is to[i] = Σ_c x[i][c] y[i][c] over d columns.
	Inner func(to []float32, x, y Rows, d int)
	// Elu is to[i] = from[i]+1 above 0, e^from[i] elsewhere, or 0 where that is below 2^-125; to is as long as from, and may be it. Meanwhile it asks
	// memory for as many numbers from an address on, where there need be nothing.
	Elu func(to, from []float32, ahead uintptr)
	// Rotate turns n = len(cos) pairs of numbers in place, (a, b) to (a*cos - b*sin, a*sin + b*cos): those of x[c] and x[c+n], or, if pairs, of x[2c]
	// and x[2c+1].
	Rotate func(x, cos, sin []float32, pairs bool)
	// Widen is to[j*d+c] = from[j][c] for n rows of d columns: exact, but for the product with a row's scale, which is rounded.
	Widen func(to []float32, from *Cells, n, d int)
	// Narrow rounds to F16 or BF16, to the nearest and to even in the middle; to is as long as from. NaN stays NaN.
	Narrow func(to []uint16, from []float32, t Type)
	// Dot, Weigh and Sum are the three steps of a block of keys when queries are few: scores, weights, output. The caller edits between Dot and
	// Weigh, which leaves early, with Done queries finished, before one with a score over M+Limit, as Exp does. Where V is I8, Sum may leave its
	// scales multiplied into P.
	Dot, Weigh, Sum func(*Few)
	// Peak is the probe of the floating-point limit: it returns the operations that rounds rounds of independent multiply-adds took,
	// or of products of tiles that are as good.
	Peak func(rounds int) int64
	// PeakWidth is how many of them one unit does in a cycle: Vec, where it has one for each element.
	PeakWidth float64
	// Chain is the probe of the clock: it returns the number of additions that rounds rounds took, each a cycle after the one before.
	Chain func(rounds int) int64
	// Slots is the probe of how many instructions the CPU begins in a cycle of Chain: it returns the number that rounds rounds took, none of which waits for
	// another. A thread beside this one on the core takes its part of them, which Peak may not show.
	Slots func(rounds int) int64
	// Read is the probe of memory bandwidth: it reads all of x and returns something that depends on it. That of Streamed is the fastest.
	Read func(x []float32) float32
}

// Group is the number of rows of which blocks, and cuts through them, are multiples: Keys, or as many as are cut into parts together. It is a power of two, as
// Keys and Vec are.
func (o *Ops) Group() int {
	if o.CutKeys != nil {
		return max(o.Keys, tileDepth)
	}
	return o.Keys
}

// Unit is the number of lanes that leave Flash together: a vector, or eight, since products of fewer are slow.
func (o *Ops) Unit() int { return max(o.Vec, min(o.Lanes, 8)) }

// Normal is whether a factor keeps its precision as a float32. Extreme ones, and 0, are left to portable loops.
func Normal(factor float64) bool {
	f := float32(math.Abs(factor))
	return f >= 0x1p-126 && f <= 0x1.fffffep127
}
