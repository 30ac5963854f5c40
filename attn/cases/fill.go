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

// Distributions lists the names that Fill knows:
//
//	normal   unit normals: scores of standard deviation 1 at the default scale
//	std30    unit normals with Q stretched until scores have standard deviation 30: a few keys take all the weight
//	rising   every key scores about 1 higher than the key before it, for every query: the worst case for a lazily kept maximum
//	sparse   normal, but one key in 64 scores about 12 higher than the others
//
// V, a bias, sinks and relative positions are unit normals in each; slopes and angles are the usual
// ones.
func Distributions() []string { return slices.Clone(distributions) }

// Fill writes the input operands of a call, the same ones for the same seed in every layout that
// shares none of them.
func Fill(dist string, p attn.Problem, a *attn.Args, seed uint64) error {
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	q, k := random(1), random(2)
	reach := p.Scale() * math.Sqrt(float64(p.Dim)) // the standard deviation of a score of unit normals
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
	return nil
}

// firstKeys is the key in the first row of each batch of K: 0, or in pages, what the table says.
func firstKeys(p *attn.Problem, a *attn.Args) []int {
	first := make([]int, a.K.B)
	for i := range a.Pages {
		first[a.Pages[i]] = i % p.PagesEach() * p.Page
	}
	return first
}

// fillTerms fills the operands of score terms: as large as makes a difference, none so large that
// nothing else counts.
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

// drawn is how many numbers of a tensor are drawn at most.
const drawn = 1 << 22

// normal fills a tensor with numbers from a normal distribution. Rows beyond those that can be
// drawn are copied from there, each from a place of its own that is a row's beginning only by
// chance: to draw a gigabyte of keys and values took a quarter of a sample's time on a Zen 5.
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
