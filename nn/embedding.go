package nn

import (
	"fmt"
	"math/rand/v2"
)

// An Embedding gives every token a row of its own, and every position of a sequence one that is
// added to it, if there are any:
//
//	y_i = token[t_i] + position[i]
//
// It begins a model, and so is no Layer: tokens come in.
type Embedding struct {
	Token    *Param // [tokens][dim]
	Position *Param // [positions][dim], or nil
}

// NewEmbedding makes one with normal rows; 0 positions are none.
func NewEmbedding(name string, tokens, positions, dim int, r *rand.Rand) *Embedding {
	e := &Embedding{Token: NewParam(name+".token", tokens, dim).Normal(r, .02)}
	if positions > 0 {
		e.Position = NewParam(name+".position", positions, dim).Normal(r, .02)
	}
	return e
}

// Params are the tables.
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

// Plan allocates for so many sequences of so many tokens.
func (e *Embedding) Plan(batch, seq int) (*EmbeddingPass, error) {
	if e.Position != nil && seq > e.Position.W.Rows {
		return nil, fmt.Errorf("%w: %s has %d positions, and the sequence %d", ErrShape, e.Position.Name, e.Position.W.Rows, seq)
	}
	if batch < 1 || seq < 0 {
		return nil, fmt.Errorf("%w: %s for %d sequences of %d", ErrShape, e.Token.Name, batch, seq)
	}
	return &EmbeddingPass{layer: e, batch: batch, y: NewMat(batch*seq, e.Token.W.Cols)}, nil
}

// Forward returns a row for each token. A token that the table has no row for is a panic.
func (p *EmbeddingPass) Forward(tokens []int32) Mat {
	if len(tokens) > p.y.Rows || len(tokens)%p.batch != 0 {
		panic(fmt.Sprintf("nn: %s: %d tokens, planned for %d in %d sequences", p.layer.Token.Name, len(tokens), p.y.Rows, p.batch))
	}
	p.tokens, p.seq = tokens, len(tokens)/p.batch
	for i, t := range tokens {
		if t < 0 || int(t) >= p.layer.Token.W.Rows {
			panic(fmt.Sprintf("nn: %s: token %d is %d, of %d", p.layer.Token.Name, i, t, p.layer.Token.W.Rows))
		}
		y := p.y.Row(i)
		copy(y, p.layer.Token.W.Row(int(t)))
		if p.layer.Position != nil {
			add(y, p.layer.Position.W.Row(p.Begin+i%p.seq))
		}
	}
	return p.y.First(len(tokens))
}

// Backward adds to the gradients of the rows that were taken.
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
