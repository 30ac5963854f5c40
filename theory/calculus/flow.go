package calculus

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"attnlab/theory/scorers"
)

// A Norm measures a matrix: the root of the sum of squares, and the largest absolute value.
type Norm struct {
	Name            string
	Frobenius, Max  float64
	Elements, Zeros int // Zeros counts elements that are exactly 0
}

// A Flow shows where gradients grow and vanish on their way from the output to the operands.
type Flow struct {
	// Norms lists Q, K, V, S, A, O, dO, dV, dA, dS, dQ and dK. Hidden scores are left out of S and
	// dA.
	Norms []Norm
	// Gain is |dS_i| / |dA_i| for each query, over the keys that have weight; 0 where dA_i is 0.
	Gain []float64
	*Staged
}

// GradientFlow runs a backward pass and measures every stage. The softmax is the bottleneck: its
// Jacobian (diag p - p p^T)/T has no eigenvalue above 1/(2T), so no gain exceeds 1/(2T). Two keys
// of even weight and opposite gradients reach this bound. Where one key has nearly all the weight,
// almost no gradient passes; this is why 1/sqrt(d) keeps scores small when training begins.
func GradientFlow(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *Flow {
	s := Backward(d, q, k, v, scale, dO)
	f := &Flow{Staged: s}
	all := func(int, int) bool { return true }
	seen := func(i, j int) bool { return !math.IsInf(d.Scores.At(i, j), -1) }
	for _, m := range []struct {
		name string
		m    mat.Matrix
		keep func(i, j int) bool
	}{
		{"Q", q, all},
		{"K", k, all},
		{"V", v, all},
		{"S", d.Scores, seen},
		{"A", d.Weights, all},
		{"O", d.Output, all},
		{"dO", dO, all},
		{"dV", s.DV, all},
		{"dA", s.DA, seen},
		{"dS", s.DS, all},
		{"dQ", s.DQ, all},
		{"dK", s.DK, all},
	} {
		f.Norms = append(f.Norms, normOf(m.name, m.m, m.keep))
	}
	for i := range s.D {
		var dA []float64
		for j, p := range d.Weights.RawRowView(i) {
			if p != 0 {
				dA = append(dA, s.DA.At(i, j))
			}
		}
		gain := 0.0
		if size := floats.Norm(dA, 2); size != 0 {
			gain = floats.Norm(s.DS.RawRowView(i), 2) / size
		}
		f.Gain = append(f.Gain, gain)
	}
	return f
}

// normOf measures the elements of a matrix for which keep is true.
func normOf(name string, m mat.Matrix, keep func(i, j int) bool) Norm {
	rows, cols := m.Dims()
	var x []float64
	zeros := 0
	for i := range rows {
		for j := range cols {
			if !keep(i, j) {
				continue
			}
			x = append(x, m.At(i, j))
			if m.At(i, j) == 0 {
				zeros++
			}
		}
	}
	return Norm{name, floats.Norm(x, 2), floats.Norm(x, math.Inf(1)), len(x), zeros}
}

// Norm returns the norm with the given name.
func (f *Flow) Norm(name string) Norm {
	for _, n := range f.Norms {
		if n.Name == name {
			return n
		}
	}
	panic(fmt.Sprintf("calculus: got norm %q, want one of Q, K, V, S, A, O, dO, dV, dA, dS, dQ and dK", name))
}

// String formats the norms as a table, followed by the gains.
func (f *Flow) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-3s %10s %10s %8s\n", "of", "norm", "largest", "zeros")
	for _, n := range f.Norms {
		fmt.Fprintf(&s, "%-3s %10.6f %10.6f %6d/%d\n", n.Name, n.Frobenius, n.Max, n.Zeros, n.Elements)
	}
	fmt.Fprintf(&s, "gain of the softmax, by query: %.6f\n", f.Gain)
	return s.String()
}
