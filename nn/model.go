package nn

import (
	"math/rand/v2"
)

// A Model is an embedding, layers, and a linear layer that computes logits. A language model has
// logits for the token that follows each token. A classifier (Pool) has logits for each sequence,
// from the mean of its rows.
type Model struct {
	Embed *Embedding
	Body  Chain
	Head  *Linear
	Pool  bool
}

// NewModel returns a model over a stack of blocks. positions is the longest sequence if positions
// have learned rows; 0 means none, for scores that use positions themselves.
func NewModel(tokens, positions, classes int, pool bool, c Config, r *rand.Rand) (*Model, error) {
	body, err := NewStack("block", c, r)
	if err != nil {
		return nil, err
	}
	return &Model{NewEmbedding("embed", tokens, positions, c.Dim, r), body, NewLinear("head", c.Dim, classes, true, r), pool}, nil
}

// Params returns all parameters.
func (m *Model) Params() []*Param {
	return append(append(m.Embed.Params(), m.Body.Params()...), m.Head.Params()...)
}

// Plan plans the model for batch sequences of seq tokens.
func (m *Model) Plan(on On, batch, seq int) (*ModelPass, error) {
	embed, err := m.Embed.Plan(batch, seq)
	if err != nil {
		return nil, err
	}
	p := &ModelPass{embed: embed, batch: batch, pool: m.Pool}
	in := Shape{batch, seq, m.Embed.Token.W.Cols}
	if p.body, in.Dim, err = m.Body.Plan(on, in); err != nil {
		return nil, err
	}
	if m.Pool {
		p.mean, p.spread = NewMat(batch, in.Dim), NewMat(in.Rows(), in.Dim)
		in.Seq = 1
	}
	p.head, _, err = m.Head.Plan(on, in)
	return p, err
}

// A ModelPass runs a Model.
type ModelPass struct {
	embed      *EmbeddingPass
	body, head Pass
	batch      int
	pool       bool
	mean       Mat // mean of the rows of each sequence
	spread     Mat // gradient of the mean, spread over the rows
	rows       int
}

// Forward returns the logits.
func (p *ModelPass) Forward(tokens []int32) Mat {
	y := p.body.Forward(p.embed.Forward(tokens))
	p.rows = y.Rows
	if !p.pool {
		return p.head.Forward(y)
	}
	p.mean.Clear()
	seq := y.Rows / p.batch
	for i := range y.Rows {
		add(p.mean.Row(i/seq), y.Row(i))
	}
	for i := range p.batch {
		for c := range p.mean.Row(i) {
			p.mean.Row(i)[c] /= float32(seq)
		}
	}
	return p.head.Forward(p.mean)
}

// Backward takes the gradient with respect to the logits and adds to the gradients of the
// parameters.
func (p *ModelPass) Backward(dlogits Mat) {
	dy := p.head.Backward(dlogits)
	if p.pool {
		seq, spread := p.rows/p.batch, p.spread.First(p.rows)
		for i := range spread.Rows {
			for c, g := range dy.Row(i / seq) {
				spread.Row(i)[c] = g / float32(seq)
			}
		}
		dy = spread
	}
	p.embed.Backward(p.body.Backward(dy))
}
