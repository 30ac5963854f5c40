package attn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A Partial is the attention of some queries over a subset of their keys (a KV split), with all
// that merging needs. Attention over all keys is the Merge of the Partials of its KV splits,
// wherever each was computed.
//
// The Partial of keys lo to hi is one call. K and V are views of those rows; a bias or mask is a
// view of those columns. KLen and QPos count from lo. Only one split has the sinks; in the others
// they are -Inf. Weights, Scores, Mean and Entropy cannot be merged.
type Partial struct {
	Out Tensor // [batch, query, head, dim]
	LSE Tensor // [batch, query, head, 2], or 1 if scores are near 0: see LogSum and Merge
}

// NewPartial returns the Partial of no keys. Merging it changes nothing.
func NewPartial(b, s, h, d int) Partial { return newPartial(b, s, h, d, 2) }

// newPartial returns the Partial of no keys, with lse numbers (1 or 2) in each row of LSE.
func newPartial(b, s, h, d, lse int) Partial {
	x := Partial{New(BHSD, b, s, h, d), New(BHSD, b, s, h, lse)}
	for i := 0; i < len(x.LSE.Data); i += lse {
		x.LSE.Data[i] = float32(math.Inf(-1))
	}
	return x
}

// Merge adds the result over other keys to x. See function Merge.
func (x *Partial) Merge(y Partial) { Merge(x.Out, x.LSE, y.Out, y.LSE) }

// A written Partial begins with one of these marks. Format attnlab1 has an LSE of one number.
const partialMark, partialMark1 = "attnlab2", "attnlab1"

// WriteTo writes the Partial in a format for any machine:
//
//   - the mark "attnlab2"
//   - the extents of Out, and the D of LSE
//   - the rows of Out by batch, head and query
//   - the rows of LSE in the same order
//
// Every number has 4 bytes, the lowest first.
func (x *Partial) WriteTo(w io.Writer) (int64, error) {
	if err := mergeable(&x.Out, &x.LSE, &x.Out, &x.LSE); err != nil {
		return 0, fmt.Errorf("attn.Partial: %w", err)
	}
	text := []byte(partialMark)
	for _, n := range [...]int{x.Out.B, x.Out.S, x.Out.H, x.Out.D, x.LSE.D} {
		text = binary.LittleEndian.AppendUint32(text, uint32(n))
	}
	for _, t := range [...]*Tensor{&x.Out, &x.LSE} {
		t.rows(func(row []float32) {
			for _, v := range row {
				text = binary.LittleEndian.AppendUint32(text, math.Float32bits(v))
			}
		})
	}
	n, err := w.Write(text)
	return int64(n), err
}

// ReadFrom replaces the Partial with one that WriteTo wrote, and reads no further. It also reads
// the older format "attnlab1", which has no D of LSE: that is 1. It allocates no more memory than
// the data received needs.
func (x *Partial) ReadFrom(r io.Reader) (int64, error) {
	mark := make([]byte, len(partialMark))
	n, err := io.ReadFull(r, mark)
	if err != nil {
		return int64(n), fmt.Errorf("attn.Partial: %w", err)
	}
	extents := 5
	switch string(mark) {
	case partialMark:
	case partialMark1:
		extents = 4
	default:
		return int64(n), fmt.Errorf("attn.Partial: not a partial result: it begins with %q, want %q", mark, partialMark)
	}
	head := make([]byte, 4*extents)
	more, err := io.ReadFull(r, head)
	if n += more; err != nil {
		return int64(n), fmt.Errorf("attn.Partial: %w", err)
	}
	extent := [5]int{4: 1}
	for i := range extents {
		extent[i] = int(binary.LittleEndian.Uint32(head[4*i:]))
	}
	b, s, h, d, lse := extent[0], extent[1], extent[2], extent[3], extent[4]
	if lse != 1 && lse != 2 {
		return int64(n), fmt.Errorf("attn.Partial: %d numbers in each row of LSE, want 1 or 2", lse)
	}
	if !fits(1<<46, b, s, h, d+lse) {
		return int64(n), fmt.Errorf("attn.Partial: shape %s is larger than any memory", shape(b, s, h, d))
	}
	var body bytes.Buffer
	size, err := io.CopyN(&body, r, 4*int64(b)*int64(s)*int64(h)*int64(d+lse))
	if err != nil {
		return int64(n) + size, fmt.Errorf("attn.Partial: shape %s: %w", shape(b, s, h, d), err)
	}
	*x = newPartial(b, s, h, d, lse)
	if size == 0 { // other extents may still be large
		return int64(n), nil
	}
	for _, t := range [...]*Tensor{&x.Out, &x.LSE} {
		t.rows(func(row []float32) {
			for i := range row {
				row[i] = math.Float32frombits(binary.LittleEndian.Uint32(body.Next(4)))
			}
		})
	}
	return int64(n) + size, nil
}

// rows calls f for each row of a float32 tensor, by batch, head and sequence.
func (t *Tensor) rows(f func(row []float32)) {
	for b := range t.B {
		for h := range t.H {
			for s := range t.S {
				f(t.Row(b, s, h))
			}
		}
	}
}
