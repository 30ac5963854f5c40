package nn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
)

// A Sampler chooses a token from its logits. Its zero value is greedy: the largest, the first of
// equal ones.
type Sampler struct {
	Temperature float64 // 0: greedy
	TopK        int     // only among the K most likely; 0: all
	TopP        float64 // only among the most likely that have P of the weight together; 0: all
	Rand        *rand.Rand

	order   []int32
	weights []float64
}

// Choose chooses. It allocates only when there are more tokens than before.
func (s *Sampler) Choose(logits []float32) int32 {
	if s.Temperature == 0 {
		return int32(largest(logits))
	}
	if s.Rand == nil || !(s.Temperature > 0) {
		panic(fmt.Sprintf("nn: a Sampler of temperature %v: want 0, or more and a Rand to choose by", s.Temperature))
	}
	s.order, s.weights = s.order[:0], s.weights[:0]
	for i := range logits {
		s.order = append(s.order, int32(i))
	}
	slices.SortStableFunc(s.order, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	if s.TopK > 0 {
		s.order = s.order[:min(s.TopK, len(s.order))]
	}
	top, sum := float64(logits[s.order[0]]), 0.0
	for _, i := range s.order {
		w := math.Exp((float64(logits[i]) - top) / s.Temperature)
		s.weights = append(s.weights, w)
		sum += w
	}
	if s.TopP > 0 {
		kept := 0.0
		for n, w := range s.weights {
			if kept += w; kept >= s.TopP*sum {
				s.order, sum = s.order[:n+1], kept
				break
			}
		}
	}
	at := s.Rand.Float64() * sum
	for n, i := range s.order {
		if at -= s.weights[n]; at < 0 {
			return i
		}
	}
	return s.order[len(s.order)-1]
}

// A Generator continues a sequence with a language model: what it has read is in caches, so that a
// token costs one row. A decoder beside an encoder generates as any other model does, On.Memory
// being what the encoder has made.
type Generator struct {
	pass   *ModelPass
	caches *Caches
	chunk  int
	one    [1]int32
	logits []float32 // after the last token
}

// ErrFull is that a generator has no room for what it should read.
var ErrFull = errors.New("nn: the generator is full: make one with more capacity, or a new one that reads the end of the text")

// Generate makes a generator for a sequence of up to capacity tokens, which reads a given beginning
// chunk tokens at a time. Keys and values are stored as store says, in pages of so many rows, or in
// one if page is 0; linear attention stores none, and its memory does not depend on the capacity.
func (m *Model) Generate(on On, capacity, chunk int, store attn.DType, page int) (*Generator, error) {
	if m.Pool {
		return nil, errors.New("nn: a classifier has nothing to generate")
	}
	if at := m.Embed.Position; at != nil && capacity > at.W.Rows {
		return nil, fmt.Errorf("%w: %s has %d positions, and the generator room for %d tokens", ErrShape, at.Name, at.W.Rows, capacity)
	}
	on.Caches = &Caches{Capacity: capacity, Store: store, Page: page}
	g := &Generator{caches: on.Caches, chunk: max(chunk, 1)}
	var err error
	g.pass, err = m.Plan(on, 1, g.chunk)
	return g, err
}

// Read takes tokens in, behind those that it has.
func (g *Generator) Read(tokens []int32) error {
	if g.caches.Len()+len(tokens) > g.caches.Capacity {
		return ErrFull
	}
	for len(tokens) > 0 {
		n := min(g.chunk, len(tokens))
		g.pass.embed.Begin = g.caches.Len()
		y := g.pass.Forward(tokens[:n])
		g.logits, tokens = y.Row(n-1), tokens[n:]
	}
	return nil
}

// Logits are those of the token that follows.
func (g *Generator) Logits() []float32 { return g.logits }

// Next chooses the token that follows, takes it in, and returns it.
func (g *Generator) Next(s *Sampler) (int32, error) {
	if g.logits == nil {
		return 0, errors.New("nn: nothing has been read yet: give the generator a beginning")
	}
	g.one[0] = s.Choose(g.logits)
	return g.one[0], g.Read(g.one[:])
}

// Len is the number of tokens taken in.
func (g *Generator) Len() int { return g.caches.Len() }
