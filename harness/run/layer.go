package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"attnlab/attn"
)

// Names of layers: what a point may time around its kernel, forward, or forward and backward. A
// layer has Batch*SeqQ rows of HeadsQ*Dim numbers.
//
//	mha     Multi-head attention: rows are projected to queries, keys and values, the heads attend,
//	        and their output is projected back.
//	block   A block of a transformer, norms first: y = x + mha(norm(x)), then y + ff(norm(y)), where
//	        the feed-forward layer ff is four times as wide inside.
//	decode  A block that reads one row of each sequence, behind SeqKV-1 rows in its cache.
const (
	LayerMHA    = "mha"
	LayerBlock  = "block"
	LayerDecode = "decode"
)

// Layers returns the names of layers.
func Layers() []string { return []string{LayerMHA, LayerBlock, LayerDecode} }

// Wider is the width of the feed-forward layer of a block inside, over that of its rows.
const Wider = 4

// checkLayer reports what is wrong with the layer of a point.
func (p *Point) checkLayer() error {
	wrong := func(format string, a ...any) error {
		return fmt.Errorf("layer %s: "+format, append([]any{p.Layer}, a...)...)
	}
	switch {
	case p.Layer == "":
		return nil
	case !slices.Contains(Layers(), p.Layer):
		return fmt.Errorf("layer %q: one of %s", p.Layer, strings.Join(Layers(), ", "))
	case p.Op != attn.OpSoftmax.String():
		return &OtherOpError{Op: p.Op, Feature: "layer " + p.Layer}
	case p.Features != "" || p.Layout != "bhsd" || p.Data != "normal":
		return wrong("its inputs are normal and in its own layout, and it has no features: data %s, layout %s and features %q are for kernels alone", p.Data, p.Layout, p.Features)
	case p.DimV != p.Dim:
		return wrong("values are as wide as keys: dim is %d, dim_v %d", p.Dim, p.DimV)
	case p.Layer == LayerDecode && (p.SeqQ != 1 || p.Pass != "forward"):
		return wrong("it reads one row of each sequence, forward: seq_q is %d, the pass %s", p.SeqQ, p.Pass)
	case p.Layer == LayerDecode && strings.HasSuffix(p.Mask, "topleft"):
		return wrong("its row is behind all others, and a mask from the first key on, %s, would hide them", p.Mask)
	case p.Layer == LayerDecode:
		return nil
	case p.SeqQ != p.SeqKV:
		return wrong("its queries and its keys are made from the same rows: seq_q is %d, seq_kv %d", p.SeqQ, p.SeqKV)
	case p.Pass == "backward":
		return wrong("it is timed forward or both ways, not backward alone")
	case p.Store != attn.F32.String() || p.Page != 0:
		return wrong("it has no cache to store as %s in pages of %d", p.Store, p.Page)
	}
	return nil
}

// Tokens returns the number of rows that one call of a layer reads and writes.
func (p Point) Tokens() int64 { return int64(p.Batch) * int64(p.SeqQ) }

// Weights returns the number of a layer's weights, without those of its norms.
func (p Point) Weights() int64 {
	wide, keys := int64(p.HeadsQ)*int64(p.Dim), int64(p.HeadsKV)*int64(p.Dim)
	n := 2*wide*wide + 2*wide*keys
	if p.Layer != LayerMHA {
		n += 2 * Wider * wide * wide
	}
	return n
}

// LayerWork returns the work of one call of a layer.
//
// Operations are those of its products, two for each row and weight, and those of its attention.
// The backward pass has twice as many in products and 2.5 times as many in attention. Work element
// by element counts nothing.
//
// Bytes are those of its weights, of the rows it reads and writes, and of what the attention of a
// decoding layer reads. Both passes together move three times as many.
func (p Point) LayerWork() (attn.Count, error) {
	if p.Layer == "" {
		return attn.Count{}, errors.New("the point has no layer")
	}
	c, err := p.attention()
	if err != nil {
		return c, err
	}
	products, bytes := 2*p.Tokens()*p.Weights(), 4*(p.Weights()+2*p.Tokens()*int64(p.HeadsQ)*int64(p.Dim))
	if p.Layer == LayerDecode {
		bytes += c.Bytes
	}
	if p.Pass == "both" {
		products, bytes = 3*products, 3*bytes
	}
	c.Flop, c.Bytes = c.Flop+products, bytes
	return c, nil
}

// attention returns the work of the attention in one call of a layer.
func (p Point) attention() (attn.Count, error) {
	q, err := p.Problem()
	if err != nil {
		return attn.Count{}, err
	}
	c := q.Count(nil)
	if p.Pass == "both" {
		c.Flop += c.Back
	}
	return c, nil
}
