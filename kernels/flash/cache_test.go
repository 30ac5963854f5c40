package flash

import (
	"math"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm"
	"attnlab/kernels/asm/asmtest"
)

func decode(ops *asm.Ops, p attn.Problem, team *attn.Team, a *attn.Args) {
	kernel{ops: ops, name: "flash/" + ops.ISA}.planFew(p, team, 0).Forward(a)
}

func newArgs(t *testing.T, p attn.Problem, layout string) *attn.Args {
	t.Helper()
	a, err := cases.NewArgs(p, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What a query gets does not depend on whether its keys lie in pages, in what order these lie, whether a task takes several heads or several parts, or on who
// else is at work.
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
				p := attn.Problem{Batch: 2, SeqQ: nq, SeqKV: 2*part + 76, HeadsQ: 4, HeadsKV: 2, Dim: 40, DimV: 24, KV: typ, Lengths: true}
				if nq == 7 {
					p.Mask = attn.Window(290, 0)
				}
				whole := newArgs(t, p, "bshd")
				cases.Fill("normal", p, whole, 1)
				whole.KLen[1] = 777
				decode(l.Ops, p, nil, whole)
				want := slices.Clone(whole.Out.Data)
				for _, page := range pages {
					for _, layout := range []string{"bhsd", "bshd"} {
						for _, shuffled := range []bool{false, true} {
							p.Page = page
							a := newArgs(t, p, layout)
							if !shuffled {
								slices.Sort(a.Pages)
							}
							a.KLen[1] = 777
							copy(a.Q.Data, whole.Q.Data)
							fillPages(&p, a, whole)
							a.Q = whole.Q
							decode(l.Ops, p, team, a)
							for b := range p.Batch {
								for i := range nq {
									for h := range p.HeadsQ {
										if !slices.EqualFunc(a.Out.Row(b, i, h), whole.Out.Row(b, i, h), same) {
											t.Fatalf("%s, %v, pages of %d, %s: query %d of head %d is %v, want %v", l.ISA, typ, page, layout, i, h, a.Out.Row(b, i, h), whole.Out.Row(b, i, h))
										}
									}
								}
							}
						}
					}
				}
				p.Page = 0
				decode(l.Ops, p, team, whole)
				if !slices.EqualFunc(whole.Out.Data, want, same) {
					t.Errorf("%s, %v: other bits with three workers", l.ISA, typ)
				}
				apart := newArgs(t, p, "bhsd")
				cases.Fill("normal", p, apart, 1)
				apart.Q, apart.KLen, apart.Out = whole.Q, whole.KLen, whole.Out
				fillPages(&p, apart, whole)
				for _, team := range []*attn.Team{nil, team} {
					clear(whole.Out.Data)
					decode(l.Ops, p, team, apart)
					if !slices.EqualFunc(whole.Out.Data, want, same) {
						t.Errorf("%s, %v: other bits where heads lie apart", l.ISA, typ)
					}
				}
			}
		}
	}
}

// Heads that go in turn, all of them or a few at a time, give the bits of heads that lie apart.
func TestTurnsKeepBits(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	for _, l := range asmtest.Levels(t) {
		for _, typ := range []attn.DType{attn.F32, attn.BF16, attn.I8} {
			for _, c := range []struct{ nq, heads, kv, turns int }{{1, 6, 6, 6}, {1, 48, 3, 2}, {3, 4, 4, 4}, {3, 8, 4, 4}, {3, 24, 4, 1}, {8, 10, 1, 1}} {
				p := attn.Problem{Batch: 1, SeqQ: c.nq, SeqKV: part + 76, HeadsQ: c.heads, HeadsKV: c.kv, Dim: 24, DimV: 40, KV: typ}
				if n := turns(&p); n != c.turns {
					t.Fatalf("%d queries of %d heads, %d of keys: %d in turn, want %d", c.nq, c.heads, c.kv, n, c.turns)
				}
				between := newArgs(t, p, "bshd")
				apart := newArgs(t, p, "bhsd")
				cases.Fill("normal", p, between, 1)
				fillPages(&p, apart, between)
				apart.Q = between.Q
				for _, careful := range []bool{false, true} {
					if careful && typ != attn.F32 {
						break
					}
					if careful {
						between.V.Row(0, 5, c.kv-1)[0], apart.V.Row(0, 5, c.kv-1)[0] = inf, inf
					}
					decode(l.Ops, p, nil, apart)
					for _, team := range []*attn.Team{nil, team} {
						decode(l.Ops, p, team, between)
						for i := range c.nq {
							for h := range c.heads {
								if !slices.EqualFunc(between.Out.Row(0, i, h), apart.Out.Row(0, i, h), same) {
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

// Keys of int8 have scales to find even where there are no values, and their sums are the same then.
func TestKeysWithoutValues(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		var sums [2]float32
		for i, dv := range []int{8, 0} {
			p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 50, HeadsQ: 1, HeadsKV: 1, Dim: 24, DimV: dv, KV: attn.I8, Want: attn.WantLSE}
			a := newArgs(t, p, "bhsd")
			if err := cases.Fill("normal", p, a, 1); err != nil {
				t.Fatal(err)
			}
			decode(l.Ops, p, nil, a)
			sums[i] = a.Stats.LSE.Row(0, 0, 0)[0]
		}
		if !same(sums[0], sums[1]) || sums[0] == 0 {
			t.Errorf("%s: LSE is %v with values, %v without", l.ISA, sums[0], sums[1])
		}
	}
}

var inf = float32(math.Inf(1))

func same(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }

// fillPages copies the keys and values in use of one call to the pages of another.
func fillPages(p *attn.Problem, to, from *attn.Args) {
	for b := range p.Batch {
		for j := range to.Keys(p, b) {
			page, row := to.KRow(p, b, j)
			for h := range p.HeadsKV {
				for _, pair := range [][2]*attn.Tensor{{&to.K, &from.K}, {&to.V, &from.V}} {
					t, f := pair[0], pair[1]
					at, src := page*t.SB+row*t.SS+h*t.SH, b*f.SB+j*f.SS+h*f.SH
					switch t.Type {
					case attn.F32:
						copy(t.Data[at:][:t.D], f.Data[src:])
					case attn.I8:
						copy(t.Int8[at:][:t.D], f.Int8[src:])
						t.Scale[at/t.D] = f.Scale[src/f.D]
					default:
						copy(t.Bits[at:][:t.D], f.Bits[src:])
					}
				}
			}
		}
	}
}

// Steady state allocates nothing, whatever the cache.
func TestDecodeOfCellsAllocatesNothing(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: 300, HeadsQ: 4, HeadsKV: 2, Dim: 16, DimV: 16, Q: attn.F16, KV: attn.I8, Out: attn.BF16, Page: 16}
	for _, l := range asmtest.Levels(t) {
		a := newArgs(t, p, "bhsd")
		cases.Fill("normal", p, a, 1)
		plan := kernel{ops: l.Ops, name: "flash/" + l.ISA}.planFew(p, nil, 0)
		if n := testing.AllocsPerRun(10, func() { plan.Forward(a) }); n != 0 {
			t.Errorf("%s: %v allocations", l.ISA, n)
		}
	}
}

// Keys of one query each that more than fill the last cache go through the loops for a stream, and no others do; the bits are those of the others.
func TestStreams(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for _, c := range []struct {
			what    string
			change  func(p *attn.Problem)
			layout  string
			streams bool
		}{
			{"one query", func(p *attn.Problem) {}, "bhsd", true},
			{"behind a window", func(p *attn.Problem) { p.Mask = attn.Window(500, 0) }, "bhsd", true}, // runs of other lengths begin elsewhere
			{"float16", func(p *attn.Problem) { p.KV = attn.F16 }, "bhsd", false},
			{"bfloat16", func(p *attn.Problem) { p.KV = attn.BF16 }, "bhsd", false},
			{"int8", func(p *attn.Problem) { p.KV = attn.I8 }, "bhsd", false},
			{"pages", func(p *attn.Problem) { p.Page = 16 }, "bhsd", false},
			{"heads that lie between one another", func(p *attn.Problem) {}, "bshd", false},
			{"several queries", func(p *attn.Problem) { p.SeqQ = 2 }, "bhsd", false},
			{"queries that share keys", func(p *attn.Problem) { p.HeadsKV = 1 }, "bhsd", false},
		} {
			p := attn.Problem{Batch: 2, SeqQ: 1, SeqKV: 2*part + 76, HeadsQ: 3, HeadsKV: 3, Dim: 40, DimV: 24}
			c.change(&p)
			a := newArgs(t, p, c.layout)
			cases.Fill("normal", p, a, 1)
			kv := p.Batch * p.SeqKV * p.HeadsKV * (p.Dim + p.DimV) * p.KV.Bytes()
			run := func(last int) (streamed, others int) {
				ops, stream := *l.Ops, *l.Ops.Streamed
				ops.Streamed = &stream
				ops.Dot = func(f *asm.Few) { others++; l.Ops.Dot(f) }
				stream.Dot = func(f *asm.Few) { streamed++; l.Ops.Streamed.Dot(f) }
				kernel{ops: &ops, name: "flash/" + l.ISA, last: last}.planFew(p, nil, 0).Forward(a)
				return streamed, others
			}
			if streamed, others := run(kv); streamed > 0 || others == 0 {
				t.Errorf("%s, %s, in the last cache: %d calls of the loops for a stream, %d of others", l.ISA, c.what, streamed, others)
			}
			want := slices.Clone(a.Out.Data)
			if streamed, others := run(kv - 1); (streamed > 0) != c.streams || (others > 0) == c.streams {
				t.Errorf("%s, %s: %d calls of the loops for a stream, %d of others", l.ISA, c.what, streamed, others)
			}
			if !slices.EqualFunc(a.Out.Data, want, same) {
				t.Errorf("%s, %s: the loops for a stream give other bits", l.ISA, c.what)
			}
		}
	}
}

// While a task makes weights, query after query, part after part and head after head, it asks for values that it has not asked for, and for no more than
// there is room for.
func TestWeightsAskOn(t *testing.T) {
	for _, c := range []struct {
		layout      string
		calls, room int // of Weigh, in a task
		step        int
	}{
		{"bhsd", longest, 1 << 30, 64},
		{"bhsd", longest, 64 << 10, 8},
		{"bshd", 2, 1 << 30, 64},
		{"bshd", 2, 32 << 10, 8},
	} {
		const group, vec = 2, 4
		p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: longest * part, HeadsQ: 2 * group, HeadsKV: 2, Dim: 64, DimV: 128}
		a := newArgs(t, p, c.layout)
		ops := *asm.Go()
		ops.Ahead, ops.Room, ops.Vec = shortRun, c.room, vec
		var at []uintptr
		weigh := ops.Weigh
		ops.Weigh = func(f *asm.Few) {
			at = append(at, f.Next)
			if f.NextBy != c.step {
				t.Errorf("%s, room for %d: %d bytes a step, want %d", c.layout, c.room, f.NextBy, c.step)
			}
			weigh(f)
		}
		decode(&ops, p, nil, a)
		if want := 2 * longest; len(at) != want {
			t.Fatalf("%s: %d calls of Weigh, want %d", c.layout, len(at), want)
		}
		asked := uintptr(2 * group * part / vec * c.step)
		for i, next := range at {
			if i%c.calls > 0 && next != at[i-1]+asked {
				t.Errorf("%s, room for %d: call %d of a task asks from %d bytes after the last one, want %d", c.layout, c.room, i%c.calls, next-at[i-1], asked)
			}
		}
	}
}

// A call without queries has nothing for any worker to do.
func TestNoQueries(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	p := attn.Problem{Batch: 10000, SeqKV: 1, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1}
	a := newArgs(t, p, "bhsd")
	for _, l := range asmtest.Levels(t) {
		for range 100 {
			decode(l.Ops, p, team, a)
		}
	}
}
