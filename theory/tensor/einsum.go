package tensor

import "slices"

// Einsum multiplies operands and sums, as a spec says: see the package. For "ia,ja->ij" it is
//
//	y[i,j] = sum_a x1[i,a] x2[j,a]
//
// An error names the operand, counted from one, and the index that it is about.
func Einsum(spec string, operands ...*Tensor) (*Tensor, error) {
	c, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	return c.Apply(operands...)
}

// Apply is Einsum with a spec that has been parsed.
func (c *Contraction) Apply(operands ...*Tensor) (*Tensor, error) {
	b, extents, err := c.bind(operands)
	if err != nil {
		return nil, err
	}
	shape, kinds := make([]int, len(b.Output)), make([]Variance, len(b.Output))
	for axis, x := range b.Output {
		shape[axis], kinds[axis] = extents[x.Name], x.Variance
	}
	loops := func(letters string) []loop {
		var all []loop
		for _, name := range letters {
			all = append(all, b.loop(name, extents[name], operands))
		}
		return all
	}
	free, summed := loops(b.Free), loops(b.Summed)
	y, n := New(shape...).Mark(kinds...), 0
	at := make([]int, len(operands)) // the element of each operand that is at hand
	walk(free, at, func() {
		sum := 0.0
		walk(summed, at, func() {
			term := 1.0
			for k, x := range operands {
				term *= x.data[at[k]]
			}
			sum += term
		})
		y.data[n] = sum
		n++
	})
	return y, nil
}

// bind puts operands to the contraction: it says what does not fit, finds the extent of every
// index, and takes the kinds of indices that the operands have where the spec states none.
func (c *Contraction) bind(operands []*Tensor) (*Contraction, map[rune]int, error) {
	if len(operands) != len(c.Inputs) {
		return nil, nil, c.wrong("%d operands, and the spec has %d", len(operands), len(c.Inputs))
	}
	type place struct{ operand, axis int }
	extents, first := map[rune]int{}, map[rune]place{}
	b := *c
	b.Inputs, b.Output = slices.Clone(c.Inputs), slices.Clone(c.Output)
	for k, x := range operands {
		if x == nil {
			return nil, nil, c.wrong("operand %d is nil", k+1)
		}
		if in := c.Inputs[k]; x.Rank() != len(in) {
			return nil, nil, c.wrong("operand %d has shape %v, and the spec names %d indices %s for it", k+1, x.shape, len(in), brackets(in))
		}
		b.Inputs[k] = slices.Clone(c.Inputs[k])
		for axis, i := range c.Inputs[k] {
			f, seen := first[i.Name]
			if !seen {
				first[i.Name], extents[i.Name] = place{k + 1, axis}, x.shape[axis]
			} else if x.shape[axis] != extents[i.Name] {
				return nil, nil, c.wrong("index %c has extent %d in operand %d (axis %d) and %d in operand %d (axis %d)",
					i.Name, extents[i.Name], f.operand, f.axis, x.shape[axis], k+1, axis)
			}
			switch own := x.variance[axis]; {
			case i.Variance == Label:
				b.Inputs[k][axis].Variance = own
			case own != Label && own != i.Variance:
				return nil, nil, c.wrong("%w: index %c is %v in the spec, and axis %d of operand %d is %v", ErrVariance, i.Name, i.Variance, axis, k+1, own)
			}
		}
	}
	return &b, extents, b.settle()
}

// A loop is an index that runs: how far, and how many elements each operand moves on at a step. An
// operand that lacks the index stays, one that has it twice moves along the diagonal.
type loop struct {
	extent int
	steps  []int
}

// loop makes the loop of an index.
func (c *Contraction) loop(name rune, extent int, operands []*Tensor) loop {
	l := loop{extent, make([]int, len(operands))}
	for k, x := range operands {
		for axis, i := range c.Inputs[k] {
			if i.Name == name {
				l.steps[k] += count(x.shape[axis+1:])
			}
		}
	}
	return l
}

// walk visits every value of the indices, the last one running fastest, with at moved to the
// elements that belong to it.
func walk(indices []loop, at []int, visit func()) {
	if len(indices) == 0 {
		visit()
		return
	}
	first := indices[0]
	for range first.extent {
		walk(indices[1:], at, visit)
		for k, step := range first.steps {
			at[k] += step
		}
	}
	for k, step := range first.steps {
		at[k] -= first.extent * step
	}
}
