package asm

// Packing copies operands into the form that a set's products read. Most sets read rows in place:
// their blocks alias the rows and take no memory, and packing never pays. A packed block aliases
// its rows too, for loops that read rows.

// A KeyBlock holds rows that Score, Flash or DScore multiply by a tile of queries.
type KeyBlock struct{ packed }

// A ValueBlock holds rows that Mix multiplies by weights and sums.
type ValueBlock struct {
	packed
	small []float32 // [n][cols]: values too small for terms, and 0 elsewhere
	cols  int       // 0: there are no such values
}

// A LineBlock holds rows for Outer, one for each lane.
type LineBlock struct{ packed }

// A QueryTile holds queries, or gradients of rows, in lanes.
type QueryTile struct {
	lanes []float32 // [columns][Lanes]
	terms []uint16  // terms of the lanes' numbers; nil: loops read the lanes
	each  int       // elements of terms for each lane of a vector
	lift  int       // the terms are too large by this power of two
}

// packed holds the fields that all blocks share.
type packed struct {
	rows  Rows
	terms []uint16 // terms of the rows' numbers; nil: loops read the rows
	each  int      // elements of terms for each row of a group
	//lint:ignore U1000 used by assembly: only the first term of each number counts
	single bool
	lift   int // the terms are too large by this power of two
}

func (p packed) from(j int) packed {
	if p.rows.Data != nil {
		p.rows = p.rows.From(j)
	}
	if p.terms != nil {
		p.terms = p.terms[j*p.each:]
	}
	return p
}

// From returns the block starting at row j, the first of a group.
func (b KeyBlock) From(j int) KeyBlock { return KeyBlock{b.from(j)} }

// From returns the block starting at row j, the first of a group.
func (b ValueBlock) From(j int) ValueBlock {
	b.packed = b.from(j)
	if b.cols > 0 {
		b.small = b.small[j*b.cols:]
	}
	return b
}

// From returns the tile starting at a lane, the first of a vector.
func (q QueryTile) From(lane int) QueryTile {
	q.lanes = q.lanes[min(lane, len(q.lanes)):]
	if q.terms != nil {
		q.terms = q.terms[lane*q.each:]
	}
	return q
}

// From returns the block starting at a lane, the first of a vector.
func (b LineBlock) From(lane int) LineBlock { return LineBlock{b.from(lane)} }

// KeyRows, ValueRows and LineRows return blocks that alias rows; QueryLanes returns a tile that
// aliases lanes. Every set takes them.
func KeyRows(r Rows) KeyBlock              { return KeyBlock{packed{rows: r}} }
func ValueRows(r Rows) ValueBlock          { return ValueBlock{packed: packed{rows: r}} }
func LineRows(r Rows) LineBlock            { return LineBlock{packed{rows: r}} }
func QueryLanes(lanes []float32) QueryTile { return QueryTile{lanes: lanes} }

// A Kind is one of the forms that rows are packed into.
type Kind uint8

// Kinds of blocks.
const (
	Keys Kind = iota
	Values
	Lines
	Queries
)

// A Pass is the pass that operands are packed for.
type Pass uint8

// Passes.
const (
	Forward Pass = iota
	Backward
)

// A Form describes the rows to pack and how to scale them.
type Form struct {
	Type Type // format that the float32 numbers came from; those of BF16 need fewer terms
	Lift bool // multiply by a power of two, for rows whose numbers may all be small
}

// Pack is the packing of an instruction set. The zero value aliases rows.
type Pack struct {
	worth   func(pass Pass, d, queries, keys int) bool
	size    func(kind Kind, n, d int) int
	keys    func(to *KeyBlock, n, d int, f Form)
	values  func(to *ValueBlock, n, d int, f Form)
	lines   func(to *LineBlock, n, d int, f Form)
	queries func(to *QueryTile, width, d int, factor float64, f Form)
}

// Worth reports whether packing pays for rows of d columns. queries is the mean number of queries
// that see a key, and keys the mean number of keys that a query sees.
func (p *Pack) Worth(pass Pass, d, queries, keys int) bool {
	return p.worth != nil && d > 0 && p.worth(pass, d, queries, keys)
}

// Always returns the packing with a Worth that is true wherever packing is possible, for tests.
func (p Pack) Always() Pack {
	if p.worth != nil {
		p.worth = func(Pass, int, int, int) bool { return true }
	}
	return p
}

// Size returns the memory of a block of n rows of d columns, in float32 numbers; for Queries, n is
// the number of lanes. It is 0 where blocks alias rows.
func (p *Pack) Size(kind Kind, n, d int) int {
	if p.size == nil {
		return 0
	}
	return p.size(kind, n, d)
}

// terms allocates a block's terms: Size, without the small values of a ValueBlock.
func (p *Pack) terms(kind Kind, n, d int) []uint16 {
	size := p.Size(kind, n, d)
	if kind == Values && size > 0 {
		size -= n * d
	}
	if size == 0 {
		return nil
	}
	return make([]uint16, 2*size)
}

// NewKeys allocates a block that Keys fills with up to n rows of d columns.
func (p *Pack) NewKeys(n, d int) KeyBlock { return KeyBlock{packed{terms: p.terms(Keys, n, d)}} }

// NewValues allocates a block that Values fills.
func (p *Pack) NewValues(n, d int) ValueBlock {
	b := ValueBlock{packed: packed{terms: p.terms(Values, n, d)}}
	if b.terms != nil {
		b.small = make([]float32, n*d)
	}
	return b
}

// NewLines allocates a block of n lanes that Lines fills.
func (p *Pack) NewLines(n, d int) LineBlock { return LineBlock{packed{terms: p.terms(Lines, n, d)}} }

// NewQueries allocates a tile of n lanes and d columns, whose terms Queries fills.
func (p *Pack) NewQueries(n, d int) QueryTile {
	return QueryTile{lanes: make([]float32, n*d), terms: p.terms(Queries, n, d)}
}

// Rows returns the rows that the block was packed from.
func (p packed) Rows() Rows { return p.rows }

// Lanes returns the tile's lanes, [d][lanes], for Load to fill before they are packed.
func (q *QueryTile) Lanes() []float32 { return q.lanes }

// Keys packs n rows of d columns into a block.
func (p *Pack) Keys(to *KeyBlock, from Rows, n, d int, f Form) {
	if to.rows = from; p.keys != nil {
		p.keys(to, n, d, f)
	}
}

// Values packs n rows of d columns into a block.
func (p *Pack) Values(to *ValueBlock, from Rows, n, d int, f Form) {
	if to.rows = from; p.values != nil {
		p.values(to, n, d, f)
	}
}

// Lines packs rows of d columns into a block, one row for each of n lanes.
func (p *Pack) Lines(to *LineBlock, from Rows, n, d int, f Form) {
	if to.rows = from; p.lines != nil {
		p.lines(to, n, d, f)
	}
}

// Queries packs a tile's lanes. Products with the tile are to be multiplied by factor: the terms
// include it, while loops that read the lanes multiply by it themselves.
func (p *Pack) Queries(to *QueryTile, width, d int, factor float64, f Form) {
	if p.queries != nil {
		p.queries(to, width, d, factor, f)
	}
}
