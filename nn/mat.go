package nn

import (
	"fmt"

	"attnlab/attn"
)

// A Mat is a view of a matrix of float32: element (i, j) is Data[i*Stride+j].
type Mat struct {
	Data               []float32
	Rows, Cols, Stride int
}

// NewMat returns a matrix of zeros.
func NewMat(rows, cols int) Mat { return Mat{attn.Alloc[float32](rows * cols), rows, cols, cols} }

// Row returns row i.
func (m Mat) Row(i int) []float32 { return m.Data[i*m.Stride:][:m.Cols:m.Cols] }

// Part returns a view of rows r to r+rows and columns c to c+cols.
func (m Mat) Part(r, rows, c, cols int) Mat {
	if r < 0 || c < 0 || rows < 0 || cols < 0 || r+rows > m.Rows || c+cols > m.Cols {
		panic(fmt.Sprintf("nn: a part of %d rows from %d and %d columns from %d is outside a matrix of %v", rows, r, cols, c, m))
	}
	if rows == 0 || cols == 0 {
		return Mat{Rows: rows, Cols: cols}
	}
	return Mat{m.Data[r*m.Stride+c:][:(rows-1)*m.Stride+cols], rows, cols, m.Stride}
}

// First returns a view of the first rows.
func (m Mat) First(rows int) Mat { return m.Part(0, rows, 0, m.Cols) }

// Clear sets every element to 0.
func (m Mat) Clear() {
	for i := range m.Rows {
		clear(m.Row(i))
	}
}

func (m Mat) String() string { return fmt.Sprintf("%d x %d", m.Rows, m.Cols) }
