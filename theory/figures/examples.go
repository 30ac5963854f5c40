package figures

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/theory/calculus"
	"attnlab/theory/gibbs"
	"attnlab/theory/hopfield"
	"attnlab/theory/positions"
	"attnlab/theory/scorers"
)

// Measured holds measured curves. Empty kinds are not drawn.
type Measured struct{ Seconds, Bytes []Curve }

// All returns one figure of each kind, from the examples of the source documents and from fixed
// random numbers. Each figure is computed when it is requested.
func All(m Measured) iter.Seq[Figure] {
	return func(yield func(Figure) bool) {
		for _, figure := range []func() Figure{
			attentionExample, headsExample, metricsExample, masksExample,
			func() Figure { return TemperatureSweep([]float64{2, 1, 0}) },
			SoftmaxAndArgmax, entropyExample, gradientsExample, energyExample,
			func() Figure { return HopfieldProfile([]float64{.5, 1, 2, 4, 16}) },
			func() Figure { return HopfieldBasins(fivePatterns(), []float64{2, 4, 20}) },
			capacityExample,
			func() Figure { return Encodings(64, 32) },
			shiftsExample,
		} {
			if !yield(figure()) {
				return
			}
		}
		if len(m.Seconds)+len(m.Bytes) > 0 {
			yield(Complexity(m.Seconds, m.Bytes))
		}
	}
}

// normal returns a matrix of standard normal numbers.
func normal(rng *rand.Rand, r, c int) *mat.Dense {
	m := mat.NewDense(r, c, nil)
	m.Apply(func(_, _ int, _ float64) float64 { return rng.NormFloat64() }, m)
	return m
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// attentionExample draws the documents' first worked example.
func attentionExample() Figure {
	q := mat.NewDense(2, 2, []float64{1, 0, 0, 1})
	k := mat.NewDense(3, 2, []float64{1, 0, 0, 1, 1, 1})
	v := mat.NewDense(3, 2, []float64{2, 0, 0, 2, 1, 1})
	return AttentionWeights(scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{}), []string{"q₀", "q₁"}, []string{"k₀", "k₁", "k₂"})
}

// causal shows keys up to the query's own position.
func causal(i, j int) bool { return j <= i }

// headsExample draws one self-attention under the slopes of four ALiBi heads.
func headsExample() Figure {
	const n, d = 32, 16
	rng := seeded(1)
	scores := scorers.Dot{}.Scores(normal(rng, n, d), normal(rng, n, d))
	var names []string
	var weights []*mat.Dense
	slopes := attn.ALiBiSlopes(8)
	for _, slope := range []float32{slopes[0], slopes[1], slopes[3], slopes[7]} {
		var s mat.Dense
		s.Add(scores, positions.ALiBi(float64(slope), n, n))
		names = append(names, fmt.Sprintf("ALiBi slope 1/%.0f", 1/slope))
		weights = append(weights, scorers.Weights(&s, scorers.Options{Mask: causal}))
	}
	return Heads(names, weights)
}

func metricsExample() Figure {
	const d = 6
	rng := seeded(2)
	x := normal(rng, 10, d)
	euclid, diagonal, learned := mat.NewDense(d, d, nil), mat.NewDense(d, d, nil), new(mat.Dense)
	for a := range d {
		euclid.Set(a, a, 1/math.Sqrt(d))
		diagonal.Set(a, a, 2/math.Sqrt(d)*math.Exp2(-float64(a)))
	}
	w := normal(rng, 2, d)
	learned.Mul(w.T(), w)
	learned.Scale(1/math.Sqrt(d), learned)
	skew := normal(rng, d, d)
	skew.Scale(1/math.Sqrt(d), skew)
	return Metrics(x, x, []Metric{{"δ/√d", euclid}, {"diagonal, first columns count", diagonal}, {"WᵀW/√d, rank 2", learned}, {"M/√d, not symmetric", skew}})
}

// masksExample draws masks of package attn.
func masksExample() Figure {
	const n = 16
	picture := func(name string, m attn.Mask, allowed attn.Bits) Mask {
		p := attn.Problem{Batch: 1, SeqQ: n, SeqKV: n, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Mask: m}
		rows := attn.New(attn.BHSD, 1, n, 1, 1)
		return Mask{name, p.Picture(&attn.Args{Q: rows, K: rows, V: rows, Allowed: allowed}, 0, 0)}
	}
	packed := func(name string, allowed attn.Bits) Mask {
		return picture(name, attn.Mask{Bitmap: attn.PackedBitmap}, allowed)
	}
	return Masks([]Mask{
		picture("causal", attn.Causal(), attn.Bits{}),
		picture("causal, window of 5", attn.Window(4, 0), attn.Bits{}),
		packed("local, width 6", attn.Local(n, 6)),
		packed("strided, 4", attn.Strided(n, 4)),
		packed("blocks of 4", attn.Pack(n, n, func(i, j int) bool { return i/4 == j/4 })),
		packed("global and local", attn.GlobalLocal(n, 2, 4)),
		packed("global, local, random", positions.BigBird(n, 2, 4, 2, seeded(3))),
		packed("causal, 4 keys of padding", attn.Pack(n, n, func(i, j int) bool { return j <= i && j < n-4 })),
	})
}

// entropyExample draws the entropies of rows of scores of random queries and keys, with three
// scales.
func entropyExample() Figure {
	const queries, keys, d = 2000, 64, 64
	rng := seeded(4)
	q, k := normal(rng, queries, d), normal(rng, keys, d)
	var names []string
	var entropies [][]float64
	for _, s := range []struct {
		name  string
		scale float64
	}{{"q·k / √d", 1 / math.Sqrt(d)}, {"2 q·k / √d", 2 / math.Sqrt(d)}, {"q·k, no scale", 1}} {
		names = append(names, s.name)
		entropies = append(entropies, gibbs.EntropyRows(gibbs.SoftmaxRows(scorers.Dot{Scale: s.scale}.Scores(q, k), 1)))
	}
	return EntropyDistribution(names, entropies, keys)
}

// gradientsExample draws the backward pass of half the sum of squares of a causal self-attention,
// whose gradient by the output is the output.
func gradientsExample() Figure {
	const n, d = 10, 6
	rng := seeded(5)
	q, k, v := normal(rng, n, d), normal(rng, n, d), normal(rng, n, d)
	forward := scorers.Attend(scorers.Dot{}, q, k, v, scorers.Options{Mask: causal})
	return GradientFlow(forward, calculus.Backward(forward, q, k, v, 1/math.Sqrt(d), forward.Output), forward.Output)
}

func energyExample() Figure {
	h := math.Sqrt(3) / 2
	m, err := hopfield.NewModern(mat.NewDense(3, 2, []float64{1, 0, -.5, h, -.5, -h}), nil, 6)
	if err != nil {
		panic(err) // cannot happen: three patterns of two numbers
	}
	return HopfieldEnergy(m, mat.NewDense(4, 2, []float64{1.7, .5, .1, 1.4, -.05, -.1, -1.5, -.4}))
}

// fivePatterns returns points of the plane, no three of them in line.
func fivePatterns() *mat.Dense {
	return mat.NewDense(5, 2, []float64{1, .1, .35, .95, -.8, .65, -.6, -.75, .55, -.85})
}

func capacityExample() Figure {
	var loads []float64
	for i := range 16 {
		loads = append(loads, .02*float64(i+1))
	}
	return HopfieldCapacity(seeded(6), 250, loads)
}

func shiftsExample() Figure {
	const d = 16
	rng := seeded(7)
	q, k := normal(rng, 1, d).RawRowView(0), normal(rng, 1, d).RawRowView(0)
	return Shifts(q, k, 5, 128, []Scheme{
		{"sinusoids, added", positions.Sinusoid{Dim: d}.Score}, {"rotation (RoPE)", positions.Rope{Dim: d}.Score}, {"bias by distance (ALiBi)", positions.ALiBiScore(.25)},
	})
}
