package nn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
	"attnlab/kernels/asm"
)

// TestCachesAppend checks that a cache that is given the keys and values of some rows continues
// like one that has read these rows.
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
		on := On{Kernel: kernel, Products: NewMultiplier(asm.Levels()[0].Ops, nil), Caches: caches}
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

// TestState checks that the state of linear attention does not grow, and that it can begin again
// but not go back. It also checks that a state needs a causal mask, and that layers refuse linear
// attention with operands that they have no parameters for.
func TestState(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 1))
	l, err := NewAttention("a", 8, 4, 2, false, r)
	if err != nil {
		t.Fatal(err)
	}
	l.Mask, l.Linear = attn.Causal(), &attn.Linear{}
	kernel, err := kernels.ByName("linear", "go")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(capacity int) (*Caches, Pass) {
		caches := &Caches{Capacity: capacity}
		p, _, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(asm.Levels()[0].Ops, nil), Caches: caches}, Shape{2, 3, 8})
		if err != nil {
			t.Fatal(err)
		}
		return caches, p
	}
	caches, p := plan(10)
	// Bytes of two sequences and two key heads: Σ f(k) v^T and Σ f(k), for 2 columns.
	const state = 4 * 2 * 2 * (2*2 + 2)
	if huge, _ := plan(1 << 40); caches.Bytes() != state || huge.Bytes() != state {
		t.Errorf("room for 10 rows takes %d bytes, room for 2^40 %d; want %d", caches.Bytes(), huge.Bytes(), state)
	}
	x := random(r, 6, 8, 0)
	first := wide(p.Forward(x))
	for range 40 {
		p.Forward(x.First(2))
	}
	if caches.Len() != 43 {
		t.Errorf("%d rows taken in, want 43", caches.Len())
	}
	caches.Truncate(43)
	if caches.Len() != 43 {
		t.Errorf("having forgotten none, %d rows", caches.Len())
	}
	if caches.Truncate(0); caches.Len() != 0 {
		t.Errorf("having forgotten all, %d rows", caches.Len())
	}
	for i, row := range wide(p.Forward(x)) {
		if !slices.Equal(row, first[i]) {
			t.Errorf("anew, row %d is %v, want %v", i, row, first[i])
		}
	}
	if err := caches.Append(0, NewMat(2, 4), NewMat(2, 4)); err == nil || !strings.Contains(err.Error(), "does not keep the keys and values") {
		t.Errorf("keys behind a state: %v", err)
	}
	func() {
		defer func() {
			if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "Truncate(2) of a state of ") {
				t.Errorf("back to the second row: %v", r)
			}
		}()
		caches.Truncate(2)
	}()
	for says, rule := range map[string]attn.Linear{
		"a gate": {Gate: attn.HeadGate}, "the delta rule": {Delta: true, Unnormalised: true}, "2 value heads": {HeadsV: 2}, "3 snapshots": {Snapshots: 3},
	} {
		l.Linear = &rule
		if _, _, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(asm.Levels()[0].Ops, nil), Caches: caches}, Shape{2, 3, 8}); err == nil || !strings.Contains(err.Error(), "a: linear attention with "+says) {
			t.Errorf("linear attention with %s, a layer: %v", says, err)
		}
		if _, err := NewStack("s", Config{Layers: 1, Dim: 8, Heads: 2, Linear: &rule}, r); err == nil || !strings.Contains(err.Error(), "s: linear attention with "+says) {
			t.Errorf("linear attention with %s, a stack: %v", says, err)
		}
	}
	l.Mask, l.Linear = attn.Full(), &attn.Linear{}
	if _, _, err := l.Plan(On{Kernel: kernel, Products: NewMultiplier(asm.Levels()[0].Ops, nil), Caches: caches}, Shape{1, 3, 8}); err == nil || !strings.Contains(err.Error(), "attn.Causal()") {
		t.Errorf("without a causal mask: %v", err)
	}
}

// TestMemoryOnce checks that cross-attention computes its keys and values once, at the beginning.
func TestMemoryOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 1))
	l, err := NewAttention("a", 8, 2, 1, false, r)
	if err != nil {
		t.Fatal(err)
	}
	l.Cross = true
	on := On{Kernel: kernels.All()[0], Products: NewMultiplier(asm.Levels()[0].Ops, nil), Caches: &Caches{}, Memory: NewParam("m", 5, 8).Normal(r, 1)}
	p, _, err := l.Plan(on, Shape{1, 3, 8})
	if err != nil {
		t.Fatal(err)
	}
	x := random(r, 1, 8, 0)
	first := wide(p.Forward(x))
	on.Memory.W.Clear()
	if y := wide(p.Forward(x)); !slices.Equal(y[0], first[0]) {
		t.Errorf("the second call made keys and values again: %v, want %v", y[0], first[0])
	}
	if on.Caches.Len() != 2 || on.Caches.Bytes() != 4*5*(4+4) {
		t.Errorf("%d rows seen and %d bytes kept, want 2 and %d", on.Caches.Len(), on.Caches.Bytes(), 4*5*(4+4))
	}
	on.Caches.Truncate(0)
	if y := p.Forward(x); largestOf(wide(y)) != 0 {
		t.Errorf("anew, with a memory of zeros: %v, want zeros", y.Row(0))
	}
}
