package cases

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"attnlab/attn"
)

var distributions = []string{"normal", "std30", "rising", "sparse"}

// Distributions lists the names that Fill accepts:
//
//	normal   unit normals: scores have standard deviation 1 at the default scale
//	std30    unit normals with Q scaled to scores of standard deviation 30:
//	         a few keys take all the weight
//	rising   each key scores about 1 higher than the key before it, for every query:
//	         the worst case for a running maximum
//	sparse   normal, but one key in 64 scores about 12 higher than the others
//
// In all of them V, a state, bias, sinks and relative positions are unit normals, and slopes and
// angles have their usual values.
func Distributions() []string { return slices.Clone(distributions) }

// Fill writes the input operands of a call. The same seed gives the same numbers in every layout
// that shares no rows.
func Fill(dist string, p attn.Problem, a *attn.Args, seed uint64) error {
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	q, k := random(1), random(2)
	// the standard deviation of scores of unit normals
	reach := p.Scale() * math.Sqrt(float64(p.Dim))
	switch dist {
	case "normal":
		normal(&a.Q, q, 1)
		normal(&a.K, k, 1)
	case "std30":
		normal(&a.Q, q, float32(30/reach))
		normal(&a.K, k, 1)
	case "rising":
		Rows(&a.Q, func(_, _, _ int, row []float32) {
			for i := range row {
				row[i] = 0.5 + q.Float32()
			}
		})
		slope := float32(1 / (p.Scale() * float64(max(p.Dim, 1))))
		first := firstKeys(&p, a)
		Rows(&a.K, func(b, j, _ int, row []float32) {
			for i := range row {
				row[i] = slope * float32(first[b]+j)
			}
		})
	case "sparse":
		normal(&a.Q, q, 1)
		normal(&a.K, k, 1)
		Rows(&a.Q, func(_, _, _ int, row []float32) { addTo(row, 1) })
		first := firstKeys(&p, a)
		Rows(&a.K, func(b, j, _ int, row []float32) {
			if j += first[b]; j%64 == 5 || p.SeqKV <= 5 && j == 0 {
				addTo(row, float32(12/(p.Scale()*float64(max(p.Dim, 1)))))
			}
		})
	default:
		return fmt.Errorf("distribution %q is not one of %s", dist, strings.Join(distributions, ", "))
	}
	normal(&a.V, random(3), 1)
	fillTerms(&p, a, random(4))
	fillRule(&p, a, random(5))
	return nil
}

// firstKeys returns the key in the first row of each batch entry of K. It is 0, or for pages the
// key that the page table puts there.
func firstKeys(p *attn.Problem, a *attn.Args) []int {
	first := make([]int, a.K.B)
	for i := range a.Pages {
		first[a.Pages[i]] = i % p.PagesEach() * p.Page
	}
	return first
}

// fillTerms fills the operands of score terms with numbers that are large enough to matter and
// small enough not to dominate.
func fillTerms(p *attn.Problem, a *attn.Args, r *rand.Rand) {
	t := &a.Terms
	normal(&t.Bias, r, 1)
	copy(t.Slopes, attn.ALiBiSlopes(len(t.Slopes)))
	for h := range t.Sinks {
		t.Sinks[h] = float32(r.NormFloat64())
	}
	normal(&t.Relative, r, 1)
	normal(&t.Metric, r, float32(1/math.Sqrt(float64(max(p.QDim(), 1)))))
	if p.Score.Rope != attn.NoRope {
		cos, sin := attn.RopeTables(10000, t.Cos.S, 2*t.Cos.D)
		Rows(&t.Cos, func(_, pos, _ int, row []float32) { copy(row, cos.Row(0, pos, 0)) })
		Rows(&t.Sin, func(_, pos, _ int, row []float32) { copy(row, sin.Row(0, pos, 0)) })
	}
}

// fillRule fills the operands of a rule as models have them: gates are logarithms of sigmoids, beta
// a sigmoid, and a state unit normals. Keys of the delta rule have length 1, as it needs to be
// stable.
func fillRule(p *attn.Problem, a *attn.Args, r *rand.Rand) {
	Rows(&a.Terms.Decay, func(_, _, _ int, row []float32) {
		for i := range row {
			row[i] = float32(-math.Log1p(math.Exp(-r.NormFloat64())))
		}
	})
	Rows(&a.Terms.Beta, func(_, _, _ int, row []float32) {
		for i := range row {
			row[i] = float32(1 / (1 + math.Exp(-r.NormFloat64())))
		}
	})
	for i := range a.StateIn {
		a.StateIn[i] = float32(r.NormFloat64())
	}
	if p.Linear.Delta && p.Linear.Norm == attn.NoNorm && p.Linear.Feature == attn.Identity {
		Rows(&a.K, func(_, _, _ int, row []float32) { unit(row) })
	}
}

// unit divides a row by its length.
func unit(row []float32) {
	sum := 0.0
	for _, x := range row {
		sum += float64(x) * float64(x)
	}
	if sum > 0 {
		scaleBy(row, float32(1/math.Sqrt(sum)))
	}
}

func scaleBy(row []float32, by float32) {
	for i := range row {
		row[i] *= by
	}
}

// drawn is the largest number of elements of a tensor that are drawn.
const drawn = 1 << 22

// normal fills a tensor with numbers from a normal distribution. The first rows are drawn. Once
// drawn numbers are reached, each further row is a copy from a random place among them, which
// seldom begins at a row. Drawing every number of a large operand would take too long.
func normal(t *attn.Tensor, r *rand.Rand, std float32) {
	var pool []float32
	if rows := t.B * t.S * t.H; rows*t.D > drawn {
		pool = make([]float32, 0, drawn)
	}
	Rows(t, func(_, _, _ int, row []float32) {
		if pool != nil && len(pool)+len(row) > drawn {
			copy(row, pool[r.IntN(len(pool)-len(row)+1):])
			return
		}
		for i := range row {
			row[i] = std * float32(r.NormFloat64())
		}
		if pool != nil {
			pool = append(pool, row...)
		}
	})
}

func addTo(row []float32, c float32) {
	for i := range row {
		row[i] += c
	}
}
