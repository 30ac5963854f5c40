package decode

import (
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/flash/flashtest"
)

func run(ops *asm.Ops, p attn.Problem, team *attn.Team, a *attn.Args) {
	Kernel{Ops: ops}.Plan(p, team).Run(a)
}

// TestPagesKeepBits checks that a row's bits do not depend on whether its keys are in pages or on
// the order of the pages, on whether a task scans several heads or several splits, or on the number
// of workers.
func TestPagesKeepBits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	types, pages := []attn.DType{attn.F32, attn.F16, attn.BF16, attn.I8}, []int{8, 16, 64, 2048}
	if testing.Short() {
		types, pages = []attn.DType{attn.F32, attn.I8}, []int{16}
	}
	for _, l := range asmtest.Levels(t) {
		for _, typ := range types {
			for _, nq := range []int{1, 7} {
				p := attn.Problem{Batch: 2, SeqQ: nq, SeqKV: 2*splitKeys + 76, HeadsQ: 4, HeadsKV: 2, Dim: 40, DimV: 24, KV: typ, Lengths: true}
				if nq == 7 {
					p.Mask = attn.Window(290, 0)
				}
				whole := flashtest.NewArgs(t, p, "bshd")
				cases.Fill("normal", p, whole, 1)
				whole.KLen[1] = 777
				run(l.Ops, p, nil, whole)
				want := slices.Clone(whole.Out.Data)
				for _, page := range pages {
					for _, layout := range []string{"bhsd", "bshd"} {
						for _, shuffled := range []bool{false, true} {
							p.Page = page
							a := flashtest.NewArgs(t, p, layout)
							if !shuffled {
								slices.Sort(a.Pages)
							}
							a.KLen[1] = 777
							copy(a.Q.Data, whole.Q.Data)
							flashtest.FillPages(&p, a, whole)
							a.Q = whole.Q
							run(l.Ops, p, team, a)
							for b := range p.Batch {
								for i := range nq {
									for h := range p.HeadsQ {
										if !slices.EqualFunc(a.Out.Row(b, i, h), whole.Out.Row(b, i, h), flashtest.Same) {
											t.Fatalf("%s, %v, pages of %d, %s: query %d of head %d is %v, want %v", l.ISA, typ, page, layout, i, h, a.Out.Row(b, i, h), whole.Out.Row(b, i, h))
										}
									}
								}
							}
						}
					}
				}
				p.Page = 0
				run(l.Ops, p, team, whole)
				if !slices.EqualFunc(whole.Out.Data, want, flashtest.Same) {
					t.Errorf("%s, %v: other bits with three workers", l.ISA, typ)
				}
				apart := flashtest.NewArgs(t, p, "bhsd")
				cases.Fill("normal", p, apart, 1)
				apart.Q, apart.KLen, apart.Out = whole.Q, whole.KLen, whole.Out
				flashtest.FillPages(&p, apart, whole)
				for _, team := range []*attn.Team{nil, team} {
					clear(whole.Out.Data)
					run(l.Ops, p, team, apart)
					if !slices.EqualFunc(whole.Out.Data, want, flashtest.Same) {
						t.Errorf("%s, %v: other bits where heads are far apart", l.ISA, typ)
					}
				}
			}
		}
	}
}

// TestInterleavedKeepBits checks that interleaved heads, all of them or some at a time, give the
// bits of heads that are far apart.
func TestInterleavedKeepBits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	for _, l := range asmtest.Levels(t) {
		for _, typ := range []attn.DType{attn.F32, attn.BF16, attn.I8} {
			for _, c := range []struct{ nq, heads, kv, limit int }{{1, 6, 6, 6}, {1, 48, 3, 2}, {3, 4, 4, 4}, {3, 8, 4, 4}, {3, 24, 4, 1}, {8, 3, 1, 1}} {
				p := attn.Problem{Batch: 1, SeqQ: c.nq, SeqKV: splitKeys + 76, HeadsQ: c.heads, HeadsKV: c.kv, Dim: 24, DimV: 40, KV: typ}
				if n := headLimit(&p); n != c.limit {
					t.Fatalf("%d queries of %d heads, %d of keys: %d interleaved, want %d", c.nq, c.heads, c.kv, n, c.limit)
				}
				between := flashtest.NewArgs(t, p, "bshd")
				apart := flashtest.NewArgs(t, p, "bhsd")
				cases.Fill("normal", p, between, 1)
				flashtest.FillPages(&p, apart, between)
				apart.Q = between.Q
				for _, careful := range []bool{false, true} {
					if careful && typ != attn.F32 {
						break
					}
					if careful {
						between.V.Row(0, 5, c.kv-1)[0], apart.V.Row(0, 5, c.kv-1)[0] = flashtest.Inf, flashtest.Inf
					}
					run(l.Ops, p, nil, apart)
					for _, team := range []*attn.Team{nil, team} {
						run(l.Ops, p, team, between)
						for i := range c.nq {
							for h := range c.heads {
								if !slices.EqualFunc(between.Out.Row(0, i, h), apart.Out.Row(0, i, h), flashtest.Same) {
									t.Fatalf("%s, %v, %v: query %d of head %d is %v, want %v", l.ISA, typ, c, i, h, between.Out.Row(0, i, h), apart.Out.Row(0, i, h))
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestKeysWithoutValues checks that keys of int8 find their scales where values have no columns,
// with the same sums.
func TestKeysWithoutValues(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		var sums [2]float32
		for i, dv := range []int{8, 0} {
			p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 50, HeadsQ: 1, HeadsKV: 1, Dim: 24, DimV: dv, KV: attn.I8, Want: attn.WantLSE}
			a := flashtest.NewArgs(t, p, "bhsd")
			if err := cases.Fill("normal", p, a, 1); err != nil {
				t.Fatal(err)
			}
			run(l.Ops, p, nil, a)
			sums[i] = a.Stats.LSE.Row(0, 0, 0)[0]
		}
		if !flashtest.Same(sums[0], sums[1]) || sums[0] == 0 {
			t.Errorf("%s: LSE is %v with values, %v without", l.ISA, sums[0], sums[1])
		}
	}
}

// TestDecodeOfCellsAllocatesNothing checks that calls after the first allocate nothing, for every
// kind of cache.
func TestDecodeOfCellsAllocatesNothing(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 300, HeadsQ: 4, HeadsKV: 2, Dim: 16, DimV: 16, Q: attn.F16, KV: attn.I8, Out: attn.BF16, Page: 16}
	for _, l := range asmtest.Levels(t) {
		a := flashtest.NewArgs(t, p, "bhsd")
		cases.Fill("normal", p, a, 1)
		plan := Kernel{Ops: l.Ops}.Plan(p, nil)
		if n := testing.AllocsPerRun(10, func() { plan.Run(a) }); n != 0 {
			t.Errorf("%s: %v allocations", l.ISA, n)
		}
	}
}

// TestStreams checks which calls use the loops for a stream: keys that more than fill the last
// cache, each for one query. They must give the bits of the other loops.
func TestStreams(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for _, c := range []struct {
			what    string
			change  func(p *attn.Problem)
			layout  string
			streams bool
		}{
			{"one query", func(p *attn.Problem) {}, "bhsd", true},
			// Here runs of other lengths begin at other keys.
			{"behind a window", func(p *attn.Problem) { p.Mask = attn.Window(500, 0) }, "bhsd", true},
			{"float16", func(p *attn.Problem) { p.KV = attn.F16 }, "bhsd", false},
			{"bfloat16", func(p *attn.Problem) { p.KV = attn.BF16 }, "bhsd", false},
			{"int8", func(p *attn.Problem) { p.KV = attn.I8 }, "bhsd", false},
			{"pages", func(p *attn.Problem) { p.Page = 16 }, "bhsd", false},
			{"heads between one another", func(p *attn.Problem) {}, "bshd", false},
			{"several queries", func(p *attn.Problem) { p.SeqQ = 2 }, "bhsd", false},
			{"queries that share keys", func(p *attn.Problem) { p.HeadsKV = 1 }, "bhsd", false},
		} {
			p := attn.Problem{Batch: 2, SeqQ: 1, SeqKV: 2*splitKeys + 76, HeadsQ: 3, HeadsKV: 3, Dim: 40, DimV: 24}
			c.change(&p)
			a := flashtest.NewArgs(t, p, c.layout)
			cases.Fill("normal", p, a, 1)
			kv := p.Batch * p.SeqKV * p.HeadsKV * (p.Dim + p.DimV) * p.KV.Bytes()
			call := func(last int) (streamed, others int) {
				ops, stream := *l.Ops, *l.Ops.Streamed
				ops.Streamed = &stream
				ops.Decode.Dot = func(c *asm.Dot) { others++; l.Ops.Decode.Dot(c) }
				stream.Decode.Dot = func(c *asm.Dot) { streamed++; l.Ops.Streamed.Decode.Dot(c) }
				Kernel{Ops: &ops, LLC: last}.Plan(p, nil).Run(a)
				return streamed, others
			}
			if streamed, others := call(kv); streamed > 0 || others == 0 {
				t.Errorf("%s, %s, in the last cache: %d calls of the loops for a stream, %d of others", l.ISA, c.what, streamed, others)
			}
			want := slices.Clone(a.Out.Data)
			if streamed, others := call(kv - 1); (streamed > 0) != c.streams || (others > 0) == c.streams {
				t.Errorf("%s, %s: %d calls of the loops for a stream, %d of others", l.ISA, c.what, streamed, others)
			}
			if !slices.EqualFunc(a.Out.Data, want, flashtest.Same) {
				t.Errorf("%s, %s: the loops for a stream give other bits", l.ISA, c.what)
			}
		}
	}
}

// TestWeightsPrefetchOn checks what Weigh prefetches in a task, query after query, split after
// split and head after head: values that it has not prefetched before, and no more than the cache
// has room for.
func TestWeightsPrefetchOn(t *testing.T) {
	for _, c := range []struct {
		layout      string
		calls, room int // calls of Weigh in a task; bytes of room
		step        int
	}{
		{"bhsd", maxSplits, 1 << 30, 64},
		{"bhsd", maxSplits, 64 << 10, 8},
		{"bshd", 2, 1 << 30, 64},
		{"bshd", 2, 32 << 10, 8},
	} {
		const group, vec = 2, 4
		p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: maxSplits * splitKeys, HeadsQ: 2 * group, HeadsKV: 2, Dim: 64, DimV: 128}
		a := flashtest.NewArgs(t, p, c.layout)
		ops := *asm.Go()
		ops.Tuning.Ahead, ops.Tuning.Room, ops.Shape.Vec = shortRun, c.room, vec
		var at []uintptr
		weigh := ops.Decode.Weigh
		ops.Decode.Weigh = func(w *asm.Weigh) {
			at = append(at, w.At)
			if w.By != c.step {
				t.Errorf("%s, room for %d: %d bytes a step, want %d", c.layout, c.room, w.By, c.step)
			}
			weigh(w)
		}
		run(&ops, p, nil, a)
		if want := 2 * maxSplits; len(at) != want {
			t.Fatalf("%s: %d calls of Weigh, want %d", c.layout, len(at), want)
		}
		asked := uintptr(2 * group * splitKeys / vec * c.step)
		for i, next := range at {
			if i%c.calls > 0 && next != at[i-1]+asked {
				t.Errorf("%s, room for %d: call %d of a task prefetches from %d bytes after the last one, want %d", c.layout, c.room, i%c.calls, next-at[i-1], asked)
			}
		}
	}
}

// TestNoQueries checks that a call without queries runs no task.
func TestNoQueries(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	p := attn.Problem{Batch: 10000, SeqKV: 1, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1}
	a := flashtest.NewArgs(t, p, "bhsd")
	for _, l := range asmtest.Levels(t) {
		for range 100 {
			run(l.Ops, p, team, a)
		}
	}
}
