// Package asm holds the inner loops of the kernels, as one value per instruction set: Ops.
// Algorithms are written over Ops. So an instruction set is added by supplying loops, without
// touching an algorithm, and an algorithm needs no assembly.
//
// # The panel
//
// Every loop of prefill works on a Panel, the scores or weights of N keys and a tile of queries.
// Queries are in lanes, so a row maximum, a row sum, a rescale and a mask are element-wise over
// lanes, and nothing is reduced horizontally:
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
// Scores are base-2 logarithms: Factor is log2(e)*scale/T.
//
// # Calls
//
// Each family of loops takes a call, a struct of what its loops read: Scores, Softmax, Flash, Mix,
// DScore, Outer, Edit, Dot, Weigh, Walk, Move. A call lives in a worker's scratch: on the stack it
// would escape through the func fields of Ops. Slices are set when a plan or a tile begins; Begin
// sets what changes with each block.
//
// # The lazy maximum
//
// Softmax does not need the maximum, only a reference M near it. Exp leaves M alone while no score
// is above M+Limit. It returns early, with Done rows finished, when a lane of the group at Done
// goes over. Raise lifts M in those lanes, by a whole number, so that multiplying the sums by a
// power of two rounds nothing, and Exp goes on from there. A lane starts at M = Unset, which any
// score exceeds, so the first visible group seeds it; Flash does that itself, as there is nothing
// to multiply. Groups of Shape.Keys rows start at multiples of Keys in the absolute key index: a
// lane's history depends on its own scores alone.
//
// NaN is above nothing: it becomes a weight that is NaN. So does a score of +Inf, to which M is
// raised. Such a lane's L and O are NaN from then on; other lanes are unaffected.
//
// # Sums
//
// A score is summed in the order of the columns, and multiplied by Factor when the sum is done.
//
// A lane of L and of S is summed over the keys of a group, from zero, and then added to the old
// value; a lane of O is summed over the keys of one Mix. A hidden key (score -Inf) contributes an
// exact 0, so dropping hidden keys at either end of a block changes no bit.
//
// # Packing
//
// Products read keys, values and queries as blocks, which Pack makes of rows. Most sets read rows
// in place, and their blocks alias them. AMX multiplies bf16 so much faster than AVX-512 multiplies
// float32 that each number is split into the sum of three bf16 terms. A product of two numbers is
// then the sum of six products of terms; the three that are left out are below 2^-22 of it. Numbers
// of type BF16 have one term, and their products three. Rows that are not packed, and all other
// loops, use the loops of avx512.
//
// An AMX tile takes operands below 2^-126 as 0, and sets such results to 0. So values below 2^-60
// have no terms and are multiplied separately. Nothing is packed where the caller wants the scores
// themselves. Gradients, which may all be small, are lifted by a power of two that goes with the
// blocks (Form). NaN and infinities have a term that is not finite.
//
// # Assembly
//
// Go's runtime cannot stop a goroutine inside assembly, and a garbage collection waits until it has
// stopped all of them. So one call of assembly does at most 2^21 multiply-adds and touches at most
// a MiB. A loop that is given more makes several calls, by rows or columns, with the same bits. A
// call computes at least one group of rows, which exceeds these bounds only where rows have more
// than some 5000 columns. TestBounds counts the calls of all loops.
//
// The sets avx2, avx512, amx and neon are written by internal/asmgen. loops.go checks every length
// before it calls their loops. Their weights are 0 up to 2^-100 (neon: 2^-99.5). Above, they are
// within 1.75 ulp of 2^(score-M), less 2^-100, where the difference is rounded first. Build tag
// purego leaves the sets out.
package asm

import "math"

// Unset is the reference M of a lane that has seen no key yet.
const Unset = -math.MaxFloat32

// Limit is the most that a score may be above M, in base-2 logarithms. It bounds P by 2^40, so that
// O stays below n*2^40*max|V|. With 2^20 keys, values up to 2^67 do not overflow, and a row that
// does is computed by its definition. A lower limit raises references more often.
// Tuning: docs/tuning.md#limit
const Limit = 40

// Ops is the set of loops of one instruction set. A slice that is too short for the lengths in a
// call panics before assembly touches anything.
type Ops struct {
	ISA    string
	Shape  Shape
	Tuning Tuning
	Pack   Pack
	Panel  PanelOps
	Edit   EditOps
	Back   BackOps
	Decode DecodeOps
	Vector VectorOps
	Probe  ProbeOps

	// Streamed are the loops that read rows fastest when they come from memory in one stream: these
	// loops, or others that differ in nothing else. A copy of Ops still has those of its original.
	Streamed *Ops
	// ulps is the largest error of weights against 2^(score-M), in units in the last place. In
	// assembly the difference is rounded first.
	ulps float64
}

// Shape is the geometry of the loops. All but Cols and Rank are powers of two, or multiples of one.
type Shape struct {
	Lanes int // queries in a tile, at most 64
	Vec   int // floats in a vector, the unit of a short tile
	Keys  int // rows that Score computes at once
	Cols  int // columns that Mix computes at once
	Rank  int // rows that Outer computes at once
	Group int // blocks, and parts of them, begin at multiples of this many rows; Keys or more
}

// Unit returns the number of lanes that leave Flash together: a vector, or eight, as products of
// fewer lanes are slow.
func (s *Shape) Unit() int { return max(s.Vec, min(s.Lanes, 8)) }

// PanelOps are the loops of prefill.
type PanelOps struct {
	// Score computes P[j][lane] = Factor Σ_x K[j][x] Qt[x][lane] for all N rows.
	Score func(*Scores)
	// Exp computes P = 2^(score-M), L += P, S += P*score for rows From..N. It leaves early as
	// described in the package doc.
	Exp func(*Softmax)
	// Flash is Score and Exp fused, for blocks that need no Edit but a band. When it leaves early,
	// only the group at Done holds scores.
	Flash func(*Flash)
	// Raise lifts M, in the lanes that are over their limit in the group at Done, to within half of
	// their highest score. It multiplies P before Done, L, S and Keep by the power of two that goes
	// with it; where that makes P less than 2^-100, P becomes 0. It sets From and Scored to go on
	// from Done.
	Raise func(*Softmax)
	// Top makes M the largest score of each lane, or leaves it if it is larger, for the softmax in
	// two passes.
	Top func(*Softmax)
	// Mix computes O[c][lane] = Keep[lane] O[c][lane] + Σ_j P[j][lane] V[j][c], without the first
	// term if Fresh.
	Mix func(*Mix)
}

// EditOps change scores between the product and the weights.
type EditOps struct {
	// Cap computes P[j][lane] = Scale tanh(P[j][lane]). In assembly, tanh is within 3.4 ulp.
	Cap func(*Edit)
	// Add computes P[j][lane] = Scale P[j][lane] + Factor Bias[j][lane], rounding the product with
	// the bias only with the sum: Edit.Biased. In assembly, that product is an infinity where a
	// float32 cannot hold it.
	Add func(*Edit)
	// Slope computes P[j][lane] = Scale P[j][lane] + (SlopeHi[lane] + SlopeLo[lane]) |Pos[lane]-j|,
	// rounding the product only with the sum.
	Slope func(*Edit)
	// Hide sets P[j][lane] = -Inf where bit j%32 of Bits[j/32][lane] is 0.
	Hide func(*Edit)
}

// BackOps are the loops of the backward pass, and the products of rows that other kernels use.
type BackOps struct {
	// DScore computes P[j][lane] *= Σ_c V[j][c] Dot[c][lane] - Sub[lane].
	DScore func(*DScore)
	// Outer computes X[j][c] += Σ_lane P[j][lane] Y[lane][c] over Width lanes, for N rows and C
	// columns. If there is a Scale, it then multiplies row j by Scale[j].
	Outer func(*Outer)
	// OuterT is Outer with P transposed, and without Fresh and Scale: X[j][c] += Σ_lane P[lane][j]
	// Y[lane][c], with N numbers in a row of P.
	OuterT func(*Outer)
	// Inner computes to[i] = Σ_c x[i][c] y[i][c] over d columns.
	Inner func(to []float32, x, y Rows, d int)
}

// DecodeOps are the three steps of a block of keys in decoding: scores, weights, output. The caller
// edits between Dot and Weigh.
type DecodeOps struct {
	// Dot computes P[r][j] = Factor Σ_x Q[r][x] K[j][x].
	Dot func(*Dot)
	// Weigh computes P = 2^(P-M), L += Σ P, S += Σ P*score for queries From..R. It leaves early,
	// with Done queries finished, before one with a score over M+Limit.
	Weigh func(*Weigh)
	// Sum computes O[r][c] += Σ_j P[r][j] V[j][c]. Where V is I8, it may leave its scales
	// multiplied into P.
	Sum func(*Walk)
}

// VectorOps move, convert and check rows.
type VectorOps struct {
	// Load transposes rows into lanes, Tile[c][lane] = Factor Outside[lane][c].
	Load func(*Move)
	// Store transposes lanes into rows, Outside[lane][c] = Tile[c][lane]*Scale[lane], and reports
	// whether all results are finite.
	Store func(*Move) (finite bool)
	// Rotate rotates n = len(cos) pairs of numbers in place, (a, b) to (a*cos - b*sin, a*sin +
	// b*cos): x[c] and x[c+n] or, if pairs, x[2c] and x[2c+1].
	Rotate func(x, cos, sin []float32, pairs bool)
	// Widen computes to[j*d+c] = from[j][c] for n rows of d columns. It is exact, but for the
	// product with a row's scale, which is rounded.
	Widen func(to []float32, from *Cells, n, d int)
	// Narrow rounds to F16 or BF16, to nearest even; to is as long as from. NaN stays NaN.
	Narrow func(to []uint16, from []float32, t Type)
	// Finite reports whether no number is NaN or an infinity.
	Finite func([]float32) bool
	// Inverse computes to[i] = 1/from[i], or 0 where that would be +Inf. It reports whether all
	// numbers of from are finite. to is as long as from, and may be from.
	Inverse func(to, from []float32) (finite bool)
	// Elu computes to[i] = from[i]+1 above 0, e^from[i] elsewhere, or 0 where that is below 2^-125.
	// to is as long as from, and may be from. Meanwhile it prefetches as many numbers starting at
	// ahead, which need not exist.
	Elu func(to, from []float32, ahead uintptr)
}

// ProbeOps measure the limits of a machine.
type ProbeOps struct {
	// Peak returns the number of operations in rounds rounds of independent multiply-adds, or of
	// equivalent products.
	Peak func(rounds int) int64
	// PeakWidth is the number of multiply-adds that one unit does in a cycle.
	PeakWidth float64
	// Chain returns the number of additions in rounds rounds, each a cycle after the one before. It
	// measures the clock.
	Chain func(rounds int) int64
	// Slots returns the number of instructions in rounds rounds, none of which waits for another.
	// With Chain it measures how many the CPU begins in a cycle. A busy sibling thread takes a
	// share of them, which Peak may not show.
	Slots func(rounds int) int64
	// Read reads all of x and returns something that depends on it. It measures the bandwidth of
	// memory; Streamed's is the fastest.
	Read func(x []float32) float32
}

// Normal reports whether a factor keeps its precision as a float32. Portable loops take the others,
// extreme ones and 0.
func Normal(factor float64) bool {
	f := float32(math.Abs(factor))
	return f >= 0x1p-126 && f <= 0x1.fffffep127
}

// ones are the initial values of Keep.
var ones = func() (x [64]float32) {
	for i := range x {
		x[i] = 1
	}
	return x
}()
