package positions_test

import (
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/positions"
)

// The lesson's encoding of position 3.
func ExampleSinusoid() {
	s := positions.Sinusoid{Dim: 8}
	fmt.Printf("%.6f\n", s.At(3))
	fmt.Println(s.Table(100).Dims())
	// Output:
	// [0.141120 -0.989992 0.295520 0.955336 0.029996 0.999550 0.003000 0.999996]
	// 100 8
}

// One matrix moves every position five further.
func ExampleSinusoid_Shift() {
	s := positions.Sinusoid{Dim: 4}
	t, err := s.Shift(5)
	if err != nil {
		panic(err)
	}
	for _, pos := range []float64{0, 17} {
		var moved mat.VecDense
		moved.MulVec(t, mat.NewVecDense(4, s.At(pos)))
		fmt.Printf("%.4f %.4f\n", moved.RawVector().Data, s.At(pos+5))
	}
	// Output:
	// [-0.9589 0.2837 0.0500 0.9988] [-0.9589 0.2837 0.0500 0.9988]
	// [-0.0089 -1.0000 0.2182 0.9759] [-0.0089 -1.0000 0.2182 0.9759]
}

// Similar positions have a large product, but it does not fall steadily with distance.
func ExampleSinusoid_Product() {
	for distance := range 5 {
		fmt.Printf("%d %.6f\n", distance, positions.Sinusoid{Dim: 8}.Product(float64(distance)))
	}
	// Output:
	// 0 4.000000
	// 1 3.535256
	// 2 2.563718
	// 3 1.964890
	// 4 2.266609
}

// The property that the lesson's listing verifies: for equal m-n the products are equal.
func ExampleRope() {
	r := positions.Rope{Dim: 4}
	fmt.Printf("%.8f\n", r.Turn([]float64{1, 0, 1, 0}, 2))
	q, k := []float64{1, 2, 3, 4}, []float64{4, 3, 2, 1}
	for _, at := range [][2]int{{3, 1}, {7, 5}, {0, -2}} {
		fmt.Printf("%.8f\n", r.Score(q, k, at[0], at[1]))
	}
	// Output:
	// [-0.41614684 0.90929743 0.99980001 0.01999867]
	// 1.19005123
	// 1.19005123
	// 1.19005123
}

// The bias of four queries and four keys, for the first of two heads. A query's own key has no
// penalty; a causal mask hides later keys.
func ExampleALiBi() {
	slope := attn.ALiBiSlopes(2)[0]
	fmt.Printf("%.4f\n", mat.Formatted(positions.ALiBi(float64(slope), 4, 4)))
	// Output:
	// ⎡ 0.0000  -0.0625  -0.1250  -0.1875⎤
	// ⎢-0.0625   0.0000  -0.0625  -0.1250⎥
	// ⎢-0.1250  -0.0625   0.0000  -0.0625⎥
	// ⎣-0.1875  -0.1250  -0.0625   0.0000⎦
}

// The tutorial's R^k = [k/2, -k/2] on its worked example. The table starts with the row of the
// earliest key.
func ExampleRelative() {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	table := mat.NewDense(4, 2, []float64{.5, -.5, 0, 0, -.5, .5, -1, 1}) // i-j = 1, 0, -1, -2
	fmt.Println(mat.Formatted(positions.Relative(q, table, 3, 0)))
	// Output:
	// ⎡   0  -0.5    -1⎤
	// ⎣-0.5     0   0.5⎦
}

// The spread of each position encoding: how much it depends on positions beyond their distance.
func ExampleSpread() {
	q, k := []float64{1, 2, 3, 4}, []float64{4, 3, 2, 1}
	shifts := []int{0, 10, 20, 30, 40}
	fmt.Printf("RoPE %.6f\n", positions.Spread(positions.Rope{Dim: 4}.Score, q, k, 2, shifts))
	fmt.Printf("ALiBi %.6f\n", positions.Spread(positions.ALiBiScore(.5), q, k, 2, shifts))
	fmt.Printf("sinusoid %.6f\n", positions.Spread(positions.Sinusoid{Dim: 4}.Score, q, k, 2, shifts))
	// Output:
	// RoPE 0.000000
	// ALiBi 0.000000
	// sinusoid 9.188819
}

// A global key and query, a window of three, and a random key in each row.
func ExampleBigBird() {
	p := attn.Problem{Batch: 1, SeqQ: 8, SeqKV: 8, HeadsQ: 1, HeadsKV: 1, Mask: attn.Full().With(attn.PackedBitmap)}
	a := &attn.Args{Q: attn.Tensor{S: 8}, K: attn.Tensor{S: 8}, Allowed: positions.BigBird(8, 1, 2, 1, rand.New(rand.NewPCG(1, 2)))}
	fmt.Print(p.Picture(a, 0, 0))
	// Output:
	// ########
	// ###.#...
	// ####..#.
	// #.####..
	// ##.###..
	// ##..###.
	// ##...###
	// ##....##
}
