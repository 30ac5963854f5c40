package attn_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
)

// sample returns a partial result with every kind of number, in a layout with gaps.
func sample() attn.Partial {
	x := attn.Partial{
		Out: attn.Tensor{Data: make([]float32, 200), B: 2, S: 3, H: 2, D: 5, SB: 90, SS: 20, SH: 7},
		LSE: attn.New(attn.BSHD, 2, 3, 2, 2),
	}
	for i := range x.Out.Data {
		x.Out.Data[i] = float32(i) / 3
	}
	for i := range x.LSE.Data {
		x.LSE.Data[i] = float32(i) - 4
	}
	x.LSE.Data[2], x.LSE.Data[3] = float32(math.Inf(-1)), 0
	x.Out.Data[7] = float32(math.NaN())
	return x
}

func TestPartialIsWrittenAndRead(t *testing.T) {
	x := sample()
	var text bytes.Buffer
	n, err := x.WriteTo(&text)
	if want := int64(8 + 20 + 4*2*3*2*7); err != nil || n != want || int64(text.Len()) != n {
		t.Fatalf("%d bytes, of which %d are there, want %d: %v", n, text.Len(), want, err)
	}
	text.WriteString("what comes behind")
	var y attn.Partial
	if m, err := y.ReadFrom(&text); err != nil || m != n {
		t.Fatalf("%d bytes are read of %d: %v", m, n, err)
	}
	if text.String() != "what comes behind" {
		t.Errorf("%q is left", text.String())
	}
	if x.Out.Shape() != y.Out.Shape() || x.LSE.Shape() != y.LSE.Shape() {
		t.Fatalf("%s and %s come back as %s and %s", x.Out.Shape(), x.LSE.Shape(), y.Out.Shape(), y.LSE.Shape())
	}
	for b := range 2 {
		for s := range 3 {
			for h := range 2 {
				if !slices.EqualFunc(x.Out.Row(b, s, h), y.Out.Row(b, s, h), sameBits) || !slices.EqualFunc(x.LSE.Row(b, s, h), y.LSE.Row(b, s, h), sameBits) {
					t.Errorf("row (%d, %d, %d): %v %v, want %v %v", b, s, h, y.Out.Row(b, s, h), y.LSE.Row(b, s, h), x.Out.Row(b, s, h), x.LSE.Row(b, s, h))
				}
			}
		}
	}
}

// TestPartialOfOneNumber checks that ReadFrom still reads the first format, whose LSE has one
// number.
func TestPartialOfOneNumber(t *testing.T) {
	text := []byte("attnlab1\x01\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00")
	for _, x := range []float32{3, 4, 5, 6} {
		text = binary.LittleEndian.AppendUint32(text, math.Float32bits(x))
	}
	var x attn.Partial
	if n, err := x.ReadFrom(bytes.NewReader(text)); err != nil || n != int64(len(text)) {
		t.Fatalf("%d bytes of %d: %v", n, len(text), err)
	}
	if !slices.Equal(x.Out.Data, []float32{3, 4}) || !slices.Equal(x.LSE.Data, []float32{5, 6}) || x.LSE.D != 1 {
		t.Errorf("%v and %v, D = %d", x.Out.Data, x.LSE.Data, x.LSE.D)
	}
	var again bytes.Buffer
	var y attn.Partial
	if _, err := x.WriteTo(&again); err != nil {
		t.Fatal(err)
	}
	if _, err := y.ReadFrom(&again); err != nil || y.LSE.D != 1 || !slices.Equal(y.LSE.Data, []float32{5, 6}) {
		t.Errorf("written again, it is %v with D = %d: %v", y.LSE.Data, y.LSE.D, err)
	}
}

// TestPartialOfNothing checks that a partial result without numbers may have large extents.
func TestPartialOfNothing(t *testing.T) {
	text := append([]byte("attnlab2"), 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0)
	var x attn.Partial
	if n, err := x.ReadFrom(bytes.NewReader(text)); err != nil || n != 28 || x.Out.B != 1<<28 || x.Out.H != 1<<16 {
		t.Errorf("%d bytes: %v, %s", n, err, x.Out.Shape())
	}
}

func TestPartialRefuses(t *testing.T) {
	x := sample()
	var text bytes.Buffer
	if _, err := x.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	whole := text.Bytes()
	huge := append(append([]byte("attnlab2"), bytes.Repeat([]byte{0xff}, 16)...), 2, 0, 0, 0)
	three := slices.Clone(whole)
	three[8+16] = 3
	large := slices.Clone(whole) // claims large extents, but holds little data
	large[8+2] = 0xff
	for says, raw := range map[string][]byte{
		"EOF":             nil,
		"unexpected EOF":  whole[:20],
		"dim 5]: EOF":     whole[:len(whole)-1],
		"not a partial":   append([]byte("ATTNLAB1"), whole[8:]...),
		"any memory":      huge,
		"want 1 or 2":     three,
		"[batch 16711682": large,
	} {
		var y attn.Partial
		if n, err := y.ReadFrom(bytes.NewReader(raw)); err == nil || !strings.Contains(err.Error(), says) || n > int64(len(raw)) {
			t.Errorf("%d bytes, %v, want an error that says %q", n, err, says)
		}
	}
	bad := attn.Partial{Out: x.Out, LSE: attn.New(attn.BHSD, 1, 1, 1, 1)}
	if _, err := bad.WriteTo(io.Discard); err == nil || !strings.Contains(err.Error(), "lse: shape") {
		t.Error(err)
	}
}

// TestNewPartial checks that merging the partial result of no keys changes nothing, in either
// order.
func TestNewPartial(t *testing.T) {
	x, left, right := sample(), attn.NewPartial(2, 3, 2, 5), sample()
	left.Merge(x)
	right.Merge(attn.NewPartial(2, 3, 2, 5))
	for b := range 2 {
		for s := range 3 {
			for h := range 2 {
				for name, y := range map[string]attn.Partial{"left": left, "right": right} {
					l := x.LSE.Row(b, s, h)
					if got := y.LSE.Row(b, s, h); !slices.EqualFunc(got, l, sameBits) {
						t.Errorf("%s: LSE %v, want %v", name, got, l)
					}
					if math.IsInf(float64(l[0]), -1) {
						continue // without keys, any output will do
					}
					if got, want := y.Out.Row(b, s, h), x.Out.Row(b, s, h); !slices.EqualFunc(got, want, sameBits) {
						t.Errorf("%s: %v, want %v", name, got, want)
					}
				}
			}
		}
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
