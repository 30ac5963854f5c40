package positions

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TableRow is the row of a table of relative positions that query i of nq meets key j of nk with.
// The table goes from keys far before to keys far after. With clip 0 it has a row for each distance
// there is, j-i+nq-1 of nq+nk-1. Otherwise distances j - pos_i beyond clip share a row with it: the
// table has 2 clip+1 rows, and does not grow with the sequence. (The tutorial's R^(i-j) counts the
// other way round, and says no size: E-38.)
func TableRow(i, j, nq, nk, clip int) int {
	if clip == 0 {
		return j - i + nq - 1
	}
	return min(max(j-(nk-nq+i), -clip), clip) + clip
}

// tableRows is how many rows that is.
func tableRows(nq, nk, clip int) int {
	if clip == 0 {
		return nq + nk - 1
	}
	return 2*clip + 1
}

// expect panics where a table is not what its use needs.
func expect(what string, table mat.Matrix, rows, columns int) {
	if r, c := table.Dims(); r != rows || c != columns {
		panic(fmt.Sprintf("positions: %s is %d by %d, want %d by %d", what, r, c, rows, columns))
	}
}

// Relative is q_i . r_(j-i): what a table of relative positions adds to the products of queries
// with nk keys, before the scale.
func Relative(q, table mat.Matrix, nk, clip int) *mat.Dense {
	nq, d := q.Dims()
	expect("the table", table, tableRows(nq, nk, clip), d)
	var each mat.Dense // of every query with every row
	each.Mul(q, table.T())
	to := mat.NewDense(nq, nk, nil)
	to.Apply(func(i, j int, _ float64) float64 { return each.At(i, TableRow(i, j, nq, nk, clip)) }, to)
	return to
}

// RelativeValues is sum_j a_ij r_(j-i): what a second table adds to the outputs, so that a value
// too knows how far it comes (Shaw et al.). Kernels have no such table; the tutorial does not
// mention it.
func RelativeValues(weights, table mat.Matrix, clip int) *mat.Dense {
	nq, nk := weights.Dims()
	_, dv := table.Dims()
	expect("the table", table, tableRows(nq, nk, clip), dv)
	to := mat.NewDense(nq, dv, nil)
	for i := range nq {
		for j := range nk {
			floats.AddScaled(to.RawRowView(i), weights.At(i, j), mat.Row(nil, TableRow(i, j, nq, nk, clip), table))
		}
	}
	return to
}

// XLTerms are the four terms of the score of Transformer-XL, before the scale:
//
//	Content         q_i . k_j          what a query asks of a key
//	Position        q_i . r_(j-i)      what it asks of a distance
//	GlobalContent   u . k_j            what every query asks of a key
//	GlobalPosition  v . r_(j-i)        and of a distance
type XLTerms struct{ Content, Position, GlobalContent, GlobalPosition *mat.Dense }

// XL takes the score of Transformer-XL apart. The table is one of TableRow with clip 0.
func XL(q, k, table mat.Matrix, u, v []float64) XLTerms {
	nq, d := q.Dims()
	nk, _ := k.Dims()
	if len(u) != d || len(v) != d {
		panic(fmt.Sprintf("positions: u has %d numbers and v %d, queries have %d", len(u), len(v), d))
	}
	again := func(row []float64) *mat.Dense { // the same query in every row
		m := mat.NewDense(nq, d, nil)
		for i := range nq {
			m.SetRow(i, row)
		}
		return m
	}
	var t XLTerms
	t.Content, t.GlobalContent = new(mat.Dense), new(mat.Dense)
	t.Content.Mul(q, k.T())
	t.GlobalContent.Mul(again(u), k.T())
	t.Position = Relative(q, table, nk, 0)
	t.GlobalPosition = Relative(again(v), table, nk, 0)
	return t
}

// Sum is the score.
func (t XLTerms) Sum() *mat.Dense {
	var s mat.Dense
	s.Add(t.Content, t.Position)
	s.Add(&s, t.GlobalContent)
	s.Add(&s, t.GlobalPosition)
	return &s
}

// XLAsTerms says the same with terms that kernels have: queries q+u, which meet the keys and the
// table alike, and a bias by distance, (v-u).r_(j-i), for what the table then has had too much of u
// and too little of v. The bias, too, is before the scale.
func XLAsTerms(q, table mat.Matrix, u, v []float64, nk int) (queries, bias *mat.Dense) {
	queries = mat.DenseCopyOf(q)
	nq, d := queries.Dims()
	rest := mat.NewDense(nq, d, nil)
	for i := range nq {
		floats.Add(queries.RawRowView(i), u)
		floats.SubTo(rest.RawRowView(i), v, u)
	}
	return queries, Relative(rest, table, nk, 0)
}
