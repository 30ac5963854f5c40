package hopfield_test

import (
	"fmt"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/kernels/naive"
	"attnlab/theory/bridge"
	"attnlab/theory/hopfield"
)

// Two opposite patterns; a state with one wrong spin settles at its pattern.
func ExampleHebb() {
	patterns := mat.NewDense(2, 4, []float64{1, 1, -1, -1, -1, -1, 1, 1})
	net, err := hopfield.Hebb(patterns)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mat.Formatted(net.W()))
	fmt.Println(net.Energy([]float64{1, 1, -1, -1}))
	rest := net.WithoutDiagonal().Settle([]float64{1, -1, -1, -1}, 10, nil)
	fmt.Println(rest.State, rest.Sweeps)
	// Output:
	// ⎡ 0.5   0.5  -0.5  -0.5⎤
	// ⎢ 0.5   0.5  -0.5  -0.5⎥
	// ⎢-0.5  -0.5   0.5   0.5⎥
	// ⎣-0.5  -0.5   0.5   0.5⎦
	// -4
	// [1 1 -1 -1] 2
}

// Three patterns in four dimensions. From the first pattern, the state settles near it at the
// second update.
func ExampleModern_Settle() {
	net, err := hopfield.NewModern(mat.NewDense(3, 4, []float64{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}), nil, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	e1 := []float64{1, 0, 0, 0}
	fmt.Printf("E(e1) = %.8f\n", net.Energy(e1))
	r := net.Settle(e1, hopfield.Limit{Iterations: 10})
	fmt.Printf("%.8f after %d iterations, E = %.8f\n", r.State, r.Iterations, net.Energy(r.State))
	// Output:
	// E(e1) = -0.50000908
	// [0.99990908 0.00004546 0.00004546 0.00000000] after 2 iterations, E = -0.50000909
}

// An update is one call of attention, so a kernel can compute it. Here keys are names and values
// are what is read out, for many queries at once.
func ExampleModern_ReadBy() {
	keys := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	values := mat.NewDense(2, 3, []float64{1, 2, 3, 10, 20, 30})
	net, err := hopfield.NewModern(keys, values, 40)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range []attn.Kernel{nil, naive.New()} {
		a := bridge.Attention{}
		if k != nil {
			a = bridge.Through(k)
		}
		read, err := net.ReadBy(a, mat.NewDense(2, 2, []float64{.9, .2, .1, .8}))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n%.6g\n", a.Name(), mat.Formatted(read.X))
	}
	// Output:
	// definition
	// ⎡ 1   2   3⎤
	// ⎣10  20  30⎦
	// naive/go
	// ⎡ 1   2   3⎤
	// ⎣10  20  30⎦
}

// The proven bound for 20 dimensions, and the number that the sources give.
func ExampleStorageBound() {
	b, err := hopfield.StorageBound(1, 3, 20, .001)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("c = %.4f: at least %.2f patterns, not exp(10) = 22026 of them\n", b.C, b.Patterns)
	// Output:
	// c = 3.1546: at least 7.41 patterns, not exp(10) = 22026 of them
}
