package nn

import (
	"errors"
	"math/rand/v2"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
)

// A cache that is given the keys and values of some rows goes on as one that has read these rows.
func TestCachesAppend(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 1))
	l, err := NewAttention("a", 8, 4, 2, false, r)
	if err != nil {
		t.Fatal(err)
	}
	l.Mask = attn.Causal()
	kernel, err := kernels.ByName("flash", "go")
	if err != nil {
		t.Fatal(err)
	}
	const batch, read, page = 2, 5, 8
	plan := func(caches *Caches) (On, Pass) {
		on := On{kernel, NewMultiplier(asm.Levels()[0].Ops, nil), caches}
		p, _, err := l.Plan(on, Shape{batch, read, 8})
		if err != nil {
			t.Fatal(err)
		}
		return on, p
	}
	for _, pages := range []int{0, page} {
		x, next := random(r, batch*read, 8, 0), random(r, batch, 8, 0)
		one, other := &Caches{Capacity: 16, Page: pages}, &Caches{Capacity: 16, Page: pages}
		_, p := plan(one)
		p.Forward(x)
		want := p.Forward(next)
		on, q := plan(other)
		k, v := NewMat(batch*read, 4), NewMat(batch*read, 4)
		on.Products.Do(Product{C: k, A: x, B: l.K.W.W})
		on.Products.Do(Product{C: v, A: x, B: l.V.W.W})
		if err := other.Append(0, k, v); err != nil {
			t.Fatal(err)
		}
		if other.Len() != read {
			t.Errorf("%d rows are kept, want %d", other.Len(), read)
		}
		got := q.Forward(next)
		for i := range want.Rows {
			for c, x := range want.Row(i) {
				if got.Row(i)[c] != x {
					t.Fatalf("pages of %d: element %d, %d is %v, want %v", pages, i, c, got.Row(i)[c], x)
				}
			}
		}
		if err := other.Append(0, k, NewMat(batch*read, 8)); !errors.Is(err, ErrShape) {
			t.Errorf("values of another width: %v", err)
		}
		if err := other.Append(0, NewMat(batch*16, 4), NewMat(batch*16, 4)); err == nil || other.Len() != read+1 {
			t.Errorf("more rows than there is room for: %v, and %d are kept", err, other.Len())
		}
	}
}
