package attn

import (
	"errors"
	"fmt"
	"math"
)

// RopeTables returns the operands Cos and Sin of a Rope. Row m is position m and has dims/2 angles;
// angle c is m * base^(-2c/dims). The usual base is 10000. If dims is less than the columns of Q
// and K, the remaining columns are not rotated.
func RopeTables(base float64, positions, dims int) (cos, sin Tensor) {
	n := dims / 2
	cos, sin = New(BHSD, 1, positions, 1, n), New(BHSD, 1, positions, 1, n)
	for m := range positions {
		x, y := cos.Row(0, m, 0), sin.Row(0, m, 0)
		for c := range n {
			s, cs := math.Sincos(float64(m) * math.Pow(base, -2*float64(c)/float64(dims)))
			x[c], y[c] = float32(cs), float32(s)
		}
	}
	return cos, sin
}

// Turn rotates the row x in place by the angles of one position.
func (r Rope) Turn(x, cos, sin []float32) {
	n := len(cos)
	first, step, apart := 0, 1, n
	if r == RopeInterleaved {
		step, apart = 2, 1
	}
	for c, i := 0, first; c < n; c, i = c+1, i+step {
		a, b := x[i], x[i+apart]
		x[i] = float32(a*cos[c]) - float32(b*sin[c])
		x[i+apart] = float32(a*sin[c]) + float32(b*cos[c])
	}
}

// Rotate writes the rows of from, rotated by their positions, to the rows of to. The two have the
// same shape, and may be one tensor. Row s of batch b is at positions[b*S+s], or at s if positions
// is nil. Rotate changes nothing if it returns an error.
func Rotate(r Rope, to, from, cos, sin Tensor, positions []int32) error {
	switch {
	case r != RopeInterleaved && r != RopeHalves:
		return fmt.Errorf("rotate: rope is %d, want RopeInterleaved (%d) or RopeHalves (%d)", r, RopeInterleaved, RopeHalves)
	case to.Shape() != from.Shape():
		return fmt.Errorf("rotate: to has shape %s and from %s, want the same", to.Shape(), from.Shape())
	case cos.Shape() != sin.Shape():
		return fmt.Errorf("rotate: sin has shape %s and cos %s, want the same", sin.Shape(), cos.Shape())
	case cos.B != 1 && cos.B != from.B || cos.H != 1 || 2*cos.D > from.D:
		return fmt.Errorf("rotate: cos and sin have shape %s, want batch 1 or %d, head 1, and dim (angles) up to half of %d", cos.Shape(), from.B, from.D)
	case positions != nil && len(positions) != from.B*from.S:
		return fmt.Errorf("rotate: %d positions for %d rows, want one for each row", len(positions), from.B*from.S)
	}
	for _, o := range [...]struct {
		name string
		t    *Tensor
	}{{"to", &to}, {"from", &from}, {"cos", &cos}, {"sin", &sin}} {
		if err := o.t.fits("rotate: "+o.name, o.t.Type, o.t.B, o.t.S, o.t.H, o.t.D); err != nil {
			return err
		}
	}
	if err := to.writable("rotate: to"); err != nil {
		return err
	}
	if cos.Type != F32 || sin.Type != F32 {
		return errors.New("rotate: cos and sin must be f32")
	}
	at := func(b, s int) int {
		if positions != nil {
			return int(positions[b*from.S+s])
		}
		return s
	}
	for b := range from.B {
		for s := range from.S {
			if pos := at(b, s); pos < 0 || pos >= cos.S {
				return fmt.Errorf("rotate: row %d of batch %d is at position %d, want 0 to %d, the positions of the table", s, b, pos, cos.S-1)
			}
		}
	}
	row := make([]float32, from.D)
	for b := range from.B {
		for s := range from.S {
			pos := at(b, s)
			c, sn := cos.Row(b%cos.B, pos, 0), sin.Row(b%sin.B, pos, 0)
			for h := range from.H {
				copy(row, from.Read(row, b, s, h))
				r.Turn(row, c, sn)
				to.Write(row, b, s, h)
			}
		}
	}
	return nil
}
