package calculus_test

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"attnlab/theory/calculus"
	"attnlab/theory/scorers"
)

// example returns the worked example of the source documents.
func example() (q, k, v *mat.Dense) {
	return mat.NewDense(2, 2, []float64{1, 0, 0, 1}), mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1}), mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
}

// The listing attention_backward has five lines, one for each step.
func Example_attentionBackward() {
	q, k, v := example()
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	dO := d.Output // of L = |O|^2 / 2

	dV := calculus.GradV(d.Weights, dO)
	dA := calculus.GradA(dO, v)
	dS := calculus.GradSoftmax(d.Weights, dA, d.Temp)
	dQ := calculus.GradQ(dS, k, 0)
	dK := calculus.GradK(dS, q, 0)

	for _, m := range []*mat.Dense{dV, dA, dS, dQ, dK} {
		fmt.Printf("%.6f\n", m.RawMatrix().Data)
	}
	// Output:
	// [0.640234 0.557542 0.557542 0.640234 0.802224 0.802224]
	// [2.406673 1.593327 2.000000 1.593327 2.406673 2.000000]
	// [0.129953 -0.096784 -0.033168 -0.096784 0.129953 -0.033168]
	// [0.068437 -0.091891 -0.091891 0.068437]
	// [0.091891 -0.068437 -0.068437 0.091891 -0.023454 -0.023454]
}

// The listing verify_gradients. The reference library compares in float32, within 1e-5.
func ExampleVerifyGradients() {
	verdict, err := calculus.VerifyGradients(example())
	if err != nil {
		panic(err)
	}
	fmt.Println(verdict.DQ.Right, verdict.DK.Right, verdict.DV.Right, verdict.AllRight)
	fmt.Println(verdict.DQ.Dual < 1e-14, verdict.DQ.ComplexStep < 1e-14, verdict.DQ.Difference < 1e-9)
	// Output:
	// true true true true
	// true true true
}

// A summary in one of the sources has rowsum(dA) in its third step; it must be rowsum(A * dA)
// (erratum E-03). Verify reports which gradients that spoils.
func ExampleSetting_Verify() {
	misprint := func(d *scorers.Decomposition, q, k, v mat.Matrix, scale float64, dO mat.Matrix) *calculus.Staged {
		s := calculus.Backward(d, q, k, v, scale, dO)
		for i := range s.D {
			s.D[i] = mat.Sum(s.DA.RowView(i))
		}
		s.DS = calculus.GradSoftmaxFrom(d.Weights, s.DA, s.D, d.Temp)
		s.DQ, s.DK = calculus.GradQ(s.DS, k, scale), calculus.GradK(s.DS, q, scale)
		return s
	}
	q, k, v := example()
	verdict, err := calculus.Setting{}.Verify(misprint, q, k, v)
	if err != nil {
		panic(err)
	}
	fmt.Println(verdict.DQ.Right, verdict.DK.Right, verdict.DV.Right, verdict.AllRight)
	// Output: false false true false
}

// The chain rule: the product of three Jacobians takes the gradient by O back to Q.
func ExampleJacobian_Through() {
	q, k, v := example()
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	nq, _ := q.Dims()
	byQueries := calculus.OutputByWeights(nq, v).Through(calculus.WeightsByScores(d.Weights, d.Temp)).Through(calculus.ScoresByQueries(nq, k, 0))
	fmt.Printf("%.6f\n", byQueries.Pull(d.Output).RawMatrix().Data)
	fmt.Printf("dO_00/dQ_00 = %.6f\n", byQueries.At(0, 0, 0, 0))
	// Output:
	// [0.068437 -0.091891 -0.091891 0.068437]
	// dO_00/dQ_00 = 0.168285
}

// Gradients respect a causal mask and a temperature: hidden keys have no gradient.
func ExampleIncoming_Backward() {
	_, k, v := example()
	causal := scorers.Options{Mask: func(i, j int) bool { return j <= i }, Temp: 2}
	d := scorers.Attend(scorers.Dot{}, k, k, v, causal)
	s := calculus.Incoming{DO: d.Output, DEntropy: []float64{0.1, 0.1, 0.1}}.Backward(d, k, k, v, 0)
	fmt.Printf("%.5f\n", mat.Formatted(s.DS))
	// Output:
	// ⎡ 0.00000   0.00000   0.00000⎤
	// ⎢-0.08052   0.08052   0.00000⎥
	// ⎣ 0.00215   0.00215  -0.00429⎦
}

// GradientFlow shows where gradients grow and vanish.
func ExampleGradientFlow() {
	q, k, v := example()
	d := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{})
	flow := calculus.GradientFlow(d, q, k, v, 0, d.Output)
	for _, name := range []string{"dO", "dA", "dS", "dQ"} {
		fmt.Printf("%s %.6f\n", name, flow.Norm(name).Frobenius)
	}
	fmt.Printf("gain %.6f\n", flow.Gain)
	// Output:
	// dO 2.040927
	// dA 4.966038
	// dS 0.233902
	// dQ 0.162034
	// gain [0.047100 0.047100]
}

// Raising small weights raises the entropy.
func ExampleGradEntropy() {
	fmt.Printf("%.4f\n", calculus.GradEntropy([]float64{0.7, 0.2, 0.1}, 1))
	// Output: [-0.3116 0.1615 0.1501]
}

// Two step sizes of central differences in float32 (erratum E-16).
func ExampleFloat32DifferenceError() {
	q, k, v := example()
	for _, h := range []float64{1e-5, calculus.BestStep(math.Exp2(-24))} {
		fmt.Printf("h = %.1e: off by more than 1e-3: %v\n", h, calculus.Float32DifferenceError(q, k, v, h) > 1e-3)
	}
	// Output:
	// h = 1.0e-05: off by more than 1e-3: true
	// h = 3.9e-03: off by more than 1e-3: false
}
