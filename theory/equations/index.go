package equations

import (
	"errors"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/bridge"
	"attnlab/theory/tensor"
)

// indexNotation returns the rows on index notation.
func indexNotation() []Row {
	return []Row{
		{
			ID:        "T-not",
			Statement: "an index that is both upper and lower is summed over; δ^a_b x^b = x^a; S^ij = Q^ia g_ab K^jb",
			Check:     notation,
		},
		{
			ID:        "T-appA",
			Statement: "the notation: the meaning of each letter and index",
			Is:        Prose,
			Of:        []string{"package theory/tensor"},
		},
		{
			ID:        "N-ten",
			Statement: "S_ij = sum_a Q_ia K_ja / √d, A_ij = exp(S_ij) / sum_m exp(S_im), O_ib = sum_j A_ij V_jb",
			Check: func(c *Check) {
				q, k, v := ex1()
				sumsAreContractions(c, q, k, v)
				s, a, o, lse := writtenOut(c, q, k, v)
				c.Printed("exp(1/√2)", "2.02811498", math.Exp(s.At(0, 0)))
				c.Printed("S", ".70710678 0 .70710678 0 .70710678 .70710678", Flat(s)...)
				c.Printed("Z", "5.05622996 5.05622996", math.Exp(lse.At(0, 0)), math.Exp(lse.At(1, 0)))
				c.Printed("log Z", "1.62062114 1.62062114", Flat(lse)...)
				c.Printed("A", ".40111209 .19777581 .40111209 .19777581 .40111209 .40111209", Flat(a)...)
				c.Printed("O", "1.20333628 .79666372 .79666372 1.20333628", Flat(o)...)
				sumsAreContractions(c, c.Normal(4, 3), c.Normal(6, 3), c.Normal(6, 2))
			},
			Kernel: func(c *Check, a bridge.Attention) {
				q, k, v := bridge.Float32(c.Normal(4, 3)), bridge.Float32(c.Normal(6, 3)), bridge.Float32(c.Normal(6, 2))
				ans := c.Attend(a, bridge.Call{Q: q, K: k, V: v, Problem: attn.Problem{Want: attn.WantLSE}})
				_, _, o, lse := writtenOut(c, q, k, v)
				c.Tolerable("O", ans.O, o, 0)
				c.Tolerable("log Z", ans.LSE, lse, 0)
			},
		},
		{
			ID:        "M-einsum",
			Statement: "22 functions: named contractions, parsing and explaining a spec; and a list of examples",
			Check:     namedContractions,
		},
	}
}

// notation checks package tensor against the rules of index notation.
func notation(c *Check) {
	x := someTensor(c, 3, 4, 2)
	for axis, spec := range []string{"ad,dbc->abc", "bd,adc->abc", "cd,abd->abc"} {
		y := contract(c, spec, tensor.Delta(x.Shape()[axis]), x)
		c.NearAll("δ at index "+spec[:1]+" leaves a tensor as it is", y.Data(), x.Data(), 0)
	}
	delta := func(a, b int) float64 {
		if a == b {
			return 1
		}
		return 0
	}
	want := tensor.New(3, 4, 2)
	for a := range 3 {
		for b := range 4 {
			for e := range 2 {
				sum := 0.0
				for d := range 4 {
					sum += delta(b, c.Index("lower index of δ", d, 4)) * x.At(a, d, e)
				}
				want.Set(sum, a, b, e)
			}
		}
	}
	c.NearAll("sum_d δ^b_d x^adc", contract(c, "bd,adc->abc", tensor.Delta(4), x).Data(), want.Data(), 0)

	q, k, _ := ex1()
	s := mat.NewDense(2, 3, nil)
	for i := range 2 {
		for j := range 3 {
			sum := 0.0
			for a := range 2 {
				sum += q.At(i, a) * k.At(j, c.Index("index of the key", a, 2))
			}
			s.Set(i, j, sum)
		}
	}
	c.Printed("Q Kᵀ of the worked example", "1 0 1 0 1 1", Flat(s)...)
	tq, tk := tensor.Matrix(q), tensor.Matrix(k)
	c.NearAll("ia,ja->ij", contract(c, "ia,ja->ij", tq, tk).Data(), Flat(s), 0)
	c.NearAll("ia,ja: free letters in alphabetical order", contract(c, "ia,ja", tq, tk).Data(), Flat(s), 0)
	c.NearAll("μα,να", contract(c, "μα,να->μν", tq, tk).Data(), Flat(s), 0)
	var scaled mat.Dense
	scaled.Scale(c.Factor("1/√d", ex1Scale), s)
	c.NearMat("the same, scaled", tensor.AttentionScores(q, k, 0), &scaled, 1e-15)

	// E-24: the documents contract two upper indices. Einsum refuses that where indices are marked,
	// and accepts it with a metric. Without marks it is a plain sum, which has the intended value.
	lowered := "^ia,_ab,^jb->^ij"
	if c.Flip("lower indices of the metric") {
		lowered = "^ia,^ab,^jb->^ij"
	}
	c.NearAll("Q^ia δ_ab K^jb", contract(c, lowered, tq, tensor.Matrix(tensor.Delta(2).Dense()), tk).Data(), Flat(s), 0)
	for _, spec := range []string{
		"^ia,^ja->^ij",     // S = Q Kᵀ
		"^ij,^jb->^ib",     // O = A V
		"^im,^in->^mn",     // dV = Aᵀ dO
		"^mj,^ja->^ma",     // dQ = dS K
		"^im,^ia->^ma",     // dK = dSᵀ Q
		"^ib,^hba->^hia",   // Q of head h
		"^hic,^hca->^ia",   // Y
		"^ia,^ab,^jb->^ij", // S = Q M Kᵀ with M^ab
	} {
		_, err := tensor.Parse(spec)
		c.True(spec+" is refused", errors.Is(err, tensor.ErrVariance))
		plain := strings.ReplaceAll(spec, "^", "")
		_, err = tensor.Parse(plain)
		c.True(plain+" is not", err == nil)
	}
	c.Erratum("E-24", "contracted indices of S = Q Kᵀ, and of all that follows it", "one up, one down: Q^ia g_ab K^jb; plain sums have the intended values", "both up: Q^ia K^ja")
	c.Erratum("E-24", "indices of a learned form", "M_ab", "M^ab")
}

// writtenOut returns the scores, weights, output and LSE of attention as explicit sums, with scale
// 1/√d.
func writtenOut(c *Check, q, k, v mat.Matrix) (s, a, o, lse *mat.Dense) {
	nq, d := q.Dims()
	nk, dv := v.Dims()
	s, a = mat.NewDense(nq, nk, nil), mat.NewDense(nq, nk, nil)
	o, lse = mat.NewDense(nq, dv, nil), mat.NewDense(nq, 1, nil)
	scale := c.Factor("1/√d", 1/math.Sqrt(float64(d)))
	for i := range nq {
		z := 0.0
		for j := range nk {
			sum := 0.0
			for x := range d {
				sum += q.At(i, x) * k.At(j, c.Index("component of the key", x, d))
			}
			s.Set(i, j, scale*sum)
			z += math.Exp(s.At(i, j))
		}
		lse.Set(i, 0, math.Log(z))
		for j := range nk {
			a.Set(i, j, math.Exp(s.At(i, j))/z)
		}
		for b := range dv {
			sum := 0.0
			for j := range nk {
				sum += a.At(i, j) * v.At(c.Index("key of the value", j, nk), b)
			}
			o.Set(i, b, sum)
		}
	}
	return s, a, o, lse
}

// sumsAreContractions compares the explicit sums with contractions.
func sumsAreContractions(c *Check, q, k, v mat.Matrix) {
	s, a, o, _ := writtenOut(c, q, k, v)
	ts := tensor.Matrix(tensor.AttentionScores(q, k, 0))
	c.NearMat("S as a contraction", ts.Dense(), s, 1e-15)
	for n, x := range ts.Data() {
		ts.Data()[n] = math.Exp(x)
	}
	z := contract(c, "ij->i", ts)
	for n, x := range z.Data() {
		z.Data()[n] = 1 / x
	}
	weights := contract(c, "ij,i->ij", ts, z).Dense()
	c.NearMat("A as a contraction", weights, a, 1e-15)
	c.NearMat("O as a contraction", tensor.AttentionOutput(weights, v), o, 2e-15)
}

// namedContractions checks every named contraction and every example against a second evaluation of
// its spec.
func namedContractions(c *Check) {
	examples := tensor.Examples()
	c.True("26 examples or more", len(examples) >= 26)
	for _, e := range examples {
		var operands []*tensor.Tensor
		for _, shape := range e.Shapes {
			operands = append(operands, someTensor(c, shape...))
		}
		got := contract(c, e.Spec, operands...)
		c.True(e.Name+" has the shape that it says", slices.Equal(got.Shape(), e.Result))
		want := letterByLetter(c, strings.NewReplacer("^", "", "_", "").Replace(e.Spec), operands...)
		c.NearAll(e.Name, got.Data(), want.Data(), 1e-13)
	}

	u, v, w := someTensor(c, 3), someTensor(c, 3), someTensor(c, 4)
	a, b, m, g := someTensor(c, 2, 3), someTensor(c, 2, 3), someTensor(c, 3, 4), someTensor(c, 3, 3)
	q, k, value, weights := someTensor(c, 2, 3), someTensor(c, 4, 3), someTensor(c, 4, 2), someTensor(c, 2, 4)
	a3, b3 := someTensor(c, 2, 3, 4), someTensor(c, 2, 4, 2)
	q3, k3, v3, weights3 := someTensor(c, 2, 3, 2), someTensor(c, 2, 4, 2), someTensor(c, 2, 4, 3), someTensor(c, 2, 3, 4)
	x, x3, wq := someTensor(c, 3, 4), someTensor(c, 2, 3, 4), someTensor(c, 2, 4, 2)
	o3, wo := someTensor(c, 2, 3, 3), someTensor(c, 2, 3, 4)
	q4, k4 := someTensor(c, 2, 2, 3, 2), someTensor(c, 2, 2, 4, 2)
	number := tensor.Number
	type all = []*tensor.Tensor
	root := func(d int) float64 { return c.Factor("1/√d", 1/math.Sqrt(float64(d))) }
	for _, n := range []struct {
		name, spec string
		factor     float64
		got        *tensor.Tensor
		operands   all
	}{
		{"dot product", "a,a->", 1, number(tensor.Dot(u.Data(), v.Data())), all{u, v}},
		{"outer product", "a,b->ab", 1, tensor.Matrix(tensor.Outer(u.Data(), w.Data())), all{u, w}},
		{"matrix transpose", "ij->ji", 1, tensor.Matrix(tensor.Transpose(m.Dense())), all{m}},
		{"trace", "ii->", 1, number(tensor.Trace(g.Dense())), all{g}},
		{"matrix multiply", "ij,jk->ik", 1, tensor.Matrix(tensor.MatMul(a.Dense(), m.Dense())), all{a, m}},
		{"batch matrix multiply", "nij,njk->nik", 1, tensor.BatchMatMul(a3, b3), all{a3, b3}},
		{"Frobenius norm squared", "ij,ij->", 1, number(tensor.FrobeniusSquared(m.Dense())), all{m, m}},
		{"Hadamard product", "ij,ij->ij", 1, tensor.Matrix(tensor.Hadamard(a.Dense(), b.Dense())), all{a, b}},
		{"bilinear form", "a,ab,b->", 1, number(tensor.BilinearForm(u.Data(), m.Dense(), w.Data())), all{u, m, w}},
		{"batch bilinear form", "ia,ab,jb->ij", 1, tensor.Matrix(tensor.BatchBilinearForm(q.Dense(), g.Dense(), k.Dense())), all{q, g, k}},
		{"attention scores", "ia,ja->ij", root(3), tensor.Matrix(tensor.AttentionScores(q.Dense(), k.Dense(), 0)), all{q, k}},
		{"attention output", "ij,jb->ib", 1, tensor.Matrix(tensor.AttentionOutput(weights.Dense(), value.Dense())), all{weights, value}},
		{"batched attention scores", "nia,nja->nij", root(2), tensor.BatchedAttentionScores(q3, k3, 0), all{q3, k3}},
		{"batched attention output", "nij,njb->nib", 1, tensor.BatchedAttentionOutput(weights3, v3), all{weights3, v3}},
		{"multihead project", "ib,hba->hia", 1, tensor.MultiHeadProject(x.Dense(), wq), all{x, wq}},
		{"multihead scores", "hia,hja->hij", .3, tensor.MultiHeadScores(q3, k3, .3), all{q3, k3}},
		{"multihead output", "hij,hjb->hib", 1, tensor.MultiHeadOutput(weights3, v3), all{weights3, v3}},
		{"multihead combine", "hic,hca->ia", 1, tensor.Matrix(tensor.MultiHeadCombine(o3, wo)), all{o3, wo}},
		{"batched multihead project", "nib,hba->nhia", 1, tensor.BatchedMultiHeadProject(x3, wq), all{x3, wq}},
		{"batched multihead scores", "nhia,nhja->nhij", root(2), tensor.BatchedMultiHeadScores(q4, k4, 0), all{q4, k4}},
	} {
		want := letterByLetter(c, n.spec, n.operands...)
		for i := range want.Data() {
			want.Data()[i] *= n.factor
		}
		c.True(n.name+" has its shape", slices.Equal(n.got.Shape(), want.Shape()))
		c.NearAll(n.name, n.got.Data(), want.Data(), 1e-13)
	}

	p, err := tensor.Parse("ia,ja->ij")
	c.Must(err)
	names := func(indices []tensor.Index) (s string) {
		for _, x := range indices {
			s += string(x.Name)
		}
		return s
	}
	c.True("parse: inputs ia and ja, output and free indices ij, summed a",
		len(p.Inputs) == 2 && names(p.Inputs[0]) == "ia" && names(p.Inputs[1]) == "ja" && names(p.Output) == "ij" && p.Free == "ij" && p.Summed == "a" && !p.Implicit)
	text, err := tensor.Explain("ia,ja->ij")
	c.Must(err)
	c.True("explain: the equation, and which index is summed", strings.Contains(text, "y[i,j] = sum_a x1[i,a] x2[j,a]") && strings.Contains(text, "summed: a\n"))
}

// letterByLetter evaluates a plain spec by its meaning: each combination of the letters' values
// adds one product to one element.
func letterByLetter(c *Check, spec string, operands ...*tensor.Tensor) *tensor.Tensor {
	left, output, arrow := strings.Cut(spec, "->")
	inputs := strings.Split(left, ",")
	extent, letters := map[rune]int{}, []rune{}
	for k, in := range inputs {
		for axis, r := range []rune(in) {
			if extent[r] = operands[k].Shape()[axis]; !slices.Contains(letters, r) {
				letters = append(letters, r)
			}
		}
	}
	if !arrow {
		for _, r := range letters {
			if strings.Count(left, string(r)) == 1 {
				output += string(r)
			}
		}
		if !c.Flip("alphabetical order") {
			free := []rune(output)
			slices.Sort(free)
			output = string(free)
		}
	}
	value := map[rune]int{}
	at := func(operand int, letters string) []int {
		index := []int{}
		for _, r := range letters {
			i := value[r]
			if operand == 1 && !strings.ContainsRune(output, r) {
				i = c.Index("summed index of the second operand", i, extent[r])
			}
			index = append(index, i)
		}
		return index
	}
	shape := []int{}
	for _, r := range output {
		shape = append(shape, extent[r])
	}
	y := tensor.New(shape...)
	var run func(rest []rune)
	run = func(rest []rune) {
		if len(rest) == 0 {
			term := 1.0
			for k, in := range inputs {
				term *= operands[k].At(at(k, in)...)
			}
			to := at(-1, output)
			y.Set(y.At(to...)+term, to...)
			return
		}
		for i := range extent[rest[0]] {
			value[rest[0]] = i
			run(rest[1:])
		}
	}
	run(letters)
	return y
}

// contract returns the result of Einsum. It ends the check on an error.
func contract(c *Check, spec string, operands ...*tensor.Tensor) *tensor.Tensor {
	y, err := tensor.Einsum(spec, operands...)
	c.Must(err)
	return y
}

// someTensor returns a tensor of standard normal numbers.
func someTensor(c *Check, shape ...int) *tensor.Tensor {
	t := tensor.New(shape...)
	copy(t.Data(), c.Vector(len(t.Data())))
	return t
}
