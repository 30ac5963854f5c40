package tensor

import "slices"

// Einsum multiplies operands and sums as the spec says; see the package doc. For "ia,ja->ij" it
// computes
//
//	y[i,j] = sum_a x1[i,a] x2[j,a]
//
// An error names the index and the operand, counted from 1.
func Einsum(spec string, operands ...*Tensor) (*Tensor, error) {
	c, err := Parse(spec)
	if err != nil {
		return nil, err
	}
	return c.Apply(operands...)
}

// Apply evaluates a parsed spec, as Einsum does.
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
	at := make([]int, len(operands)) // offset of the present element of each operand
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

// bind fits operands to the contraction. It checks their shapes, finds the extent of every index,
// and takes the kinds of indices from the operands where the spec states none.
func (c *Contraction) bind(operands []*Tensor) (*Contraction, map[rune]int, error) {
	if len(operands) != len(c.Inputs) {
		return nil, nil, c.wrong("got %d operands, want %d", len(operands), len(c.Inputs))
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

// A loop runs one index. steps has the distance in elements by which each operand moves at a step:
// 0 if it lacks the index, the diagonal's if it has the index twice.
type loop struct {
	extent int
	steps  []int
}

// loop returns the loop of an index.
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

// walk visits every value of the indices, the last one running fastest. It moves at to the elements
// of each visit.
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
