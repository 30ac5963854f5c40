package attn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A State is the attention of some queries over a part of their keys, which is all that the other parts need to know of it: attention over a split
// sequence is the Merge of the states of its parts, wherever each was computed. The part of keys from lo to hi is a call of its own, with views of
// these rows of K and V (and of these columns of a bias or mask), KLen and QPos counted from lo, and the sinks in one of the parts: -Inf, no sink, in the
// others. Weights, scores, Mean and Entropy do not merge.
type State struct {
	Out Tensor // [batch, query, head, dim]
	LSE Tensor // [batch, query, head, 1]
}

// NewState is the state of no keys, which changes no other.
func NewState(b, s, h, d int) State {
	x := State{New(BHSD, b, s, h, d), New(BHSD, b, s, h, 1)}
	for i := range x.LSE.Data {
		x.LSE.Data[i] = float32(math.Inf(-1))
	}
	return x
}

// Merge absorbs the state of other keys. See the function of that name.
func (x *State) Merge(y State) { Merge(x.Out, x.LSE, y.Out, y.LSE) }

// stateMark begins a written state.
const stateMark = "attnlab1"

// WriteTo writes the state for another process, whatever its byte order: the mark "attnlab1", the extents of Out, its rows by batch, head and query, and
// LSE in the same order, in numbers of 4 bytes, the lowest first.
func (x *State) WriteTo(w io.Writer) (int64, error) {
	if err := mergeable(&x.Out, &x.LSE, &x.Out, &x.LSE); err != nil {
		return 0, fmt.Errorf("attn.State: %w", err)
	}
	text := []byte(stateMark)
	for _, n := range [...]int{x.Out.B, x.Out.S, x.Out.H, x.Out.D} {
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

// ReadFrom replaces the state by one that WriteTo wrote, and reads no further. It allocates as much as comes.
func (x *State) ReadFrom(r io.Reader) (int64, error) {
	head := make([]byte, len(stateMark)+4*4)
	n, err := io.ReadFull(r, head)
	if err != nil {
		return int64(n), fmt.Errorf("attn.State: %w", err)
	}
	if string(head[:len(stateMark)]) != stateMark {
		return int64(n), errors.New("attn.State: this is not a state")
	}
	var extent [4]int
	for i := range extent {
		extent[i] = int(binary.LittleEndian.Uint32(head[len(stateMark)+4*i:]))
	}
	b, s, h, d := extent[0], extent[1], extent[2], extent[3]
	if !fits(1<<46, b, s, h, d+1) {
		return int64(n), fmt.Errorf("attn.State: shape %s is more than any memory", shape(b, s, h, d))
	}
	var body bytes.Buffer
	more, err := io.CopyN(&body, r, 4*int64(b)*int64(s)*int64(h)*int64(d+1))
	if err != nil {
		return int64(n) + more, fmt.Errorf("attn.State: shape %s: %w", shape(b, s, h, d), err)
	}
	*x = NewState(b, s, h, d)
	if more == 0 { // extents may still be large
		return int64(n), nil
	}
	for _, t := range [...]*Tensor{&x.Out, &x.LSE} {
		t.rows(func(row []float32) {
			for i := range row {
				row[i] = math.Float32frombits(binary.LittleEndian.Uint32(body.Next(4)))
			}
		})
	}
	return int64(n) + more, nil
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
