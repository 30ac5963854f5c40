package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attnlab/theory/tensor"
)

// scatter evaluates a plain spec in the opposite way: all letters run, and each combination adds
// its product to an element of the result. It assumes a valid spec.
func scatter(spec string, operands ...*tensor.Tensor) *tensor.Tensor {
	left, output, arrow := strings.Cut(spec, "->")
	inputs := strings.Split(left, ",")
	all := strings.ReplaceAll(left, ",", "")
	if !arrow {
		for c := 'A'; c <= 'z'; c++ {
			if strings.Count(all, string(c)) == 1 {
				output += string(c)
			}
		}
	}
	extent, letters := map[rune]int{}, ""
	for k, in := range inputs {
		for axis, c := range []rune(in) {
			if extent[c] = operands[k].Shape()[axis]; !strings.ContainsRune(letters, c) {
				letters += string(c)
			}
		}
	}
	value := map[rune]int{}
	index := func(of string) []int {
		var at []int
		for _, c := range of {
			at = append(at, value[c])
		}
		return at
	}
	var shape []int
	for _, c := range output {
		shape = append(shape, extent[c])
	}
	y := tensor.New(shape...)
	var run func(rest []rune)
	run = func(rest []rune) {
		if len(rest) > 0 {
			for value[rest[0]] = 0; value[rest[0]] < extent[rest[0]]; value[rest[0]]++ {
				run(rest[1:])
			}
			return
		}
		term := 1.0
		for k, in := range inputs {
			term *= operands[k].At(index(in)...)
		}
		y.Set(y.At(index(output)...)+term, index(output)...)
	}
	run([]rune(letters))
	return y
}

// aCall is a random spec over the letters a to d, with operands for it.
type aCall struct {
	inputs   []string
	output   string
	operands []*tensor.Tensor
}

func (c aCall) spec() string { return strings.Join(c.inputs, ",") + "->" + c.output }

// drawCall draws a call. Letters repeat within and across operands, and extents are from 0 to 3.
func drawCall(t *rapid.T) aCall {
	letter := rapid.SampledFrom([]rune("abcd"))
	extent := map[rune]int{}
	for _, c := range "abcd" {
		extent[c] = rapid.IntRange(0, 3).Draw(t, "extent of "+string(c))
	}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	var c aCall
	seen := ""
	for range rapid.IntRange(1, 3).Draw(t, "operands") {
		in := string(rapid.SliceOfN(letter, 0, 3).Draw(t, "input"))
		var shape []int
		for _, x := range in {
			shape = append(shape, extent[x])
			if !strings.ContainsRune(seen, x) {
				seen += string(x)
			}
		}
		c.inputs, c.operands = append(c.inputs, in), append(c.operands, normal(r, shape...))
	}
	for _, x := range rapid.Permutation([]rune(seen)).Draw(t, "order") {
		if rapid.Bool().Draw(t, string(x)+" is free") {
			c.output += string(x)
		}
	}
	return c
}

// einsum returns the result of Einsum, which must not fail.
func einsum(t interface{ Fatal(...any) }, spec string, operands ...*tensor.Tensor) *tensor.Tensor {
	y, err := tensor.Einsum(spec, operands...)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// TestEinsumProperties checks random specs: Einsum agrees with the other evaluation, is linear in
// each operand, and does not depend on the order of operands or the names of letters.
func TestEinsumProperties(t *testing.T) {
	near := func(rt *rapid.T, what string, got, want *tensor.Tensor) {
		if !slices.Equal(got.Shape(), want.Shape()) {
			rt.Fatalf("%s: shape %v, want %v", what, got.Shape(), want.Shape())
		}
		for i, x := range got.Data() {
			if !(math.Abs(x-want.Data()[i]) <= 1e-11) {
				rt.Fatalf("%s: element %d is %g, want %g", what, i, x, want.Data()[i])
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCall(rt)
		y := einsum(rt, c.spec(), c.operands...)
		near(rt, c.spec(), y, scatter(c.spec(), c.operands...))

		k := rapid.IntRange(0, len(c.operands)-1).Draw(rt, "linear in")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "other"), 2))
		other, both := normal(r, c.operands[k].Shape()...), tensor.New(c.operands[k].Shape()...)
		for i := range both.Data() {
			both.Data()[i] = 2*c.operands[k].Data()[i] + 3*other.Data()[i]
		}
		with := func(x *tensor.Tensor) *tensor.Tensor {
			operands := slices.Clone(c.operands)
			operands[k] = x
			return einsum(rt, c.spec(), operands...)
		}
		sum, yOther := tensor.New(y.Shape()...), with(other)
		for i := range sum.Data() {
			sum.Data()[i] = 2*y.Data()[i] + 3*yOther.Data()[i]
		}
		near(rt, c.spec()+" is linear", with(both), sum)

		turned := aCall{slices.Clone(c.inputs), c.output, slices.Clone(c.operands)}
		slices.Reverse(turned.inputs)
		slices.Reverse(turned.operands)
		near(rt, turned.spec()+", reversed", einsum(rt, turned.spec(), turned.operands...), y)
		renamed := strings.NewReplacer("a", "μ", "b", "ν", "c", "Z", "d", "a").Replace(c.spec())
		near(rt, renamed+", renamed", einsum(rt, renamed, c.operands...), y)
	})
}

// TestParse checks the parts of parsed specs.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		spec, output, free, summed string
		implicit                   bool
	}{
		{"ia,ja->ij", "[i,j]", "ij", "a", false},
		{"ia,ja", "[i,j]", "ij", "a", true},
		{"ja,ia", "[i,j]", "ij", "a", true},
		{"ib,hba->hia", "[h,i,a]", "hia", "b", false},
		{"a,a->", "", "", "a", false},
		{"a,a->a", "[a]", "a", "", false},
		{"ii", "", "", "i", true},
		{"ii->i", "[i]", "i", "", false},
		{"ij->", "", "", "ij", false},
		{"bA", "[A,b]", "Ab", "", true},
		{" i a , j a -> i j ", "[i,j]", "ij", "a", false},
		{",->", "", "", "", false},
		{"", "", "", "", true},
		{"νμ", "[μ,ν]", "μν", "", true},
		{"^a,_ab,^b->", "", "", "ab", false},
		{"_ab,^b", "[_a]", "a", "b", true},
		{"^i_a,^aj->^ij", "[^i,^j]", "ij", "a", false},
		{"^ia,ja->ij", "[^i,j]", "ij", "a", false},
	} {
		p, err := tensor.Parse(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		_, output, _ := strings.Cut(p.String(), "y")
		output, _, _ = strings.Cut(output, " =")
		if output != c.output || p.Free != c.free || p.Summed != c.summed || p.Implicit != c.implicit {
			t.Errorf("%q: output %s, free %q, summed %q, implicit %v; want %+v", c.spec, output, p.Free, p.Summed, p.Implicit, c)
		}
	}
	p, err := tensor.Parse("^i_a,b->")
	want := [][]tensor.Index{{{Name: 'i', Variance: tensor.Up}, {Name: 'a', Variance: tensor.Down}}, {{Name: 'b'}}}
	if err != nil || !slices.EqualFunc(p.Inputs, want, slices.Equal) {
		t.Errorf("inputs %v, %v; want %v", p, err, want)
	}
}

// TestParseErrors checks that errors name the operand and the index, and that exactly the errors
// about upper and lower indices wrap ErrVariance.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		spec, says string
		variance   bool
	}{
		{"ij,jk->iik", "index i is twice in the output", false},
		{"ij->ik", "index k of the output is in no operand", false},
		{"ij,j2->i", "operand 2: '2' is not a letter", false},
		{"ij->i->j", "output: '-' is not a letter", false},
		{"ij->i,j", "output: ',' is not a letter", false},
		{"...j->j", "operand 1: an ellipsis", false},
		{"ij^->ij", "operand 1: ^ has no index after it", false},
		{"a,b_->ab", "operand 2: _ has no index after it", false},
		{"^ia,^ja->^ij", "index a is upper in operand 1 and upper in operand 2; lower one", true},
		{"_a,b,_a->b", "index a is lower in operand 1 and lower in operand 3; raise one", true},
		{"_aa->", "index a is lower in operand 1 and lower in operand 1", true},
		{"^a,_a,^a->", "index a is summed over in 3 places", true},
		{"^a,_a->a", "index a is upper in operand 1 and lower in operand 2, and the output", true},
		{"_ab,^b->^a", "index a is lower in operand 1 and upper in the output", true},
		{"^a->_a", "index a is upper in operand 1 and lower in the output", true},
	} {
		p, err := tensor.Parse(c.spec)
		if err == nil || p != nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), fmt.Sprintf("%q", c.spec)) {
			t.Errorf("%s: %v, want %q", c.spec, err, c.says)
		}
		if errors.Is(err, tensor.ErrVariance) != c.variance {
			t.Errorf("%s: %v: is ErrVariance: %v", c.spec, err, !c.variance)
		}
		if text, err2 := tensor.Explain(c.spec); text != "" || err2 == nil || err2.Error() != err.Error() {
			t.Errorf("%s is explained as %q, %v", c.spec, text, err2)
		}
	}
}

// TestEinsumErrors checks operands that do not fit their spec, and tensors whose own indices do not
// pair.
func TestEinsumErrors(t *testing.T) {
	m := tensor.New(2, 3)
	up := tensor.New(2, 3).Mark(tensor.Label, tensor.Up)
	for _, c := range []struct {
		spec     string
		operands []*tensor.Tensor
		says     string
		variance bool
	}{
		{"ij,jk->ik", []*tensor.Tensor{m}, "got 1 operands, want 2", false},
		{"ij->i", []*tensor.Tensor{m, m}, "got 2 operands, want 1", false},
		{"ij,jk->ik", []*tensor.Tensor{m, nil}, "operand 2 is nil", false},
		{"ij,j->i", []*tensor.Tensor{m, m}, "operand 2 has shape [2 3], and the spec names 1 indices [j]", false},
		{"ij,jk->ik", []*tensor.Tensor{m, m}, "index j has extent 3 in operand 1 (axis 1) and 2 in operand 2 (axis 0)", false},
		{"ii->", []*tensor.Tensor{m}, "index i has extent 2 in operand 1 (axis 0) and 3 in operand 1 (axis 1)", false},
		{"ij,kl->ij", []*tensor.Tensor{m}, "1 operands", false},
		{"i2", []*tensor.Tensor{m}, "'2' is not a letter", false},
		{"ia,ja->ij", []*tensor.Tensor{up, up}, "index a is upper in operand 1 and upper in operand 2", true},
		{"i_a->i", []*tensor.Tensor{up}, "index a is lower in the spec, and axis 1 of operand 1 is upper", true},
		{"ia->i_a", []*tensor.Tensor{up}, "index a is upper in operand 1 and lower in the output", true},
	} {
		y, err := tensor.Einsum(c.spec, c.operands...)
		if err == nil || y != nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, tensor.ErrVariance) != c.variance {
			t.Errorf("%s: %v, want %q, ErrVariance %v", c.spec, err, c.says, c.variance)
		}
	}
}

// TestEinsumVariance checks that the result has the kinds of its free indices, whether the spec or
// the tensors mark them.
func TestEinsumVariance(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	q := normal(r, 2, 3).Mark(tensor.Label, tensor.Up)
	g := normal(r, 3, 3).Mark(tensor.Down, tensor.Down)
	k := normal(r, 4, 3)
	for _, c := range []struct {
		spec     string
		operands []*tensor.Tensor
		want     []tensor.Variance
	}{
		{"ia,ab->ib", []*tensor.Tensor{q, g}, []tensor.Variance{tensor.Label, tensor.Down}},
		{"ab,ia", []*tensor.Tensor{g, q}, []tensor.Variance{tensor.Down, tensor.Label}},
		{"ia,ab,jb->ij", []*tensor.Tensor{q, g, k}, []tensor.Variance{tensor.Label, tensor.Label}},
		{"ja->j^a", []*tensor.Tensor{k}, []tensor.Variance{tensor.Label, tensor.Up}},
		// K's index is a label, and no rule applies to it.
		{"ia,ja->ij", []*tensor.Tensor{q, k}, []tensor.Variance{tensor.Label, tensor.Label}},
		{"ia,^ia->ia", []*tensor.Tensor{q, normal(r, 2, 3)}, []tensor.Variance{tensor.Up, tensor.Up}},
	} {
		y := einsum(t, c.spec, c.operands...)
		if !slices.Equal(y.Variance(), c.want) {
			t.Errorf("%s: kinds %v, want %v", c.spec, y.Variance(), c.want)
		}
	}
}
