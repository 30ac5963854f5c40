package tile

import (
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
)

// stageCall returns a filled call of a problem in which the rows of different heads are
// interleaved.
func stageCall(t *testing.T, p attn.Problem) *attn.Args {
	t.Helper()
	a, err := cases.NewArgs(p, "bshd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", p, a, 1); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestStage checks the rows of blocks, and which of them are copied, once for all tiles.
func TestStage(t *testing.T) {
	base := attn.Problem{Batch: 2, SeqQ: 40, SeqKV: 100, HeadsQ: 2, HeadsKV: 2, Dim: 8, DimV: 4}
	rope, half, pages := base, base, base
	rope.Score.Rope = attn.RopeHalves
	half.KV = attn.F16
	pages.Page = 16
	for _, c := range []struct {
		name               string
		p                  attn.Problem
		copies, copiesRows bool
		pieces             int // pieces in which two blocks of K and of V are copied
	}{
		{"in place", base, false, false, 0},
		{"copies that no call wants", base, false, true, 0},
		{"copies", base, true, false, 2},
		{"copies, and of K", base, true, true, 4},
		{"rotated", rope, false, false, 2},
		{"half", half, false, false, 4},
		{"pages", pages, false, false, 2 * (2 + 1)},
	} {
		ops, pieces := *asm.Go(), 0
		ops.Tuning.CopiesRows = c.copiesRows
		ops.Vector.Widen = func(to []float32, from *asm.Cells, n, d int) {
			pieces++
			asm.Go().Vector.Widen(to, from, n, d)
		}
		a := stageCall(t, c.p)
		s := NewStage(&c.p, &ops, Config{Block: 32, Copies: true})
		s.copies = c.copies
		floats := 0
		for _, x := range [][]float32{s.k.rows, s.v.rows, s.clean} {
			floats += len(x)
		}
		if want := StageFloats(&c.p, &ops, s.Config); floats != want {
			t.Errorf("%s: %d numbers of scratch, counted %d", c.name, floats, want)
		}
		// First keys and rows, for one tile after another.
		for _, block := range [][][2]int{{{40, 24}, {32, 32}, {48, 10}}, {{96, 3}, {96, 4}}} {
			for _, tile := range block {
				key, n := tile[0], tile[1]
				keys, values := keysOf(s, a, 1, 1, key, n), valuesOf(s, a, 1, 1, key, n)
				checkRows(t, c.name+": K", &c.p, a, &a.K, keys.Rows(), key, n)
				checkRows(t, c.name+": V", &c.p, a, &a.V, values.Rows(), key, n)
			}
		}
		if pieces != c.pieces {
			t.Errorf("%s: copied in %d pieces, want %d", c.name, pieces, c.pieces)
		}
	}
}

func checkRows(t *testing.T, name string, p *attn.Problem, a *attn.Args, of *attn.Tensor, rows asm.Rows, key, n int) {
	t.Helper()
	for j := range n {
		batch, row := a.KRow(p, 1, key+j)
		want := slices.Clone(of.Read(make([]float32, of.D), batch, row, 1))
		if of == &a.K && p.Score.Rope != attn.NoRope {
			asm.Go().Vector.Rotate(want, a.Terms.Cos.Row(0, key+j, 0), a.Terms.Sin.Row(0, key+j, 0), false)
		}
		if !slices.Equal(rows.Row(j, of.D), want) {
			t.Fatalf("%s: row %d of %d from key %d on is %v, want %v", name, j, n, key, rows.Row(j, of.D), want)
		}
	}
}

// TestStageForgets checks that a stage reads rows again for another head, and after forget.
func TestStageForgets(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 40, SeqKV: 64, HeadsQ: 2, HeadsKV: 2, Dim: 8, DimV: 4, KV: attn.F16}
	a, ops := stageCall(t, p), asm.Go()
	s := NewStage(&p, ops, Config{Block: 32})
	first := func(kv int) float32 {
		keys := keysOf(s, a, 0, kv, 0, 32)
		return keys.Rows().Data[0]
	}
	row := func(kv int) []float32 { return a.K.Read(make([]float32, 8), 0, 0, kv) }
	if x, y := first(0), first(1); x != row(0)[0] || y != row(1)[0] || x == y {
		t.Errorf("heads begin with %v and %v, want %v and %v", x, y, row(0)[0], row(1)[0])
	}
	old := first(1)
	a.K.Bits[a.K.SH] ^= 0x8000
	if first(1) != old {
		t.Error("a block was copied twice for one tile")
	}
	if s.forget(); first(1) != -old {
		t.Errorf("an operand that changed its sign is %v, and was %v", first(1), old)
	}
}

// TestStageCleans checks that values that are not finite become zeros in every kind of storage,
// that found is called with their keys, and that the next block has its own values again.
func TestStageCleans(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 40, SeqKV: 64, HeadsQ: 1, HeadsKV: 1, Dim: 8, DimV: 4}
	a := stageCall(t, p)
	a.V.Row(0, 9, 0)[2], a.V.Row(0, 15, 0)[0] = inf, nan
	s := NewStage(&p, asm.Go(), Config{Block: 32})
	var found []int
	valuesOf(s, a, 0, 0, 8, 24)
	fill(s.clean, nan)
	values := s.cleanValues(a, 0, 0, 8, 24, func(key int) { found = append(found, key) })
	if !slices.Equal(found, []int{9, 15}) {
		t.Errorf("found keys %v", found)
	}
	rows := values.Rows()
	for j := range 24 {
		want := a.V.Row(0, 8+j, 0)
		if j == 1 || j == 7 {
			want = make([]float32, 4)
		}
		if !slices.Equal(rows.Row(j, 4), want) {
			t.Errorf("row %d is %v, want %v", j, rows.Row(j, 4), want)
		}
	}
	next := valuesOf(s, a, 0, 0, 8, 24)
	if x := next.Rows().Data[4+2]; x != inf {
		t.Errorf("after that the value is %v, and was an infinity", x)
	}
}

// TestPacking checks what rules packing out where it would pay.
func TestPacking(t *testing.T) {
	base := attn.Problem{Batch: 1, SeqQ: 100, SeqKV: 300, HeadsQ: 4, HeadsKV: 2, Dim: 40, DimV: 24, Want: attn.WantLSE | attn.WantGrad}
	mean, entropy, narrow := base, base, base
	mean.Want |= attn.WantMean
	entropy.Want |= attn.WantEntropy
	narrow.Dim = 0
	for _, l := range asmtest.Levels(t) {
		ops := *l.Ops
		ops.Pack = ops.Pack.Always()
		size := func(pack asm.Pack) int { return pack.Size(asm.Keys, 32, 40) }
		able := size(ops.Pack) > 0
		for _, c := range []struct {
			name              string
			p                 attn.Problem
			forward, backward bool
		}{
			{"plain", base, true, true},
			{"means of scores", mean, false, true}, // backward does not compute it
			{"entropies", entropy, false, false},
			{"keys without columns", narrow, false, false},
		} {
			for pass, want := range map[asm.Pass]bool{asm.Forward: c.forward, asm.Backward: c.backward} {
				if packs := size(Packing(&c.p, &ops, pass)) > 0; packs != (want && able) {
					t.Errorf("%s, %s, pass %d: packs %v, want %v", l.ISA, c.name, pass, packs, want && able)
				}
			}
		}
	}
}

// keysOf and valuesOf return a block that Keys or Values has set.
func keysOf(s *Stage, a *attn.Args, b, kv, key, n int) (to asm.KeyBlock) {
	s.Keys(&to, a, b, kv, key, n)
	return to
}

func valuesOf(s *Stage, a *attn.Args, b, kv, key, n int) (to asm.ValueBlock) {
	s.Values(&to, a, b, kv, key, n)
	return to
}
