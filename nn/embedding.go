package nn

import (
	"fmt"
	"math/rand/v2"
)

// An Embedding maps every token to a row, and adds the row of its position if there are positions:
//
//	y_i = token[t_i] + position[i]
//
// It is the beginning of a model, and no Layer, because its input is tokens.
type Embedding struct {
	Token    *Param // [tokens][dim]
	Position *Param // [positions][dim], or nil
}

// NewEmbedding returns an embedding with normal rows. With 0 positions it has none.
func NewEmbedding(name string, tokens, positions, dim int, r *rand.Rand) *Embedding {
	e := &Embedding{Token: NewParam(name+".token", tokens, dim).Normal(r, 0.02)}
	if positions > 0 {
		e.Position = NewParam(name+".position", positions, dim).Normal(r, 0.02)
	}
	return e
}

// Params returns the tables.
func (e *Embedding) Params() []*Param {
	if e.Position == nil {
		return []*Param{e.Token}
	}
	return []*Param{e.Token, e.Position}
}

// An EmbeddingPass runs an Embedding.
type EmbeddingPass struct {
	// Begin is the position of the first token of every sequence.
	Begin int

	layer      *Embedding
	batch, seq int
	tokens     []int32
	y          Mat
}

// Plan allocates for batch sequences of seq tokens.
func (e *Embedding) Plan(batch, seq int) (*EmbeddingPass, error) {
	if e.Position != nil && seq > e.Position.W.Rows {
		return nil, fmt.Errorf("%w: a sequence of %d, and %s has %d positions", ErrShape, seq, e.Position.Name, e.Position.W.Rows)
	}
	if batch < 1 || seq < 0 {
		return nil, fmt.Errorf("%w: %s for %d sequences of %d tokens, want 1 or more sequences of 0 or more", ErrShape, e.Token.Name, batch, seq)
	}
	return &EmbeddingPass{layer: e, batch: batch, y: NewMat(batch*seq, e.Token.W.Cols)}, nil
}

// Forward returns a row for each token. It panics on a token that the table has no row for.
func (p *EmbeddingPass) Forward(tokens []int32) Mat {
	if len(tokens) > p.y.Rows || len(tokens)%p.batch != 0 {
		panic(fmt.Sprintf("nn: %s: %d tokens, want up to %d, the same number for each of %d sequences", p.layer.Token.Name, len(tokens), p.y.Rows, p.batch))
	}
	p.tokens, p.seq = tokens, len(tokens)/p.batch
	for i, t := range tokens {
		if t < 0 || int(t) >= p.layer.Token.W.Rows {
			panic(fmt.Sprintf("nn: %s: token %d is %d, want 0 to %d", p.layer.Token.Name, i, t, p.layer.Token.W.Rows-1))
		}
		y := p.y.Row(i)
		copy(y, p.layer.Token.W.Row(int(t)))
		if p.layer.Position != nil {
			add(y, p.layer.Position.W.Row(p.Begin+i%p.seq))
		}
	}
	return p.y.First(len(tokens))
}

// Backward adds to the gradients of the rows that Forward read.
func (p *EmbeddingPass) Backward(dy Mat) {
	for i, t := range p.tokens {
		add(p.layer.Token.Grad.Row(int(t)), dy.Row(i))
		if p.layer.Position != nil {
			add(p.layer.Position.Grad.Row(p.Begin+i%p.seq), dy.Row(i))
		}
	}
}

func add(to, x []float32) {
	for j, x := range x {
		to[j] += x
	}
}
