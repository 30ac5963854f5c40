package hopfield

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"attnlab/theory/bridge"
)

// Capacities are how many random patterns a classical network of N spins, without a diagonal,
// stores as N grows.
type Capacities struct {
	SomeWrong float64 // 0.138 N: a few bits of a retrieved pattern may be wrong
	MostExact float64 // N/(2 ln N): most patterns are fixed points
	AllExact  float64 // N/(4 ln N): all are
}

// ClassicalCapacity is the capacities of n spins.
func ClassicalCapacity(n int) Capacities {
	x := float64(n)
	return Capacities{SomeWrong: 0.138 * x, MostExact: x / (2 * math.Log(x)), AllExact: x / (4 * math.Log(x))}
}

// WrongBit is the probability that an update turns a given bit of a stored pattern, in a network
// without a diagonal. The pattern pulls at the bit with N-1 votes, and the others with (N-1)(M-1)
// random ones, whose sum is nearly normal:
//
//	P = Phi(-sqrt((N-1)/(M-1)))
func WrongBit(patterns, n int) float64 {
	return distuv.UnitNormal.Survival(math.Sqrt(float64(n-1) / float64(patterns-1)))
}

// A BinaryTrial stores random patterns in classical networks without a diagonal and asks for them
// again.
type BinaryTrial struct {
	Spins    int
	Networks int // how many networks are made, each with patterns of its own; 0: 1. Near the knee they differ much from one another
	Probes   int // patterns of each that are settled, from themselves; 0: all
}

// A BinaryRecall is what came back.
type BinaryRecall struct {
	Patterns  int
	Load      float64 // M/N
	WrongBits float64 // share of all bits of the patterns that one update turns
	NotFixed  float64 // share of the patterns with such a bit
	Overlap   float64 // mean overlap of a probe with what it settled at
	Recalled  float64 // share of the probes whose overlap is at least 0.9: at most one bit in twenty is wrong
}

// Run stores so many patterns.
func (t BinaryTrial) Run(rng *rand.Rand, patterns int) (BinaryRecall, error) {
	if patterns < 1 || t.Spins < 1 {
		return BinaryRecall{}, fmt.Errorf("binary trial: %d patterns of %d spins; store at least one pattern of one spin", patterns, t.Spins)
	}
	networks, probes := max(t.Networks, 1), probesOf(t.Probes, patterns)
	bits, moved, back, overlap := 0, 0, 0, 0.0
	for range networks {
		p := Spins(rng, patterns, t.Spins)
		net, err := Hebb(p)
		if err != nil {
			return BinaryRecall{}, err
		}
		net = net.WithoutDiagonal()
		var fields mat.Dense
		fields.Mul(p, net.Sums)
		for mu := range patterns {
			before := bits
			for i, x := range p.RawRowView(mu) {
				if x*fields.At(mu, i) < 0 {
					bits++
				}
			}
			if bits > before {
				moved++
			}
		}
		for mu := range probes {
			x := p.RawRowView(mu)
			o := Overlap(x, net.Settle(x, 100, rng).State)
			overlap += o
			if o >= 0.9 {
				back++
			}
		}
	}
	return BinaryRecall{
		Patterns: patterns, Load: share(patterns, t.Spins),
		WrongBits: share(bits, networks*patterns*t.Spins), NotFixed: share(moved, networks*patterns),
		Overlap: overlap / float64(networks*probes), Recalled: share(back, networks*probes),
	}, nil
}

// share is so many of all.
func share(some, all int) float64 { return float64(some) / float64(all) }

// probesOf is how many patterns are asked for: as many as wanted, 0 being all.
func probesOf(wanted, patterns int) int {
	if wanted == 0 {
		return patterns
	}
	return min(wanted, patterns)
}

// Knee is the load at which the share of recalled probes falls through a half, on a straight line
// between the trials on its two sides; NaN where none do. Trials are in order of load.
func Knee(trials []BinaryRecall) float64 {
	for i := 1; i < len(trials); i++ {
		if a, b := trials[i-1], trials[i]; a.Recalled >= 0.5 && b.Recalled < 0.5 {
			return a.Load + (b.Load-a.Load)*(a.Recalled-0.5)/(a.Recalled-b.Recalled)
		}
	}
	return math.NaN()
}

// A Bound is what the theorem of Ramsauer and others says of random patterns on a sphere of radius
// K sqrt(d-1).
type Bound struct {
	A, B, C  float64
	Patterns float64 // sqrt(p) c^((d-1)/4): with probability 1-p at least so many can be stored
	Proven   bool    // c is at least (2/sqrt(p))^(4/(d-1)), which the proof assumes; it says that Patterns is at least 2
}

// StorageBound is the theorem's bound for an inverse temperature, a radius in units of sqrt(d-1), a
// dimension, and a probability to fail.
func StorageBound(beta, k float64, d int, p float64) (Bound, error) {
	if !(beta > 0 && k > 0 && d > 1 && 0 < p && p <= 1) {
		return Bound{}, fmt.Errorf("storage bound: beta %v, K %v, d %d, p %v; want beta and K above 0, d of 2 or more, p above 0 and at most 1", beta, k, d, p)
	}
	n := float64(d - 1)
	b := Bound{A: 2 / n * (1 + math.Log(2*beta*k*k*p*n)), B: 2 * beta * k * k / 5}
	b.C = b.B / WrightOmega(b.A+math.Log(b.B))
	b.Patterns = math.Sqrt(p) * math.Pow(b.C, n/4)
	b.Proven = b.C >= math.Pow(2/math.Sqrt(p), 4/n)
	return b, nil
}

// WrightOmega is the w with w + log w = x. It is Lambert's W0(e^x), without the e^x that a float64
// may not hold.
//
// Newton's method on the concave w + log w - x, from a start below the root, rises to it and never
// passes it: it ends when rounding stops it, after some ten steps at most. Below about -745 the
// root is e^x, which is 0.
func WrightOmega(x float64) float64 {
	e := math.Exp(x)
	w := e / (1 + e)
	if x > 1 {
		w = x - math.Log(x)
	}
	if w == 0 || math.IsNaN(w) || math.IsInf(x, 1) {
		return e
	}
	for {
		next := w * ((1 + x - math.Log(w)) / (1 + w))
		if !(next > w) {
			return w
		}
		w = next
	}
}

// BinaryExponential is 2^(d/2): how many random binary patterns a network with exponential
// interaction stores (Demircigil and others), for large d.
func BinaryExponential(d int) float64 { return math.Exp2(float64(d) / 2) }

// Sphere is n random points on a sphere in d dimensions, one a row.
func Sphere(rng *rand.Rand, n, d int, radius float64) *mat.Dense {
	p := mat.NewDense(n, d, nil)
	for i := range n {
		x := p.RawRowView(i)
		for c := range x {
			x[c] = rng.NormFloat64()
		}
		floats.Scale(radius/floats.Norm(x, 2), x)
	}
	return p
}

// A SphereTrial stores random patterns of a sphere in a modern network and asks for them again.
type SphereTrial struct {
	Dim          int
	Radius, Beta float64
	Probes       int // patterns that are asked for, from themselves; 0: all
}

// A SphereRecall is what came back.
type SphereRecall struct {
	Patterns int
	Recalled float64 // share of the probes that settle within a tenth of the radius of their pattern
	Farthest float64 // the longest way a probe went, in units of the radius
}

// Run stores so many patterns, and retrieves through an Attention.
func (t SphereTrial) Run(a bridge.Attention, rng *rand.Rand, patterns int) (SphereRecall, error) {
	if patterns < 1 || t.Dim < 1 || !(t.Radius > 0) {
		return SphereRecall{}, fmt.Errorf("sphere trial: %d patterns in %d dimensions, radius %v; want one or more of each, and a radius above 0", patterns, t.Dim, t.Radius)
	}
	m, err := NewModern(Sphere(rng, patterns, t.Dim, t.Radius), nil, t.Beta)
	if err != nil {
		return SphereRecall{}, err
	}
	probes := probesOf(t.Probes, patterns)
	all, err := m.Retrieve(a, m.Keys.Slice(0, probes, 0, t.Dim), Limit{Tolerance: 1e-4 * t.Radius})
	if err != nil {
		return SphereRecall{}, err
	}
	r, back := SphereRecall{Patterns: patterns}, 0
	for i, found := range all {
		way := floats.Distance(found.State, m.Keys.RawRowView(i), 2) / t.Radius
		r.Farthest = max(r.Farthest, way)
		if way <= 0.1 {
			back++
		}
	}
	r.Recalled = share(back, probes)
	return r, nil
}
