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

// Capacities holds the number of random patterns that a classical network of N spins, without a
// diagonal, stores as N grows.
type Capacities struct {
	SomeWrong float64 // 0.138 N: a retrieved pattern may have a few wrong bits
	MostExact float64 // N/(2 ln N): most patterns are fixed points
	AllExact  float64 // N/(4 ln N): all patterns are fixed points
}

// ClassicalCapacity returns the capacities of n spins.
func ClassicalCapacity(n int) Capacities {
	x := float64(n)
	return Capacities{SomeWrong: 0.138 * x, MostExact: x / (2 * math.Log(x)), AllExact: x / (4 * math.Log(x))}
}

// WrongBit returns the probability that an update turns a given bit of a stored pattern, in a
// network without a diagonal. The pattern itself adds N-1 votes for the bit. The others add
// (N-1)(M-1) random votes, whose sum is nearly normal:
//
//	P = Phi(-sqrt((N-1)/(M-1)))
func WrongBit(patterns, n int) float64 {
	return distuv.UnitNormal.Survival(math.Sqrt(float64(n-1) / float64(patterns-1)))
}

// A BinaryTrial stores random patterns in classical networks without a diagonal and retrieves them.
type BinaryTrial struct {
	Spins int
	// Networks is the number of networks, each with patterns of its own; 0 means 1. Near the knee,
	// networks differ much from each other.
	Networks int
	// Probes is the number of patterns of each network to retrieve, each from itself; 0 means all.
	Probes int
}

// A BinaryRecall is the result of a BinaryTrial.
type BinaryRecall struct {
	Patterns  int
	Load      float64 // M/N
	WrongBits float64 // share of all bits that one update turns
	NotFixed  float64 // share of the patterns with such a bit
	Overlap   float64 // mean overlap of a probe with its rest state
	// Recalled is the share of the probes with an overlap of at least 0.9, that is, with at most
	// one bit in twenty wrong.
	Recalled float64
}

// Run stores the given number of random patterns in each network and retrieves them.
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

// share returns some/all.
func share(some, all int) float64 { return float64(some) / float64(all) }

// probesOf returns the number of patterns to retrieve: at most wanted, and all if wanted is 0.
func probesOf(wanted, patterns int) int {
	if wanted == 0 {
		return patterns
	}
	return min(wanted, patterns)
}

// Knee returns the load at which the share of recalled probes falls through one half. It
// interpolates linearly between the trials on both sides, and is NaN if there are none. The trials
// must be in order of load.
func Knee(trials []BinaryRecall) float64 {
	for i := 1; i < len(trials); i++ {
		if a, b := trials[i-1], trials[i]; a.Recalled >= 0.5 && b.Recalled < 0.5 {
			return a.Load + (b.Load-a.Load)*(a.Recalled-0.5)/(a.Recalled-b.Recalled)
		}
	}
	return math.NaN()
}

// A Bound is the capacity that the theorem of Ramsauer et al. gives for random patterns on a sphere
// of radius K sqrt(d-1).
type Bound struct {
	A, B, C float64
	// Patterns is sqrt(p) c^((d-1)/4): with probability 1-p at least this many can be stored.
	Patterns float64
	// Proven reports whether c is at least (2/sqrt(p))^(4/(d-1)), which the proof assumes. It means
	// that Patterns is at least 2.
	Proven bool
}

// StorageBound returns the theorem's bound. k is the radius in units of sqrt(d-1), d the dimension,
// and p the probability of failure.
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

// WrightOmega returns the w with w + log w = x. It is Lambert's W0(e^x), computed without e^x,
// which may overflow a float64.
//
// Newton's method on the concave w + log w - x, started below the root, rises to the root and never
// passes it. It ends when rounding stops it, after about ten steps at most. Below about -745 the
// root is e^x, which rounds to 0.
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

// BinaryExponential returns 2^(d/2): the number of random binary patterns that a network with
// exponential interaction stores (Demircigil et al.), for large d.
func BinaryExponential(d int) float64 { return math.Exp2(float64(d) / 2) }

// Sphere returns n random points on a sphere in d dimensions, one in each row.
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

// A SphereTrial stores random patterns of a sphere in a modern network and retrieves them.
type SphereTrial struct {
	Dim          int
	Radius, Beta float64
	Probes       int // patterns to retrieve, each from itself; 0: all
}

// A SphereRecall is the result of a SphereTrial.
type SphereRecall struct {
	Patterns int
	// Recalled is the share of the probes that settle within a tenth of the radius of their
	// pattern.
	Recalled float64
	Farthest float64 // the longest way of a probe, in units of the radius
}

// Run stores the given number of random patterns and retrieves them with an Attention.
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
