package run

import (
	"errors"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// arranged returns the problem and the operands of a point, without numbers in the tensors.
func arranged(t *testing.T, p Point) (attn.Problem, *attn.Args) {
	t.Helper()
	p = p.WithDefaults()
	q, err := p.Problem()
	if err != nil {
		t.Fatal(err)
	}
	a := cases.Outline(q)
	if err := p.Arrange(&q, a); err != nil {
		t.Fatal(err)
	}
	return q, a
}

// TestBitmapsShowTheirShare checks that both forms of a random bitmap show the same pairs, and
// about the given share of them.
func TestBitmapsShowTheirShare(t *testing.T) {
	for _, c := range []struct {
		share       string
		least, most int64
	}{{"", 65 * 67 * 31 / 32, 65*67 - 1}, {":0.5", 65 * 67 * 4 / 10, 65 * 67 * 6 / 10}} {
		p := Point{Kernel: "flash", ISA: "go", SeqQ: 65, SeqKV: 67, Dim: 8}
		p.Features = "bool" + c.share
		q, a := arranged(t, p)
		p.Features = "packed" + c.share
		q2, a2 := arranged(t, p)
		picture := q.Picture(a, 0, 0)
		if picture != q2.Picture(a2, 0, 0) {
			t.Errorf("bool%s and packed%s show different pairs", c.share, c.share)
		}
		if n := q.Count(a).Pairs; n < c.least || n > c.most {
			t.Errorf("bool%s shows %d of %d pairs", c.share, n, 65*67)
		}
		if again := func() string { q, a := arranged(t, p); return q.Picture(a, 0, 0) }(); again != picture {
			t.Error("the same point shows other pairs the second time")
		}
	}
}

// TestBlocks checks that a row of blocks sees its share of the columns, and its own column.
func TestBlocks(t *testing.T) {
	for _, n := range [][2]int{{64, 64}, {16, 64}, {1, 64}, {64, 16}} {
		q, a := arranged(t, Point{Kernel: "flash", ISA: "go", SeqQ: n[0], SeqKV: n[1], Dim: 8, Features: "block:8:0.25"})
		want := int64(max(1, n[1]/8/4) * 8 * n[0])
		if got := q.Count(a).Pairs; got != want {
			t.Errorf("%v: %d pairs, want %d", n, got, want)
		}
		for i := range n[0] {
			if own := max(0, i+n[1]-max(n[0], 8)); n[0] >= 8 && n[0] <= n[1] && !a.Shows(&q, 0, i, 0, own) {
				t.Errorf("%v: query %d does not see key %d", n, i, own)
			}
		}
	}
}

// TestRaggedLengths checks that sequences have evenly spaced lengths from the least to the
// greatest, in random order, with queries in proportion, in one call as one by one.
func TestRaggedLengths(t *testing.T) {
	p := Point{Kernel: "flash", ISA: "go", Batch: 5, SeqKV: 64, Dim: 8, Features: "ragged:16"}
	q, a := arranged(t, p)
	p.Features = "ragged-alone:16"
	alone := p.WithDefaults().Alone()
	var keys []int
	for b := range 5 {
		n := a.Keys(&q, b)
		if keys = append(keys, n); a.Queries(&q, b) != n || alone[b] != (Sequence{Q: n, KV: n}) {
			t.Errorf("sequence %d has %d queries, %d keys, and alone %v", b, a.Queries(&q, b), n, alone[b])
		}
	}
	if slices.IsSorted(keys) {
		t.Errorf("lengths %v are in order", keys)
	}
	if slices.Sort(keys); !slices.Equal(keys, []int{16, 28, 40, 52, 64}) {
		t.Errorf("lengths %v", keys)
	}
	p = Point{Kernel: "flash", ISA: "go", Batch: 3, SeqQ: 1, SeqKV: 64, Dim: 8, Features: "ragged", Page: 16}
	q, a = arranged(t, p)
	for b := range 3 {
		if a.Queries(&q, b) != 1 || a.Keys(&q, b) != int(a.KLen[b]) {
			t.Errorf("decoding from pages: %d queries, %d keys of %d", a.Queries(&q, b), a.Keys(&q, b), a.KLen[b])
		}
	}
	if p.WithDefaults().Alone() != nil {
		t.Error("a point that runs its batch in one call has sequences alone")
	}
}

// TestLengths checks that batch entries use from half to all of their keys, and that the last query
// is at the last key in use.
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		point     Point
		klen, pos []int32
	}{
		{Point{SeqKV: 64}, []int32{48}, []int32{0}},
		{Point{SeqQ: 1, SeqKV: 64}, []int32{48}, []int32{47}},
		{Point{SeqQ: 48, SeqKV: 64, Batch: 2}, []int32{40, 56}, []int32{0, 8}},
		{Point{SeqKV: 64, Batch: 2, Features: "ragged:64"}, []int32{40, 56}, []int32{0, 0}},
	} {
		p := c.point
		p.Kernel, p.ISA, p.Dim = "flash", "go", 8
		p.Features += map[bool]string{false: "", true: "+"}[p.Features != ""] + "lengths"
		if _, a := arranged(t, p); !slices.Equal(a.KLen, c.klen) || !slices.Equal(a.QPos, c.pos) {
			t.Errorf("%s: %d keys from positions %d, want %d from %d", p.Name(), a.KLen, a.QPos, c.klen, c.pos)
		}
	}
}

// TestClippedTable checks that the table of relative positions ends at the given distance.
func TestClippedTable(t *testing.T) {
	_, a := arranged(t, Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8, Features: "relative-clipped:9"})
	if a.Terms.RelativeClip != 9 || a.Terms.Relative.S != 19 {
		t.Errorf("clipped at %d, %d rows", a.Terms.RelativeClip, a.Terms.Relative.S)
	}
}

// TestOtherOpError checks that a feature of another op has an error of its own type.
func TestOtherOpError(t *testing.T) {
	p := Point{Kernel: "linear", ISA: "go", Op: "linear", SeqKV: 64, Dim: 8, Features: "softcap:30"}.WithDefaults()
	_, err := p.Problem()
	if other := new(OtherOpError); !errors.As(err, &other) || other.Feature != "softcap:30" || other.Op != "linear" {
		t.Errorf("%v", err)
	}
	p.Features = "wings"
	_, err = p.Problem()
	if other := new(OtherOpError); err == nil || errors.As(err, &other) {
		t.Errorf("%v", err)
	}
}
