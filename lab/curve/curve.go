// Package curve measures how the time and the memory of kernels grow with length, for the figures
// of the source documents.
package curve

import (
	"fmt"
	"io"
	"math"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/theory/figures"
)

// lengths are those of the lesson.
var lengths = []int{100, 500, 1000, 2000, 5000}

// Measure measures three kernels of a list: the first that does softmax attention, which writes
// every weight out, up to 2000 rows; the last that does it, which is the fastest; and the last that
// does linear attention. It writes to tell which kernel is timed. Kernels that the list lacks have
// no curve.
func Measure(all []attn.Kernel, tell io.Writer) (m figures.Measured, err error) {
	softmax, linear := attn.Problem{}, attn.Problem{Op: attn.OpLinear}
	for _, s := range []struct {
		problem attn.Problem
		kernel  attn.Kernel
		longest int
	}{{softmax, first(all, softmax), 2000}, {softmax, last(all, softmax), 5000}, {linear, last(all, linear), 5000}} {
		if s.kernel == nil {
			continue
		}
		algo, isa := s.kernel.Name()
		fmt.Fprintf(tell, "Timing %s/%s up to %d rows.\n", algo, isa, s.longest)
		seconds, bytes := figures.Curve{Name: algo + "/" + isa}, figures.Curve{Name: algo + "/" + isa}
		for _, n := range lengths {
			if n > s.longest {
				break
			}
			took, scratch, err := one(s.kernel, sized(s.problem, n))
			if err != nil {
				return m, err
			}
			seconds.N, seconds.Value = append(seconds.N, float64(n)), append(seconds.Value, took.Seconds())
			bytes.N, bytes.Value = append(bytes.N, float64(n)), append(bytes.Value, float64(scratch))
		}
		m.Seconds, m.Bytes = append(m.Seconds, seconds), append(m.Bytes, bytes)
	}
	return m, nil
}

// first returns the first kernel that does a problem, or nil.
func first(all []attn.Kernel, p attn.Problem) attn.Kernel {
	for _, k := range all {
		if _, err := k.Check(sized(p, 1), 1); err == nil {
			return k
		}
	}
	return nil
}

// last returns the last kernel that does a problem, or nil.
func last(all []attn.Kernel, p attn.Problem) (found attn.Kernel) {
	for _, k := range all {
		if _, err := k.Check(sized(p, 1), 1); err == nil {
			found = k
		}
	}
	return found
}

// sized returns a problem of one head, with n queries and n keys of dimension 64.
func sized(p attn.Problem, n int) attn.Problem {
	p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV = 1, 1, 1, n, n, 64, 64
	return p
}

// one returns the least time of three calls, or of fewer if they take longer than a tenth of a
// second, and the memory of their plan.
func one(k attn.Kernel, p attn.Problem) (least time.Duration, scratch int64, err error) {
	plan, err := k.Plan(p, nil)
	if err != nil {
		return 0, 0, err
	}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		return 0, 0, err
	}
	least = math.MaxInt64
	for begun, calls := time.Now(), 0; calls < 3 && time.Since(begun) < time.Second/10; calls++ {
		call := time.Now()
		plan.Forward(a)
		least = min(least, time.Since(call))
	}
	return least, plan.Scratch(), nil
}
