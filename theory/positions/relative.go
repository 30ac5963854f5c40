package positions

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TableRow returns the row of a table of relative positions for query i of nq and key j of nk. The
// table runs from keys far before to keys far after. With clip 0 it has a row for each distance,
// j-i+nq-1 of nq+nk-1. Otherwise distances j - pos_i beyond clip share the row of clip. The table
// then has 2 clip+1 rows and does not grow with the sequence. (The tutorial's R^(i-j) counts the
// other way, and states no size: E-38.)
func TableRow(i, j, nq, nk, clip int) int {
	if clip == 0 {
		return j - i + nq - 1
	}
	return min(max(j-(nk-nq+i), -clip), clip) + clip
}

// tableRows returns the number of rows of such a table.
func tableRows(nq, nk, clip int) int {
	if clip == 0 {
		return nq + nk - 1
	}
	return 2*clip + 1
}

// expect panics unless a table has the given shape.
func expect(what string, table mat.Matrix, rows, columns int) {
	if r, c := table.Dims(); r != rows || c != columns {
		panic(fmt.Sprintf("positions: %s is %d by %d, want %d by %d", what, r, c, rows, columns))
	}
}

// Relative returns q_i . r_(j-i): the addition of a table of relative positions to the products of
// queries with nk keys, before the scale.
func Relative(q, table mat.Matrix, nk, clip int) *mat.Dense {
	nq, d := q.Dims()
	expect("the table", table, tableRows(nq, nk, clip), d)
	var each mat.Dense // every query with every row
	each.Mul(q, table.T())
	to := mat.NewDense(nq, nk, nil)
	to.Apply(func(i, j int, _ float64) float64 { return each.At(i, TableRow(i, j, nq, nk, clip)) }, to)
	return to
}

// RelativeValues returns sum_j a_ij r_(j-i): the addition of a second table to the outputs, which
// makes values depend on distance too (Shaw et al.). Kernels have no such table; the tutorial does
// not mention it.
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

// XLTerms holds the four terms of the score of Transformer-XL, before the scale:
//
//	Content         q_i . k_j          query i with the content of key j
//	Position        q_i . r_(j-i)      query i with the distance
//	GlobalContent   u . k_j            one global query with the content of key j
//	GlobalPosition  v . r_(j-i)        one global query with the distance
type XLTerms struct{ Content, Position, GlobalContent, GlobalPosition *mat.Dense }

// XL returns the four terms of the score of Transformer-XL. The table has the rows of TableRow with
// clip 0.
func XL(q, k, table mat.Matrix, u, v []float64) XLTerms {
	nq, d := q.Dims()
	nk, _ := k.Dims()
	if len(u) != d || len(v) != d {
		panic(fmt.Sprintf("positions: u has %d numbers and v %d, queries have %d", len(u), len(v), d))
	}
	repeated := func(row []float64) *mat.Dense { // the same query in every row
		m := mat.NewDense(nq, d, nil)
		for i := range nq {
			m.SetRow(i, row)
		}
		return m
	}
	var t XLTerms
	t.Content, t.GlobalContent = new(mat.Dense), new(mat.Dense)
	t.Content.Mul(q, k.T())
	t.GlobalContent.Mul(repeated(u), k.T())
	t.Position = Relative(q, table, nk, 0)
	t.GlobalPosition = Relative(repeated(v), table, nk, 0)
	return t
}

// Sum returns the score, the sum of the four terms.
func (t XLTerms) Sum() *mat.Dense {
	var s mat.Dense
	s.Add(t.Content, t.Position)
	s.Add(&s, t.GlobalContent)
	s.Add(&s, t.GlobalPosition)
	return &s
}

// XLAsTerms returns the same score in terms that kernels have: queries q+u and a bias. The queries
// q+u meet both the keys and the table. The bias (v-u).r_(j-i) corrects the table's part, which has
// u where it needs v. It, too, is before the scale.
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
