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

// A Sampler chooses a token by its logits. The zero value is greedy: it chooses the largest logit,
// the first of equal ones.
type Sampler struct {
	Temperature float64 // 0: greedy
	TopK        int     // choose among the K most likely tokens; 0: all
	TopP        float64 // choose among the most likely tokens with weight P together; 0: all
	Rand        *rand.Rand

	order   []int32
	weights []float64
}

// Choose returns the chosen token. It allocates only when there are more tokens than before.
func (s *Sampler) Choose(logits []float32) int32 {
	if s.Temperature == 0 {
		return int32(largest(logits))
	}
	if s.Rand == nil || !(s.Temperature > 0) {
		panic(fmt.Sprintf("nn: a Sampler of temperature %v, want 0, or a positive one and a Rand", s.Temperature))
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

// A Generator continues a sequence with a language model. It keeps what it has read in caches, so
// each token costs one row. A decoder beside an encoder generates like any other model, with the
// encoder's output in On.Memory.
type Generator struct {
	pass   *ModelPass
	caches *Caches
	chunk  int
	one    [1]int32
	logits []float32 // logits after the last token
}

// ErrFull reports that a generator has no room for the tokens to read.
var ErrFull = errors.New("nn: the generator is full: make one with more capacity, or a new one that reads the end of the text")

// Generate returns a generator for a sequence of up to capacity tokens. It reads given tokens in
// chunks. Keys and values have the type store and are kept in pages of page rows, or in one if page
// is 0. Linear attention keeps none, and its memory does not depend on the capacity.
func (m *Model) Generate(on On, capacity, chunk int, store attn.DType, page int) (*Generator, error) {
	if m.Pool {
		return nil, errors.New("nn: a classifier (Pool) cannot generate: use a language model")
	}
	if at := m.Embed.Position; at != nil && capacity > at.W.Rows {
		return nil, fmt.Errorf("%w: a generator of %d tokens, and %s has %d positions", ErrShape, capacity, at.Name, at.W.Rows)
	}
	on.Caches = &Caches{Capacity: capacity, Store: store, Page: page}
	g := &Generator{caches: on.Caches, chunk: max(chunk, 1)}
	var err error
	g.pass, err = m.Plan(on, 1, g.chunk)
	return g, err
}

// Read reads tokens, which follow the ones read before.
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

// Logits returns the logits of the next token.
func (g *Generator) Logits() []float32 { return g.logits }

// Next chooses the next token, reads it and returns it.
func (g *Generator) Next(s *Sampler) (int32, error) {
	if g.logits == nil {
		return 0, errors.New("nn: Next before Read: give the generator a beginning to Read")
	}
	g.one[0] = s.Choose(g.logits)
	return g.one[0], g.Read(g.one[:])
}

// Len returns the number of tokens read.
func (g *Generator) Len() int { return g.caches.Len() }
