package tensor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// An Index is a letter of a spec and its Variance, up or down.
type Index struct {
	Name     rune
	Variance Variance
}

// A Contraction is a parsed spec.
type Contraction struct {
	Spec   string
	Inputs [][]Index // one index for each axis of each operand
	Output []Index
	Free   string // letters of the output, in its order
	Summed string // summed letters, in order of first occurrence
	// Implicit reports that the spec has no arrow. Output is then the letters that occur once, in
	// alphabetical order.
	Implicit bool
}

// Parse parses a spec. It returns an error if no operands could fit the spec, or if its upper and
// lower indices do not pair.
func Parse(spec string) (*Contraction, error) {
	c := &Contraction{Spec: spec}
	inputs, output, arrow := strings.Cut(spec, "->")
	for k, s := range strings.Split(inputs, ",") {
		indices, err := letters(s)
		if err != nil {
			return nil, c.wrong("operand %d: %w", k+1, err)
		}
		c.Inputs = append(c.Inputs, indices)
	}
	if c.Implicit = !arrow; arrow {
		indices, err := letters(output)
		if err != nil {
			return nil, c.wrong("output: %w", err)
		}
		c.Output = indices
	} else {
		c.Output = c.once()
	}
	for k, x := range c.Output {
		switch {
		case contains(c.Output[:k], x.Name):
			return nil, c.wrong("index %c is twice in the output, want it once", x.Name)
		case !slices.ContainsFunc(c.Inputs, func(in []Index) bool { return contains(in, x.Name) }):
			return nil, c.wrong("index %c of the output is in no operand, so it has no extent", x.Name)
		}
		c.Free += string(x.Name)
	}
	for _, name := range c.names() {
		if !contains(c.Output, name) {
			c.Summed += string(name)
		}
	}
	if err := c.settle(); err != nil {
		return nil, err
	}
	return c, nil
}

// Explain describes a spec in a few lines: the equation over elements with inputs x1, x2, ... and
// output y, and the free and summed indices.
func Explain(spec string) (string, error) {
	c, err := Parse(spec)
	if err != nil {
		return "", err
	}
	inputs := make([]string, len(c.Inputs))
	for k, in := range c.Inputs {
		inputs[k] = fmt.Sprintf("x%d%s", k+1, brackets(in))
	}
	output := "y" + brackets(c.Output)
	if c.Implicit {
		output += ", the indices that occur once, in alphabetical order"
	}
	return fmt.Sprintf("%v\ninputs: %s\noutput: %s\nfree:   %s\nsummed: %s\n",
		c, strings.Join(inputs, " "), output, spaced(c.Free), spaced(c.Summed)), nil
}

// String returns the contraction as an equation over elements.
func (c *Contraction) String() string {
	var s strings.Builder
	s.WriteString("y" + brackets(c.Output) + " =")
	if c.Summed != "" {
		s.WriteString(" sum_" + c.Summed)
	}
	for k, in := range c.Inputs {
		fmt.Fprintf(&s, " x%d%s", k+1, brackets(in))
	}
	return s.String()
}

// letters parses the indices of one operand.
func letters(s string) ([]Index, error) {
	indices, kind, pending := []Index{}, Label, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
		case r == '^':
			kind, pending = Up, true
		case r == '_':
			kind, pending = Down, true
		case unicode.IsLetter(r):
			indices, pending = append(indices, Index{r, kind}), false
		case r == '.':
			return nil, errors.New("an ellipsis, or a dot; name every axis with a letter")
		default:
			return nil, fmt.Errorf("%q is not a letter, want a letter for each index", r)
		}
	}
	if pending {
		return nil, fmt.Errorf("%s has no index after it", kind.mark())
	}
	return indices, nil
}

// once returns the letters that occur once, in alphabetical order.
func (c *Contraction) once() []Index {
	times := map[rune]int{}
	for _, in := range c.Inputs {
		for _, x := range in {
			times[x.Name]++
		}
	}
	out := []Index{}
	for _, name := range c.names() {
		if times[name] == 1 {
			out = append(out, Index{Name: name})
		}
	}
	slices.SortFunc(out, func(x, y Index) int { return int(x.Name) - int(y.Name) })
	return out
}

// names returns the letters of all operands, each once, in order of first occurrence.
func (c *Contraction) names() []rune {
	var names []rune
	for _, in := range c.Inputs {
		for _, x := range in {
			if !slices.Contains(names, x.Name) {
				names = append(names, x.Name)
			}
		}
	}
	return names
}

// settle applies the rule of upper and lower indices to every index, and gives the output's indices
// the variance that they have in the operands.
func (c *Contraction) settle() error {
	for _, name := range c.names() {
		var up, down []int // operands, counted from 1, in which it is up, and down
		for k, in := range c.Inputs {
			for _, x := range in {
				switch {
				case x.Name == name && x.Variance == Up:
					up = append(up, k+1)
				case x.Name == name && x.Variance == Down:
					down = append(down, k+1)
				}
			}
		}
		at := slices.IndexFunc(c.Output, func(x Index) bool { return x.Name == name })
		if err := pair(name, up, down, at >= 0); err != nil {
			return c.wrong("%w: %w", ErrVariance, err)
		}
		if at < 0 || len(up)+len(down) == 0 {
			continue
		}
		kind, where := Up, up
		if len(down) > 0 {
			kind, where = Down, down
		}
		switch o := &c.Output[at]; o.Variance {
		case Label, kind:
			o.Variance = kind
		default:
			return c.wrong("%w: index %c is %v in operand %d and %v in the output; a metric moves it", ErrVariance, name, kind, where[0], o.Variance)
		}
	}
	return nil
}

// pair returns an error if an index with these upper and lower occurrences breaks the rule.
func pair(name rune, up, down []int, free bool) error {
	switch {
	case free && len(up) > 0 && len(down) > 0:
		return fmt.Errorf("index %c is upper in operand %d and lower in operand %d, and the output would have both", name, up[0], down[0])
	case free:
		return nil
	case len(up)+len(down) > 2:
		return fmt.Errorf("index %c is summed over in %d places; a sum joins two", name, len(up)+len(down))
	case len(up) == 2:
		return fmt.Errorf("index %c is upper in operand %d and upper in operand %d; lower one with a metric", name, up[0], up[1])
	case len(down) == 2:
		return fmt.Errorf("index %c is lower in operand %d and lower in operand %d; raise one with a metric", name, down[0], down[1])
	}
	return nil
}

// wrong returns an error about the spec.
func (c *Contraction) wrong(format string, args ...any) error {
	return fmt.Errorf("einsum %q: %w", c.Spec, fmt.Errorf(format, args...))
}

// contains reports whether a letter is among the indices.
func contains(indices []Index, name rune) bool {
	return slices.ContainsFunc(indices, func(x Index) bool { return x.Name == name })
}

// brackets formats the indices of an element: [i,a], or [^i,_a] where they are marked, and nothing
// for a number.
func brackets(indices []Index) string {
	if len(indices) == 0 {
		return ""
	}
	parts := make([]string, len(indices))
	for i, x := range indices {
		parts[i] = x.Variance.mark() + string(x.Name)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// spaced separates letters by blanks.
func spaced(letters string) string {
	if letters == "" {
		return "none"
	}
	return strings.Join(strings.Split(letters, ""), " ")
}
