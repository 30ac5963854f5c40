package geometry

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/bilinear"
)

// A Motion is a point and the velocity there.
type Motion struct{ X, U []float64 }

// Speed returns the length of the velocity, which does not change along a geodesic.
func (m Motion) Speed(f Field) float64 { return math.Sqrt(bilinear.Quadratic(m.U, f.At(m.X))) }

// Geodesic follows the line without acceleration from a start: du^c/dt = -G^c_ab u^a u^b with u =
// dx/dt. It takes equal steps of the fourth-order Runge-Kutta method over the given time, and
// returns the start and the end of each step. Half the step has a sixteenth of the error.
func Geodesic(f Field, start Motion, time float64, steps int) ([]Motion, error) {
	if steps < 1 {
		return nil, errors.New("geometry: got fewer than 1 step for a geodesic, want 1 or more")
	}
	same("U", len(start.U), len(start.X))
	n, h := len(start.X), time/float64(steps)
	y := slices.Concat(start.X, start.U)
	path := []Motion{start}
	for range steps {
		next := slices.Clone(y)
		k := make([]float64, len(y)) // the previous slope; 0 before the first
		for _, s := range []struct{ ahead, weight float64 }{{0, h / 6}, {h / 2, h / 3}, {h / 2, h / 3}, {h, h / 6}} {
			var err error
			if k, err = flow(f, floats.AddScaledTo(make([]float64, len(y)), y, s.ahead, k)); err != nil {
				return nil, err
			}
			floats.AddScaled(next, s.weight, k)
		}
		y = next
		path = append(path, Motion{y[:n:n], y[n:]})
	}
	return path, nil
}

// flow returns (dx/dt, du/dt).
func flow(f Field, y []float64) ([]float64, error) {
	n := len(y) / 2
	x, u := y[:n], mat.NewVecDense(n, y[n:])
	s, err := Christoffel(f, x)
	if err != nil {
		return nil, err
	}
	to := slices.Concat(y[n:], make([]float64, n))
	for c := range n {
		to[n+c] = -mat.Inner(u, s[c], u)
	}
	return to, nil
}
