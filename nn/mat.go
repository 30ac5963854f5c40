package nn

import (
	"fmt"

	"attnlab/attn"
)

// A Mat is a matrix of float32 in place: element (i, j) is Data[i*Stride+j].
type Mat struct {
	Data               []float32
	Rows, Cols, Stride int
}

// NewMat is a matrix of zeros.
func NewMat(rows, cols int) Mat { return Mat{attn.Alloc[float32](rows * cols), rows, cols, cols} }

// Row is row i.
func (m Mat) Row(i int) []float32 { return m.Data[i*m.Stride:][:m.Cols:m.Cols] }

// Part is rows r to r+rows and columns c to c+cols, in place.
func (m Mat) Part(r, rows, c, cols int) Mat {
	if r < 0 || c < 0 || rows < 0 || cols < 0 || r+rows > m.Rows || c+cols > m.Cols {
		panic(fmt.Sprintf("nn: rows %d+%d and columns %d+%d of a matrix of %v", r, rows, c, cols, m))
	}
	if rows == 0 || cols == 0 {
		return Mat{Rows: rows, Cols: cols}
	}
	return Mat{m.Data[r*m.Stride+c:][:(rows-1)*m.Stride+cols], rows, cols, m.Stride}
}

// First is the first rows, in place.
func (m Mat) First(rows int) Mat { return m.Part(0, rows, 0, m.Cols) }

// Clear makes every element 0.
func (m Mat) Clear() {
	for i := range m.Rows {
		clear(m.Row(i))
	}
}

func (m Mat) String() string { return fmt.Sprintf("%d x %d", m.Rows, m.Cols) }
