package decode

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/flash/flashtest"
)

// TestSchedule checks how calls are divided into tasks, and that the tasks cover each query of each
// key head and split once.
func TestSchedule(t *testing.T) {
	const d = 64
	apart, between, pages := attn.Tensor{SS: d, SH: 9000 * d}, attn.Tensor{SS: 4 * d, SH: d}, attn.Tensor{SS: d, SH: 64 * d}
	for _, c := range []struct {
		name               string
		queries, heads, kv int
		change             func(p *attn.Problem)
		keys               attn.Tensor
		splits, workers    int
		set, span, shares  int
		interleaved        bool
	}{
		{"one worker", 1, 4, 4, nil, apart, 5, 1, 1, 4, 1, false},
		{"fewer splits than a task may take", 1, 4, 4, nil, apart, 3, 1, 1, 3, 1, false},
		{"tasks for two workers", 1, 4, 4, nil, apart, 5, 2, 1, 2, 1, false},
		{"tasks for many workers", 1, 4, 4, nil, apart, 5, 9, 1, 1, 1, false},
		{"interleaved rows of several heads", 1, 4, 4, nil, between, 5, 1, 4, 1, 1, true},
		{"as many heads as there are rows of scores for", 3, 16, 4, nil, between, 5, 1, 2, 1, 1, true},
		{"pages", 1, 4, 4, nil, pages, 5, 1, 4, 1, 1, false},
		{"one row, as far apart as heads", 1, 4, 4, nil, attn.Tensor{SS: d, SH: d}, 5, 1, 4, 1, 1, false},
		{"pages, two workers", 1, 4, 4, nil, pages, 3, 2, 1, 1, 1, false},
		{"rotated keys of interleaved heads", 1, 4, 4, func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }, between, 5, 1, 4, 1, 1, false},
		{"rotated keys", 1, 4, 4, func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }, apart, 5, 1, 1, 1, 1, false},
		{"more queries than rows of scores", 1, 48, 1, nil, apart, 1, 1, 1, 1, 2, false},
		{"shares for many workers, not all alike", 1, 50, 1, nil, apart, 1, 4, 1, 1, 6, false},
		{"queries enough for a share each", 2, 16, 1, nil, apart, 2, 2, 1, 1, 2, false},
		{"too few queries to share", 1, 1, 1, nil, apart, 3, 4, 1, 1, 1, false},
		{"a set that the last task does not fill", 2, 24, 3, nil, between, 2, 1, 2, 1, 1, true},
	} {
		p := attn.Problem{Batch: 2, SeqQ: c.queries, SeqKV: c.splits * splitKeys, HeadsQ: c.heads, HeadsKV: c.kv, Dim: d, DimV: d}
		if c.workers > 2 || c.shares > 1 {
			p.Batch = 1
		}
		if c.change != nil {
			c.change(&p)
		}
		if c.workers == 2 && c.kv == 4 { // enough heads and splits for two workers
			p.Batch = 1
		}
		s := newSchedule(&p, &c.keys, c.splits, c.workers)
		if s.taskHeads != c.set || s.taskSplits != c.span || s.shares != c.shares || s.interleaved != c.interleaved {
			t.Errorf("%s: %+v, want sets of %d heads, spans of %d, %d shares, interleaved %v", c.name, s, c.set, c.span, c.shares, c.interleaved)
		}
		type cell struct{ b, kv, split, row int }
		covered := map[cell]int{}
		for i := range s.tasks() {
			task := s.task(i)
			first, rows := s.rows(task.share, sharers(&p))
			if rows > maxRows || rows*task.heads > maxRows && s.interleaved || rows*task.splits > maxRows {
				t.Errorf("%s: task %d has %d rows of %d heads and %d splits", c.name, i, rows, task.heads, task.splits)
			}
			for kv := range task.heads {
				for split := range task.splits {
					for r := range rows {
						covered[cell{task.b, task.kv + kv, task.split + split, first + r}]++
					}
				}
			}
		}
		for at, n := range covered {
			if n != 1 || at.b >= p.Batch || at.kv >= p.HeadsKV || at.split >= c.splits || at.row >= sharers(&p) {
				t.Fatalf("%s: %+v is done %d times", c.name, at, n)
			}
		}
		if want := p.Batch * p.HeadsKV * c.splits * sharers(&p); len(covered) != want {
			t.Errorf("%s: %d queries of a split are done, want %d", c.name, len(covered), want)
		}
	}
}

// TestByTiles checks which queries go through splits in tiles.
func TestByTiles(t *testing.T) {
	for _, c := range []struct {
		queries, group, d int
		terms             attn.Terms
		tiles             bool
	}{
		{1, 40, 64, 0, true},
		{1, 32, 64, 0, true},
		{1, 32, 65, 0, false},
		{1, 33, 65, 0, true},
		{1, 31, 64, 0, false},
		{8, 5, 128, attn.TermSinks, true},
		{8, 5, 128, attn.TermALiBi, false},
		{8, 1, 64, 0, false},
	} {
		p := attn.Problem{Batch: 1, SeqQ: c.queries, SeqKV: 5000, HeadsQ: 2 * c.group, HeadsKV: 2, Dim: c.d, DimV: c.d}
		p.Score.Terms = c.terms
		if got := byTiles(&p); got != c.tiles {
			t.Errorf("%+v: in tiles %v", c, got)
		}
	}
}

// TestTaskKeys checks which keys a task reads.
func TestTaskKeys(t *testing.T) {
	for _, c := range []struct {
		split, splits, lo, hi, run int
		first, end                 int
	}{
		{0, 4, 0, 9000, 64, 0, 8192},
		{4, 1, 0, 9000, 64, 8192, 9000},
		{1, 2, 0, 9000, 64, 2048, 6144},
		{1, 2, 2500, 9000, 64, 2496, 6144}, // from the start of a run
		{1, 2, 2520, 9000, 16, 2496, 6144}, // from the start of a vector
		{1, 2, 2500, 9000, 256, 2304, 6144},
		{1, 2, 2500, 2600, 256, 2304, 2600},
		{1, 2, 2050, 9000, 4096, 2048, 6144}, // not before the split
		{0, 2, 5000, 5100, 64, 4992, 4096},   // no keys
		{2, 1, 0, 3000, 64, 4096, 3000},      // no keys
	} {
		task := task{split: c.split, splits: c.splits}
		if first, end := task.keys(c.lo, c.hi, c.run); first != c.first || end != c.end {
			t.Errorf("%+v, keys %d to %d in runs of %d: %d to %d, want %d to %d", task, c.lo, c.hi, c.run, first, end, c.first, c.end)
		}
	}
}

// TestRunLengths checks the lengths of runs, and how far ahead they prefetch, for rows of 64
// numbers.
func TestRunLengths(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct {
		reach, vec, queries, page int
		kv                        attn.DType
		interleaved               bool
		run                       int
		ahead                     ahead
	}{
		{4 * kib, 8, 1, 0, attn.F32, false, 16, ahead{1, 12, 1}},
		{8 * kib, 8, 1, 0, attn.F32, false, 16, ahead{2, 12, 1}},
		{8 * kib, 8, 4, 0, attn.F32, false, 64, ahead{1, 3, 4}},
		{8 * kib, 8, 4, 0, attn.F32, true, 16, ahead{2, 12, 1}},
		{16 * kib, 8, 1, 0, attn.F32, false, 64, ahead{1, 3, 4}},
		{16 * kib, 8, 1, 0, attn.F32, true, 16, ahead{4, 12, 1}},
		{16 * kib, 8, 1, 16, attn.F32, false, 16, ahead{4, 12, 1}},
		{0, 8, 1, 0, attn.F32, false, 512, ahead{0, 1, 32}},
		{0, 8, 1, 0, attn.F32, true, 512, ahead{0, 1, 32}},
		{4 * kib, 4, 1, 0, attn.F32, false, 16, ahead{2, 12, 1}},
		{4 * kib, 16, 1, 0, attn.I8, false, 64, ahead{2, 12, 1}},
		{4 * kib, 16, 1, 0, attn.F16, false, 32, ahead{1, 12, 1}},
	} {
		p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 4096, HeadsQ: 2 * c.queries, HeadsKV: 2, Dim: 64, DimV: 64, Page: c.page, KV: c.kv}
		ops := *asm.Go()
		ops.Tuning.Ahead, ops.Shape.Vec = c.reach, c.vec
		var got cache
		if got.fit(&p, &ops, c.interleaved); got.run != c.run || got.ahead != c.ahead {
			t.Errorf("%+v: runs of %d keys, %+v ahead", c, got.run, got.ahead)
		}
	}
}

// stored returns the addresses of the row of a key in a tensor, and of its scale.
func stored(p *attn.Problem, a *attn.Args, x *attn.Tensor, b, kv, key int) (row, scale uintptr) {
	at, s := a.KRow(p, b, key)
	o := at*x.SB + s*x.SS + kv*x.SH
	if x.Type == attn.I8 {
		return uintptr(unsafe.Pointer(&x.Int8[o])), uintptr(unsafe.Pointer(&x.Scale[o/x.D]))
	}
	return uintptr(unsafe.Pointer(&x.Data[o])), 0
}

// TestRuns checks where runs of keys and values begin, and what is prefetched and touched while a
// loop reads them.
func TestRuns(t *testing.T) {
	const batch, from, keys = 1, 1, 4500 // the call's second entry, starting at its second key head
	for _, kv := range []attn.DType{attn.F32, attn.I8} {
		for _, c := range []struct {
			layout     string
			page       int
			interleave int
			split      int
			first      int
		}{
			{"bhsd", 0, 1, 0, 0},
			{"bhsd", 0, 1, 1, 2112},
			{"bshd", 0, 2, 1, 2048},
			{"bhsd", 32, 1, 1, 2304},
			{"bshd", 64, 2, 0, 64},
		} {
			p := attn.Problem{Batch: 2, SeqQ: 1, SeqKV: 5000, HeadsQ: 3, HeadsKV: 3, Dim: 32, DimV: 48, KV: kv, Page: c.page, Lengths: true}
			a := flashtest.Filled(t, p, c.layout)
			a.KLen[batch] = keys
			ch := newCache(&p)
			ch.run, _ = runOf(&p, shortRun)
			ch.ahead = ahead{runs: 2, touch: 5, pages: 1}
			task := task{b: batch, kv: from, heads: 2, split: c.split, splits: 1}
			end := (c.split + 1) * splitKeys
			ch.open(&p, a, &task, c.interleave, c.first, end)
			// run returns the first key and the head of run i, counted from key begin.
			run := func(begin, i int) (key, head int) {
				return min(begin+i/c.interleave*ch.run, keys-1), from + i%c.interleave
			}
			at := fmt.Sprintf("%v, %+v", kv, c)
			n, far := cover(end-c.first, ch.run)*c.interleave, ch.ahead.touch
			for i := range n {
				key, head := run(c.first, i)
				k, kScale := stored(&p, a, &a.K, batch, head, key)
				v, _ := stored(&p, a, &a.V, batch, head, key)
				if got := ch.heads[0].k.Address(ch.k.now.at[i]); got != k {
					t.Fatalf("%s: run %d of keys is %d bytes off", at, i, int(got-k))
				}
				if got := ch.heads[0].v.Address(ch.v.now.at[i]); got != v {
					t.Fatalf("%s: run %d of values is %d bytes off", at, i, int(got-v))
				}
				if kv == attn.I8 && ch.heads[0].k.ScaleAddress(ch.k.now.scales[i]) != kScale {
					t.Fatalf("%s: the scales of run %d are elsewhere", at, i)
				}
			}
			for i := range far {
				key, head := run(end, i)
				if k, _ := stored(&p, a, &a.K, batch, head, key); ch.heads[0].k.Address(ch.k.next.at[i]) != k {
					t.Fatalf("%s: run %d of the next split is elsewhere", at, i)
				}
			}

			// Keys of five runs are read, from the third on, and then values, from the ninth run
			// on.
			var w asm.Walk
			w.N = 5*ch.run - 3
			ch.read(&w, &ch.heads[0].k, ch.k.now, 2*ch.run)
			ch.prefetch(&w, &ch.heads[0].v, ch.v.now, 8*ch.run)
			read := 5 * c.interleave
			if w.Run != ch.run || len(w.At) != read || w.FarPages != 1 {
				t.Fatalf("%s: %d runs of %d keys, touched in %d pages", at, len(w.At), w.Run, w.FarPages)
			}
			later := func(i int) uintptr { // run i of the runs that are read, and then prefetched
				if i < read {
					key, head := run(c.first, 2*c.interleave+i)
					k, _ := stored(&p, a, &a.K, batch, head, key)
					return k
				}
				key, head := run(c.first, 8*c.interleave+i-read)
				v, _ := stored(&p, a, &a.V, batch, head, key)
				return v
			}
			for i := range read {
				if w.Ahead[i] != later(i+ch.ahead.runs) || w.Far[i] != later(i+ch.ahead.touch) {
					t.Fatalf("%s: run %d prefetches or touches something else", at, i)
				}
				if kv == attn.I8 {
					key, head := run(c.first, 8*c.interleave+i)
					if _, scale := stored(&p, a, &a.V, batch, head, key); w.FarScale[i] != scale {
						t.Fatalf("%s: run %d touches other scales", at, i)
					}
				}
			}
		}
	}
}

// TestPrefetchOrder checks what each loop prefetches after its own rows: values after keys and,
// after values, the values of the next split, the keys of the next head, or the keys of the next
// task.
func TestPrefetchOrder(t *testing.T) {
	for _, c := range []struct {
		layout string
		page   int
		order  []string // read, and then prefetched: K or V, head, split
	}{
		{"bhsd", 0, []string{"K00 V00", "V00 V01", "V01 V02", "V02 K02", "K10 V10", "V10 V11", "V11 V12", "V12 K12"}},
		{"bshd", 0, []string{"K00 V00", "V00 K01", "K01 V01", "V01 K02", "K02 V02", "V02 K02"}},
		{"bhsd", 64, []string{"K00 V00", "V00 K10", "K10 V10", "V10 K01", "K01 V01", "V01 K11", "K11 V11", "V11 K02", "K02 V02", "V02 K12", "K12 V12", "V12 K02"}},
	} {
		p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 2*splitKeys + 64, HeadsQ: 2, HeadsKV: 2, Dim: 64, DimV: 64, Page: c.page}
		a := flashtest.Filled(t, p, c.layout)
		names := map[uintptr]string{}
		for kv := range p.HeadsKV {
			for split := range 3 {
				for name, x := range map[string]*attn.Tensor{"K": &a.K, "V": &a.V} {
					row, _ := stored(&p, a, x, 0, kv, split*splitKeys)
					names[row] = fmt.Sprintf("%s%d%d", name, kv, split)
				}
			}
		}
		last := func(name string, kv int) uintptr { // place of keys after the last one
			row, _ := stored(&p, a, map[string]*attn.Tensor{"K": &a.K, "V": &a.V}[name], 0, kv, p.SeqKV-1)
			return row
		}
		ops := *asm.Go()
		ops.Tuning.Ahead, ops.Shape.Vec, ops.Streamed = shortRun, 8, &ops
		var order []string
		walked := func(w *asm.Walk) {
			ahead := cover(shortRun, 4*w.Run*w.D)
			next := w.Ahead[len(w.At)-ahead]
			name := names[next]
			for kv := range p.HeadsKV {
				if next == last("K", kv) {
					name = fmt.Sprintf("K%d2", kv)
				}
			}
			order = append(order, names[w.Cache.Address(w.At[0])]+" "+name)
		}
		dot, sum := ops.Decode.Dot, ops.Decode.Sum
		ops.Decode.Dot = func(d *asm.Dot) { walked(&d.Walk); dot(d) }
		ops.Decode.Sum = func(w *asm.Walk) { walked(w); sum(w) }
		run(&ops, p, nil, a)
		if !slices.Equal(order, c.order) {
			t.Errorf("%s, pages of %d: %q, want %q", c.layout, c.page, order, c.order)
		}
	}
}

// TestMerge checks how the partial states of a query are merged.
func TestMerge(t *testing.T) {
	none, nan, inf, lowest := float32(asm.Unset), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
	for _, c := range []struct {
		name          string
		m, l, s, max  []float32
		first         []int32
		bad           []bool
		factors       []float32
		sum, weighted float32
		ref, largest  float32
		key           int
	}{
		{
			"a reference for all",
			[]float32{1, 5, 3},
			[]float32{32, 3, 8},
			[]float32{16, 2, 4},
			[]float32{2, 6, 4},
			[]int32{7, 2100, 4100},
			make([]bool, 3),
			[]float32{1. / 16, 1, 1. / 4},
			2 + 3 + 2, 1 + 2 + 1, 5, 6, 2100,
		},
		{
			"splits that see nothing",
			[]float32{none, -9, none},
			[]float32{0, 3, 0},
			[]float32{0, 2, 0},
			[]float32{lowest, -8, lowest},
			[]int32{-1, 2100, -1},
			make([]bool, 3),
			[]float32{0, 1, 0},
			3, 2, -9, -8, 2100,
		},
		{
			"no key at all",
			[]float32{none, none},
			[]float32{0, 0},
			[]float32{0, 0},
			[]float32{lowest, lowest},
			[]int32{-1, -1},
			make([]bool, 2),
			[]float32{0, 0},
			0, 0, none, lowest, -1,
		},
		{
			"the first of equal scores",
			[]float32{4, 4},
			[]float32{1, 1},
			[]float32{1, 2},
			[]float32{5, 5},
			[]int32{9, 2050},
			make([]bool, 2),
			[]float32{1, 1},
			2, 3, 4, 5, 9,
		},
		{
			"a split of no weight, whose sum has overflowed",
			[]float32{-300, 4},
			[]float32{2, 1},
			[]float32{inf, 2},
			[]float32{-300, 5},
			[]int32{9, 2050},
			make([]bool, 2),
			[]float32{0, 1},
			1, 2, 4, 5, 2050,
		},
		{
			"a weightless split with the largest reference",
			[]float32{50, 4},
			[]float32{0, 1},
			[]float32{0, 2},
			[]float32{lowest, 5},
			[]int32{-1, 2050},
			make([]bool, 2),
			[]float32{0, 1},
			1, 2, 4, 5, 2050,
		},
	} {
		n := len(c.m)
		s := newPartials(n + 1) // the first state belongs to another query
		s.set(0, 1000, nan, nan, 1000, 3, true)
		for i := range n {
			s.set(1+i, c.m[i], c.l[i], c.s[i], c.max[i], c.first[i], c.bad[i])
		}
		got := s.merge(1, n)
		if want := (merged{c.ref, c.sum, c.weighted, c.largest, c.key, false}); got != want || !slices.Equal(s.M[1:], c.factors) {
			t.Errorf("%s: %+v with factors %v, want %+v with %v", c.name, got, s.M[1:], want, c.factors)
		}
	}
	for _, bad := range []struct {
		l   float32
		bad bool
	}{{nan, false}, {1, true}} {
		for at := range 2 {
			s := newPartials(2)
			s.set(at, 1, bad.l, 1, 1, 1, bad.bad)
			if s.set(1-at, 1, 1, 1, 1, 1, false); !s.merge(0, 2).bad {
				t.Errorf("split %d, %+v, is merged", at, bad)
			}
		}
	}
}
