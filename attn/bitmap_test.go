package attn_test

import (
	"strings"
	"testing"

	"attnlab/attn"
	"pgregory.net/rapid"
)

// masked returns a problem of one head with a mask, and a call with its bitmap.
func masked(nq, nk int, m attn.Mask, bits attn.Bits) (attn.Problem, *attn.Args) {
	p := attn.Problem{Batch: 1, SeqQ: nq, SeqKV: nk, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Mask: m}
	a := call(p)
	a.Allowed = bits
	return p, a
}

func TestPictures(t *testing.T) {
	packed := attn.Full().With(attn.PackedBitmap)
	padding, err := attn.Padding([][]bool{{true, true, true, false, false}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		nq, nk int
		mask   attn.Mask
		bits   attn.Bits
		want   string
	}{
		{"full", 2, 3, attn.Full(), attn.Bits{}, "### ###"},
		{"causal", 4, 4, attn.Causal(), attn.Bits{}, "#... ##.. ###. ####"},
		{"causal, fewer queries", 2, 4, attn.Causal(), attn.Bits{}, "###. ####"},
		{"causal, top left", 2, 4, attn.CausalTopLeft(), attn.Bits{}, "#... ##.."},
		{"window", 5, 5, attn.Window(1, 1), attn.Bits{}, "##... ###.. .###. ..### ...##"},
		{"the window of seeds that count the query", 5, 5, attn.Window(2, 0), attn.Bits{}, "#.... ##... ###.. .###. ..###"},
		{"padding", 5, 5, attn.Full().With(attn.BoolBitmap), padding, "###.. ###.. ###.. ###.. ###.."},
		{"causal and padding", 5, 5, attn.Causal().With(attn.BoolBitmap), padding, "#.... ##... ###.. ###.. ###.."},
		{"local", 5, 5, packed, attn.Local(5, 3), "##... ###.. .###. ..### ...##"},
		{"strided", 5, 5, packed, attn.Strided(5, 2), "#.#.# .#.#. #.#.# .#.#. #.#.#"},
		{"causal and strided", 5, 5, attn.Causal().With(attn.PackedBitmap), attn.Strided(5, 2), "#.... .#... #.#.. .#.#. #.#.#"},
		{"global and local", 5, 5, packed, attn.GlobalLocal(5, 1, 2), "##### ###.. ####. #.### #..##"},
		{"block diagonal", 5, 5, attn.Full().WithBlocks(2), attn.BlockDiagonal(5, 2), "##... ##... ..##. ..##. ....#"},
		{
			"blocks", 3, 5, attn.Full().WithBlocks(2),
			attn.BlockSparse(3, 5, 2, func(i, j int) bool { return i != j }),
			"..### ..### ##..#",
		},
		{"any", 2, 3, packed, attn.Pack(2, 3, func(i, j int) bool { return i < j }), ".## ..#"},
	} {
		p, a := masked(c.nq, c.nk, c.mask, c.bits)
		if err := p.Check(a); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := p.Picture(a, 0, 0)
		if want := strings.ReplaceAll(c.want, " ", "\n") + "\n"; got != want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, want)
		}
		if shown := int64(strings.Count(got, "#")); p.Count(a).Pairs != shown {
			t.Errorf("%s: %d pairs are counted, %d are drawn", c.name, p.Count(a).Pairs, shown)
		}
	}
}

func TestCountOfMasks(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 130} {
		p, a := masked(n, n, attn.Causal(), attn.Bits{})
		if got, want := p.Count(a).Pairs, int64(n*(n+1)/2); got != want {
			t.Errorf("causal of %d: %d pairs, want %d", n, got, want)
		}
		p, a = masked(n, n, attn.Full().With(attn.PackedBitmap), attn.Pack(n, n, func(i, j int) bool { return j <= i }))
		if got, want := p.Count(a).Pairs, int64(n*(n+1)/2); got != want {
			t.Errorf("causal of %d, in bits: %d pairs, want %d", n, got, want)
		}
	}
	for _, c := range []struct{ blocks, side int }{{1, 1}, {3, 4}, {5, 16}, {70, 1}} {
		n := c.blocks * c.side
		p, a := masked(n, n, attn.Full().WithBlocks(c.side), attn.BlockDiagonal(n, c.side))
		if got, want := p.Count(a).Pairs, int64(c.blocks*c.side*c.side); got != want {
			t.Errorf("%d blocks of %d: %d pairs, want %d", c.blocks, c.side, got, want)
		}
	}
}

// TestLocalIsAWindow checks that Local shows the same keys as Window, for any width.
func TestLocalIsAWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, width := rapid.IntRange(0, 70).Draw(t, "n"), rapid.IntRange(0, 80).Draw(t, "width")
		p, a := masked(n, n, attn.Full().With(attn.PackedBitmap), attn.Local(n, width))
		q, b := masked(n, n, attn.Window(width/2, width/2), attn.Bits{})
		if p.Picture(a, 0, 0) != q.Picture(b, 0, 0) {
			t.Fatalf("%s\n%s", p.Picture(a, 0, 0), q.Picture(b, 0, 0))
		}
	})
}

func TestPadding(t *testing.T) {
	m, err := attn.Padding([][]bool{{true, false, true}, {false, false, true}})
	if err != nil {
		t.Fatal(err)
	}
	p := attn.Problem{Batch: 2, SeqQ: 1, SeqKV: 3, HeadsQ: 2, HeadsKV: 1, Dim: 1, DimV: 1, Mask: attn.Full().With(attn.BoolBitmap)}
	a := call(p)
	a.Allowed = m
	for b, want := range []string{"#.#\n", "..#\n"} {
		if got := p.Picture(a, b, 1); got != want {
			t.Errorf("batch entry %d: %s, want %s", b, got, want)
		}
	}
	if got := p.Count(a).Pairs; got != 2*(2+1) {
		t.Errorf("%d pairs, want 6", got)
	}
	if _, err := attn.Padding([][]bool{{true}, {true, true}}); err == nil || !strings.Contains(err.Error(), "batch entry 1 has 2 keys") {
		t.Error(err)
	}
	if none, err := attn.Padding(nil); err != nil || none.Bool != nil {
		t.Errorf("%v, %v", none, err)
	}
}
