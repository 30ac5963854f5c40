package nn

import (
	"fmt"
	"math/rand/v2"

	"attnlab/attn"
)

// Config describes a stack of transformer blocks. The zero value of a field is the plain case.
type Config struct {
	Layers  int
	Dim     int // numbers of a row
	Heads   int
	KVHeads int // 0: Heads
	Hidden  int // numbers of a hidden row of the feed-forward layer; 0: 4 Dim

	// PostNorm puts a norm behind every sum, as in the first transformers. Otherwise there is one
	// before every layer and one at the end.
	PostNorm bool
	RMS      bool       // root-mean-square norms instead of layer norms
	Gated    bool       // a SwiGLU feed-forward layer; Act is not used
	Act      Activation // of the feed-forward layer
	Bias     bool       // biases in the linear layers
	Dropout  float64    // rate of dropout, on the outputs of attention and feed-forward
	Noise    *Noise     // for Dropout

	Mask   attn.Mask
	Score  attn.Score
	Terms  attn.Operands
	Linear *attn.Linear // linear attention, without a gate or the delta rule; nil: softmax
	Fused  bool         // queries, keys and values in one product: see Attention.Fuse

	// Cross adds cross-attention with all of On.Memory between attention and feed-forward, for the
	// blocks of a decoder beside an encoder.
	Cross bool

	// Experts is the number of feed-forward layers in a mixture, and Top the number of them that
	// each row uses. Experts 0 means a single layer without a gate.
	Experts, Top int
}

// NewStack returns the blocks, followed by a norm unless PostNorm is set.
func NewStack(name string, c Config, r *rand.Rand) (Chain, error) {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Dim
	}
	if c.Dropout < 0 || c.Dropout >= 1 || c.Dropout > 0 && c.Noise == nil {
		return nil, fmt.Errorf("nn: %s: a dropout of %v, want 0 or more and below 1, and a Noise, which tells it when the model trains", name, c.Dropout)
	}
	if err := checkLinear(name, c.Linear); err != nil {
		return nil, err
	}
	var all Chain
	for i := range c.Layers {
		block, err := newBlock(fmt.Sprintf("%s.%d", name, i), c, i, r)
		if err != nil {
			return nil, err
		}
		all = append(all, block...)
	}
	if !c.PostNorm {
		all = append(all, c.norm(name+".norm"))
	}
	return all, nil
}

// newBlock returns attention, cross-attention if the config has it, and feed-forward, each added to
// its input:
//
//	norm first:  x + f(norm(x))        norm behind:  norm(x + f(x))
func newBlock(name string, c Config, number int, r *rand.Rand) (Chain, error) {
	attention, err := NewAttention(name+".attention", c.Dim, c.Heads, c.KVHeads, c.Bias, r)
	if err != nil {
		return nil, err
	}
	attention.Mask, attention.Score, attention.Terms, attention.Linear = c.Mask, c.Score, c.Terms, c.Linear
	if c.Fused {
		attention.Fuse()
	}
	layers := []Layer{attention}
	if c.Cross {
		cross, err := NewAttention(name+".cross", c.Dim, c.Heads, c.KVHeads, c.Bias, r)
		if err != nil {
			return nil, err
		}
		cross.Cross, cross.Linear = true, c.Linear
		layers = append(layers, cross)
	}
	feed, err := c.feedForward(name, r)
	if err != nil {
		return nil, err
	}
	layers = append(layers, feed)
	var block Chain
	for i, l := range layers {
		norm := c.norm(fmt.Sprintf("%s.norm%d", name, i))
		if c.Dropout > 0 {
			l = Chain{l, &Dropout{c.Dropout, uint64(number*len(layers) + i), c.Noise}}
		}
		if c.PostNorm {
			block = append(block, Residual{l}, norm)
		} else {
			block = append(block, Residual{Chain{norm, l}})
		}
	}
	return block, nil
}

func (c *Config) norm(name string) Layer {
	if c.RMS {
		return NewRMSNorm(name, c.Dim)
	}
	return NewLayerNorm(name, c.Dim)
}

// feedForward returns a feed-forward layer, or a mixture of several.
func (c *Config) feedForward(name string, r *rand.Rand) (Layer, error) {
	one := func(name string) Layer {
		up, down := NewLinear(name+".up", c.Dim, c.Hidden, c.Bias, r), NewLinear(name+".down", c.Hidden, c.Dim, c.Bias, r)
		if c.Gated {
			return Chain{Gated{Chain{NewLinear(name+".gate", c.Dim, c.Hidden, c.Bias, r), SiLU}, up}, down}
		}
		return Chain{up, c.Act, down}
	}
	if c.Experts == 0 {
		return one(name), nil
	}
	return NewExperts(name, c.Dim, c.Experts, c.Top, func(i int) Layer { return one(fmt.Sprintf("%s.expert%d", name, i)) }, r)
}
