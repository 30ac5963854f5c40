package asm

import (
	"fmt"
	"unsafe"
)

// Rows is a block of rows in place: row j starts at Data[j*Stride].
type Rows struct {
	Data   []float32
	Stride int
}

// Row returns the first n elements of row j. For n = 0 it needs no memory.
func (r *Rows) Row(j, n int) []float32 {
	if n == 0 {
		return nil
	}
	return r.Data[j*r.Stride:][:n:n]
}

// From returns the rows starting at row j.
func (r Rows) From(j int) Rows { return Rows{r.Data[j*r.Stride:], r.Stride} }

// Prefetch returns a request to prefetch the rows.
func (r Rows) Prefetch() Prefetch {
	return Prefetch{uintptr(unsafe.Pointer(unsafe.SliceData(r.Data))), 4 * r.Stride}
}

// A Prefetch is a request for rows that are needed later. A loop prefetches them while it works on
// others. Its addresses need not exist. The zero value prefetches nothing.
type Prefetch struct {
	At uintptr // the first row
	By int     // bytes from one row to the next
}

// Shift returns the prefetch moved by a number of bytes in each row.
func (p Prefetch) Shift(bytes int) Prefetch {
	if p.At != 0 {
		p.At += uintptr(bytes)
	}
	return p
}

// A Panel holds the scores of a block, and later the weights computed from them: a row of lanes for
// each key.
type Panel struct {
	Lanes int       // length of a row
	Width int       // lanes in use, a multiple of Shape.Vec
	N     int       // rows
	P     []float32 // [N][Lanes]
}

// A Product holds the operands of scores: each score is Factor Σ_x key[x] query[x].
type Product struct {
	D       int // columns of keys and queries
	Queries QueryTile
	Keys    KeyBlock
	Factor  float64 // multiplies the finished sums; 1 costs no multiplication
	//lint:ignore U1000 read by assembly: Factor is 1
	plain bool
}

// Scores is a call of Score.
type Scores struct {
	Panel
	Product
}

// Sums are the running sums of a softmax, one for each lane of a tile or each query of a RowPanel.
type Sums struct {
	M []float32 // reference of the weights
	L []float32 // sum of the weights
	S []float32 // sum of the weights times their scores; nil if it is not wanted
}

// From returns the sums starting at a lane.
func (s Sums) From(lane int) Sums {
	s.M, s.L = s.M[lane:], s.L[lane:]
	if s.S != nil {
		s.S = s.S[lane:]
	}
	return s
}

// A Softmax is a call of Exp, Raise or Top. Exp and Flash process rows From..N and leave early,
// with Done rows finished, when a lane goes over its limit. Raise then lifts M and prepares the
// call to continue.
type Softmax struct {
	Panel
	Sums
	Keep []float32 // [Lanes]: product of Raise's factors, the factor of O in Mix; unused by Exp
	From int       // first row to process, a multiple of Shape.Keys
	Done int       // rows finished
	// Scored tells Flash that the group at From holds scores already, as Raise leaves it.
	Scored bool
}

// Begin starts n rows: no row is done, and Keep is 1.
func (s *Softmax) Begin(n int) {
	s.N, s.From, s.Done, s.Scored = n, 0, 0, false
	copy(s.Keep, ones[:])
}

// A Band gives the keys that each lane sees: Lo <= key < Hi.
type Band struct {
	Lo, Hi []int32 // [Lanes]
	Key    int     // key of row 0
	Plain  int     // every lane sees all rows before this one
}

// A Flash is a call of the fused softmax step.
type Flash struct {
	Softmax
	Product
	Band
	// Until lets vectors of lanes leave early: vector i processes rows up to Until[i]; nil: all
	// rows. The last entry is N and the others are whole groups. Unit lanes leave together, those
	// with the earliest keys first. Every row before an entry must be visible to the lanes that
	// stay. Factor must be Normal.
	Until []int
	Prefetch
}

// Begin starts n keys at a key. Set Keys before the call.
func (f *Flash) Begin(key, n int) {
	f.Softmax.Begin(n)
	f.Key, f.Plain, f.Until, f.Prefetch = key, n, nil, Prefetch{}
}

// A Mix is a call of Mix, the product of weights and values.
type Mix struct {
	Panel
	C      int // columns of the values
	Values ValueBlock
	O      []float32 // [C][Lanes]
	Keep   []float32 // [Lanes]: factor of the old O; nil is 1
	Fresh  bool      // the old O counts as 0
	// Vector i of the lanes uses rows Since[i]..Until[i]. Both are in ascending order; Since begins
	// with 0 and does not exceed Until[0]. nil: all vectors use all rows.
	Since, Until []int
	// Each micro-tile prefetches its columns of the rows at Next, and then swaps Next and Then.
	Next, Then Prefetch
}

// Begin starts n rows of weights.
func (m *Mix) Begin(n int) {
	m.N, m.Since, m.Until, m.Next, m.Then = n, nil, nil, Prefetch{}, Prefetch{}
}

// AddPrefetch adds a request. Mix serves the last two.
func (m *Mix) AddPrefetch(p Prefetch) { m.Next, m.Then = p, m.Next }

// A DScore is a call of DScore, which turns weights into gradients of scores.
type DScore struct {
	Panel
	C      int       // columns of the values
	Dot    QueryTile // gradients of the rows of the output
	Values KeyBlock  // values in the place of keys
	Sub    []float32 // [Lanes], times 2^Lift
}

// packed reports whether both operands are packed, so that DScore multiplies terms.
func (d *DScore) packed() bool { return d.Dot.terms != nil && d.Values.terms != nil }

// Lift returns the power of two by which the gradients are too large. Packed operands are lifted,
// so that numbers too small for terms keep their bits until Outer and the caller scale them back.
func (d *DScore) Lift() int {
	if !d.packed() {
		return 0
	}
	return d.Dot.lift + d.Values.lift
}

// An Outer is a call of Outer or OuterT: products of columns of weights with rows of lanes. Its
// panel may have any Lanes and Width.
type Outer struct {
	Panel
	C       int       // columns
	X       []float32 // [N][XStride]: what the sums are added to
	XStride int
	Y       LineBlock // a row for each lane
	Fresh   bool      // the old X counts as 0
	Keep    []float32 // [N]: factor of a row of the old X; nil is 1
	Scale   []float32 // [N]: factor of a row of X, applied last; nil is 1
	Lift    int       // P is too large by this power of two, and sums are divided by it
	Stream
}

// mustBePlain panics if P is lifted: only the loop for packed rows divides by the lift.
func (p *Outer) mustBePlain() {
	if p.Lift != 0 {
		panic(fmt.Errorf("asm: Outer: Lift is %d and Y is not packed: pack Y, as the operands of DScore were", p.Lift))
	}
}

// A Stream is a request of Outer and OuterT to prefetch lines of memory, some with every four steps
// of a micro-tile's sums. The zero value prefetches nothing.
type Stream struct {
	At     uintptr
	By     int // bytes from one line to the next; Outer sets it if Len is not 0
	Len    int // bytes to prefetch, evenly spread; 0: lines By apart
	Beside int // distance in bytes to a second line that OuterT prefetches with each
}

// A Move is a call of Load or Store, which move a tile of rows into lanes or out of them.
type Move struct {
	Lanes, Width int
	Rows         int // rows that exist, at most Width; Load zeroes other lanes, Store skips them
	D            int
	Tile         []float32 // [D][Lanes]
	Outside      Rows
	Factor       float64   // Load: factor of each number; 0 is 1
	Scale        []float32 // Store: factor of each lane
}
