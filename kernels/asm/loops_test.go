//go:build (amd64 || arm64) && !purego

package asm

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// TestFieldsAreAssembly checks that the complete sets have no portable loops, and that only sets
// that multiply AMX tiles pack.
func TestFieldsAreAssembly(t *testing.T) {
	for _, l := range Levels() {
		if !l.Available {
			t.Logf("SKIPPED: %s: %s", l.ISA, l.Reason)
			continue
		} else if !slices.Contains([]string{"avx2", "avx512", "amx", "neon"}, l.ISA) {
			continue
		}
		loops := 0
		for _, o := range []*Ops{l.Ops, l.Ops.Streamed} {
			eachFunc(reflect.ValueOf(*o), "Ops", func(field string, f reflect.Value) {
				loops++
				packing := strings.HasPrefix(field, "Ops.Pack.")
				if packing && l.ISA != "amx" {
					if !f.IsNil() {
						t.Errorf("%s: %s is there, and this set reads rows", l.ISA, field)
					}
					return
				}
				if f.IsNil() {
					t.Errorf("%s: %s is nil", l.ISA, field)
					return
				}
				// Closures of Portable have its name, also where it is inlined.
				name := runtime.FuncForPC(f.Pointer()).Name()
				if !strings.Contains(name, "loops).") && !(packing && strings.Contains(name, ".pack")) {
					t.Errorf("%s: %s is %s, want assembly", l.ISA, field, name)
				}
			})
		}
		if loops < 2*35 {
			t.Errorf("%s: only %d loops", l.ISA, loops)
		}
	}
}

// complete returns the assembled sets that have all loops. Portable loops leave the checks of
// lengths to the runtime.
func complete() []*Ops {
	return slices.DeleteFunc(assembled(), func(o *Ops) bool { return !isAssembly(o.Panel.Flash) || !isAssembly(o.Decode.Dot) })
}

// eachFunc visits the functions in the fields of a struct, and of the structs in it.
func eachFunc(v reflect.Value, name string, do func(name string, f reflect.Value)) {
	for i := range v.NumField() {
		switch f, name := v.Field(i), name+"."+v.Type().Field(i).Name; f.Kind() {
		case reflect.Func:
			do(name, f)
		case reflect.Struct:
			eachFunc(f, name, do)
		}
	}
}

// TestAllSetsOnNewCPU checks that a CPU with AVX-512 runs every set of amd64 but amx, and that
// every arm64 CPU runs neon, so that no test of a set is skipped there.
func TestAllSetsOnNewCPU(t *testing.T) {
	if runtime.GOARCH == "amd64" && !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ) {
		t.Skip("SKIPPED: this CPU has no AVX-512")
	}
	for _, s := range sets {
		if s.tiles != nil { // tests of packing log whether it runs here
			continue
		}
		if !slices.ContainsFunc(assembled(), func(o *Ops) bool { return o.ISA == s.isa }) {
			t.Errorf("%s does not run here", s.isa)
		}
	}
}

// TestNotAllowed checks that a set that the system does not allow is not available and has no
// loops.
func TestNotAllowed(t *testing.T) {
	for i := range needs {
		before := needs[i].allowed
		needs[i].allowed = func() error { return errors.New("not today") }
		for _, l := range Levels() {
			if l.ISA == needs[i].isa && (l.Available || l.Ops != nil || l.set != nil || cpuid.CPU.Supports(needs[i].features...) && l.Reason != "not today") {
				t.Errorf("%s: available %v, %s, with a set %v", l.ISA, l.Available, l.Reason, l.set != nil)
			}
		}
		needs[i].allowed = before
	}
}

// TestLoopsNeedWhatIsDetected checks that a set is available only with every feature that it needs.
// Its loops must be loops of sets that need no other feature, so that an instruction that was not
// detected is never run.
func TestLoopsNeedWhatIsDetected(t *testing.T) {
	features := map[string][]cpuid.FeatureID{}
	for _, n := range needs {
		features[n.isa] = n.features
		for _, without := range n.features {
			cpu := cpuid.CPU
			cpu.Enable(n.features...)
			cpu.Disable(without)
			for _, l := range levels(&cpu) {
				if l.ISA == n.isa && (l.Available || l.Reason != "not on this CPU") {
					t.Errorf("%s without %v: available %v, %s", l.ISA, without, l.Available, l.Reason)
				}
			}
		}
	}
	for _, l := range sets {
		loops := functions(reflect.ValueOf(*l))
		if len(loops) == 0 {
			t.Errorf("%s has no loops", l.isa)
		}
		for _, loop := range loops {
			of := ""
			for isa := range features {
				if strings.HasPrefix(loop, isa) && len(isa) > len(of) {
					of = isa
				}
			}
			if of == "" {
				t.Errorf("%s: %s is of no set", l.isa, loop)
			}
			for _, f := range features[of] {
				if !slices.Contains(features[l.isa], f) {
					t.Errorf("%s calls %s, which needs %v", l.isa, loop, f)
				}
			}
		}
	}
}

// functions returns the names of the functions that a struct holds, including those in slices,
// arrays, structs and behind pointers.
func functions(v reflect.Value) (names []string) {
	switch v.Kind() {
	case reflect.Func:
		if v.IsNil() { // the portable one
			return nil
		}
		name := runtime.FuncForPC(v.Pointer()).Name()
		return []string{name[strings.LastIndex(name, ".")+1:]}
	case reflect.Struct:
		for i := range v.NumField() {
			names = append(names, functions(v.Field(i))...)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			names = append(names, functions(v.Index(i))...)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return functions(v.Elem())
		}
	}
	return names
}

// TestShortOperands checks that a call with a slice that is one element short panics with the
// slice's name before assembly touches anything, and so does a call with invalid lengths.
func TestShortOperands(t *testing.T) {
	type operand struct {
		name string
		cut  func(p *operands)
	}
	last := func(s *[]float32, rows, cols, stride int) { *s = (*s)[:(rows-1)*stride+cols-1] }
	queries := operand{"Queries", func(p *operands) { last(&p.Qt, p.D, p.Width, p.Lanes) }}
	k := operand{"Keys", func(p *operands) { last(&p.K.Data, p.N, p.D, p.K.Stride) }}
	farK := operand{"Keys", func(p *operands) { p.K.Stride = 1 << 62 }}
	backK := operand{"Keys", func(p *operands) { p.K.Stride = -1 }}
	weights := operand{"P", func(p *operands) { last(&p.P, p.N, p.Width, p.Lanes) }}
	v := operand{"Values", func(p *operands) { last(&p.V.Data, p.N, p.C, p.V.Stride) }}
	out := operand{"O", func(p *operands) { last(&p.O, p.C, p.Width, p.Lanes) }}
	incoming := operand{"Dot", func(p *operands) { last(&p.Dot, p.C, p.Width, p.Lanes) }}
	sub := operand{"Sub", func(p *operands) { p.Sub = p.Sub[:p.Width-1] }}
	y := operand{"Y", func(p *operands) { last(&p.Y.Data, p.Width, p.C, p.Y.Stride) }}
	x := operand{"X", func(p *operands) { last(&p.X, p.N, p.C, p.XStride) }}
	scale := operand{"Scale", func(p *operands) { p.Scale = p.Scale[:p.N-1] }}
	width := operand{"lanes", func(p *operands) { p.Width-- }}
	wide := operand{"lanes", func(p *operands) { p.Width = 2 * p.Lanes }}
	rows := operand{"lanes", func(p *operands) { p.Lanes-- }}
	refs := operand{"M", func(p *operands) { p.M = p.M[:p.Width-1] }}
	sums := operand{"L", func(p *operands) { p.L = p.L[:p.Width-1] }}
	products := operand{"S", func(p *operands) { p.S = p.S[:p.Width-1] }}
	keys := operand{"P", func(p *operands) { p.N = -1 }}
	band := operand{"Lo, Hi", func(p *operands) {
		p.Plain = 0
		p.Lo = make([]int32, p.Width)
		p.Hi = make([]int32, p.Width-1)
	}}
	stairs := func(name string, change func(since, until []int)) operand {
		return operand{name, func(p *operands) {
			p.Since, p.Until = make([]int, p.Lanes), make([]int, p.Lanes)
			for i := range p.Until {
				p.Until[i] = 3
			}
			change(p.Since, p.Until)
		}}
	}
	since := operand{"Since", func(p *operands) { p.Until = make([]int, p.Lanes) }}
	until := operand{"Until", func(p *operands) { p.Since, p.Until = make([]int, p.Lanes), make([]int, 1) }}
	late := stairs("Since", func(since, _ []int) { since[0] = 1 })
	never := stairs("Since", func(since, _ []int) { since[2] = 4 })
	past := stairs("Until", func(_, until []int) { until[2] = 1 << 20 })
	down := stairs("Until", func(_, until []int) { until[1] = 2 })
	up := stairs("Since", func(since, _ []int) { since[1] = 1 })
	keep := operand{"Keep", func(p *operands) { p.Keep = p.Keep[:p.Width-1] }}
	bias := operand{"Bias", func(p *operands) { last(&p.Edit.Bias, p.N, p.Width, p.Lanes) }}
	high := operand{"SlopeHi", func(p *operands) { p.Edit.SlopeHi = p.Edit.SlopeHi[:p.Width-1] }}
	low := operand{"SlopeLo", func(p *operands) { p.Edit.SlopeLo = p.Edit.SlopeLo[:p.Width-1] }}
	pos := operand{"Pos", func(p *operands) { p.Edit.Pos = p.Edit.Pos[:p.Width-1] }}
	bits := operand{"Bits", func(p *operands) { p.Edit.Bits = p.Edit.Bits[:len(p.Edit.Bits)-1] }}
	nothing := func(*operands) {}
	from := func(run func(*Softmax), change func(s *Softmax)) func(p *operands) {
		return func(p *operands) {
			s := p.softmax()
			change(s)
			run(s)
		}
	}
	for _, o := range complete() {
		edits := func(run func(*Edit)) func(*operands) { return func(p *operands) { run(p.edit()) } }
		for _, c := range []struct {
			name     string
			run      func(p *operands)
			operands []operand
		}{
			{"Score", func(p *operands) { o.Panel.Score(p.scores()) }, []operand{queries, k, farK, backK, weights, width, wide, rows}},
			{"Flash", func(p *operands) { o.Panel.Flash(p.flash()) }, []operand{queries, k, farK, backK, weights, width, wide, rows, band}},
			{"Top", func(p *operands) { o.Panel.Top(p.softmax()) }, []operand{weights, refs, width, wide, rows}},
			{"Raise", func(p *operands) { o.Panel.Raise(p.softmax()) }, []operand{weights, refs, sums, products, keep, width}},
			{"Raise", from(o.Panel.Raise, func(s *Softmax) { s.Done = 1 << 20 }), []operand{{"Done", nothing}}},
			{"Exp", func(p *operands) { o.Panel.Exp(p.softmax()) }, []operand{weights, refs, sums, products, width}},
			{"Exp", from(o.Panel.Exp, func(s *Softmax) { s.From = 1 }), []operand{{"From", nothing}}},
			{"Exp", from(o.Panel.Exp, func(s *Softmax) { s.From = 1 << 20 }), []operand{{"From", nothing}}},
			{"Mix", func(p *operands) { o.Panel.Mix(p.mix()) }, []operand{v, out, weights, keep, width, wide, rows, keys, since, until, late, never, past, down, up}},
			{"Cap", edits(o.Edit.Cap), []operand{weights, width, wide, rows, keys}},
			{"Add", edits(o.Edit.Add), []operand{weights, bias, width, wide, rows, keys}},
			{"Slope", edits(o.Edit.Slope), []operand{weights, high, low, pos, width, wide, rows, keys}},
			{"Hide", edits(o.Edit.Hide), []operand{weights, bits, width, wide, rows, keys}},
			{"DScore", func(p *operands) { o.Back.DScore(p.dscore()) }, []operand{v, incoming, sub, weights, width, wide, rows}},
			{"Outer", func(p *operands) { o.Back.Outer(p.outer()) }, []operand{y, x, weights, keys, scale}},
			{"OuterT", func(p *operands) { transposedOuter(o, p) }, []operand{{"X", out.cut}, {"Y", v.cut}, weights, keys}},
		} {
			for _, bad := range c.operands {
				p := random(o, o.Shape.Lanes, 2*o.Shape.Keys+1, 9, 9)
				bad.cut(p)
				said := panicOf(func() { c.run(p) })
				if named := regexp.MustCompile(`\b` + bad.name + `\b`); !named.MatchString(said) || strings.Contains(said, "runtime error") {
					t.Errorf("%s/%s: a bad %s: panic %q", o.ISA, c.name, bad.name, said)
				}
			}
		}
	}
}

// TestBadSteps checks that an Until that Flash does not support panics before assembly reads it.
func TestBadSteps(t *testing.T) {
	for _, o := range complete() {
		lanes, vec, keys, unit := o.Shape.Lanes, o.Shape.Vec, o.Shape.Keys, o.Shape.Unit()
		for _, bad := range []struct {
			name   string
			change func(p *Flash)
		}{
			{"Until", func(p *Flash) { p.Until = p.Until[1:] }},
			{"Until", func(p *Flash) { p.Until = []int{} }},
			{"Until", func(p *Flash) { p.Until[0] = 0 }},
			{"Until", func(p *Flash) { p.Until[0]-- }},
			{"Until", func(p *Flash) { p.Until[0] = -keys }},
			{"Until", func(p *Flash) { p.From = keys }},
			{"Until", func(p *Flash) { p.Until[len(p.Until)-1] += keys }},
			{"Until", func(p *Flash) { p.Until[len(p.Until)-1] -= 2 * keys }},
			{"Until", func(p *Flash) { copy(p.Until[unit/vec:], p.Until[:unit/vec]) }},
			{"Until", func(p *Flash) { p.N++ }},
			{"Factor", func(p *Flash) { p.Factor = 1e-40 }},
			{"Factor", func(p *Flash) { p.Factor = math.NaN() }},
		} {
			p := random(o, lanes, lanes/unit*keys+1, 5, 5).flash()
			p.N--
			for lane := 0; lane < lanes; lane += vec {
				p.Until = append(p.Until, (1+lane/unit)*keys)
			}
			steps := fmt.Sprint(p.Until)
			bad.change(p)
			if said := panicOf(func() { o.Panel.Flash(p) }); !strings.Contains(said, bad.name) {
				t.Errorf("%s: %s made %v to %d of %d: panic %q", o.ISA, steps, p.Until, p.From, p.N, said)
			}
		}
	}
}

// inRuns divides the keys into runs without moving them.
func inRuns(f *few, run int) {
	f.Run = run
	for j := 0; j < f.N; j += run {
		f.At, f.Ahead, f.Scales = append(f.At, j*f.K.Stride), append(f.Ahead, f.K.Address(j*f.K.Stride)), append(f.Scales, j)
	}
	f.Far, f.FarScale = f.Ahead, f.Ahead
}

// interleaved divides the queries between two heads with the same keys.
func interleaved(f *few, run int) {
	inRuns(f, run)
	for _, list := range []*[]int{&f.At, &f.Scales} {
		for i := len(*list) - 1; i >= 0; i-- {
			*list = slices.Insert(*list, i, (*list)[i])
		}
	}
	f.Ahead = make([]uintptr, len(f.At))
	f.Far, f.FarScale = f.Ahead, f.Ahead
	f.Heads, f.R, f.HeadQ, f.HeadO = 2, f.R/2, f.R/2*f.Q.Stride, f.R/2*f.O.Stride
}

// TestShortFew checks what TestShortOperands checks, for the loops of decode.
func TestShortFew(t *testing.T) {
	for _, o := range complete() {
		dot := func(f *few) { o.Decode.Dot(f.dot()) }
		sum := func(f *few) { o.Decode.Sum(f.sum()) }
		weigh := func(f *few) { o.Decode.Weigh(f.weigh()) }
		last := func(s *[]float32, rows, cols, stride int) { *s = (*s)[:(rows-1)*stride+cols-1] }
		for _, c := range []struct {
			name, operand string
			run           func(*few)
			cut           func(f *few)
		}{
			{"Dot", "Rows:", dot, func(f *few) { last(&f.Q.Data, f.R, f.D, f.Q.Stride) }},
			{"Dot", "Cache:", dot, func(f *few) { last(&f.K.Data, f.N, f.D, f.K.Stride) }},
			{"Dot", "P", dot, func(f *few) { last(&f.P, f.R, f.N, f.Stride) }},
			{"Weigh", "P", weigh, func(f *few) { last(&f.P, f.R, up(f.N, o.Shape.Vec), f.Stride) }},
			{"Weigh", "M", weigh, func(f *few) { f.M = f.M[:f.R-1] }},
			{"Weigh", "L", weigh, func(f *few) { f.L = f.L[:f.R-1] }},
			{"Weigh", "S", weigh, func(f *few) { f.S = f.S[:f.R-1] }},
			{"Weigh", "From", func(f *few) { o.Decode.Weigh(&Weigh{RowPanel: f.panel(), Sums: f.Sums, From: f.R + 1}) }, func(*few) {}},
			{"Sum", "P", sum, func(f *few) { last(&f.P, f.R, f.N, f.Stride) }},
			{"Sum", "Cache:", sum, func(f *few) { last(&f.V.Data, f.N, f.C, f.V.Stride) }},
			{"Sum", "Rows:", sum, func(f *few) { last(&f.O.Data, f.R, f.C, f.O.Stride) }},
			{"Sum", "Cache:", sum, func(f *few) { f.V.Stride = -1 }},
			{"Dot", "Cache:", dot, func(f *few) { f.K.Stride = 1 << 62 }},
			{"Dot", "Cache:", dot, func(f *few) { f.K = cut(f.K, F16, f.N, f.D) }},
			{"Dot", "Cache:", dot, func(f *few) { f.K = cut(f.K, BF16, f.N, f.D) }},
			{"Dot", "Cache:", dot, func(f *few) { f.K = cut(f.K, I8, f.N, f.D) }},
			{"Dot", "Cache.Scale", dot, func(f *few) { f.K = stored(f.K.Rows, f.N, f.D, I8, 1); f.K.Scale = f.K.Scale[:f.N-1] }},
			{"Dot", "Cache.Scale", dot, func(f *few) { f.K = stored(f.K.Rows, f.N, f.D, I8, 1); f.K.ScaleStride = -1 }},
			{"Dot", "Cache: type 4", dot, func(f *few) { f.K.Type = I8 + 1 }},
			{"Sum", "Cache:", sum, func(f *few) { f.V = cut(f.V, F16, f.N, f.C) }},
			{"Sum", "Cache.Scale", sum, func(f *few) { f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.V.Scale = nil }},
			{"Dot", "Cache:", dot, func(f *few) { inRuns(f, 4); f.At[0] = 13*f.K.Stride + 9 }},
			{"Dot", "At", dot, func(f *few) { inRuns(f, 4); f.At[0] = -1 }},
			{"Dot", "At", dot, func(f *few) { inRuns(f, 4); f.At = f.At[:4] }},
			{"Dot", "Ahead", dot, func(f *few) { inRuns(f, 4); f.Ahead = nil }},
			{"Dot", "Far", dot, func(f *few) { inRuns(f, 4); f.Far = nil }},
			{"Dot", "Run", dot, func(f *few) { inRuns(f, 4); f.Run = -4 }},
			{"Dot", "Heads", dot, func(f *few) { f.Heads = 2 }},
			{"Dot", "Heads", dot, func(f *few) { f.Heads = -1 }},
			{"Dot", "P", dot, func(f *few) { interleaved(f, 4); f.P = f.P[:(2*f.R-1)*f.Stride] }},
			{"Dot", "Rows:", dot, func(f *few) { interleaved(f, 4); f.HeadQ++ }},
			{"Dot", "Rows:", dot, func(f *few) { interleaved(f, 4); f.HeadQ = math.MinInt }},
			{"Dot", "At", dot, func(f *few) { interleaved(f, 4); f.At = f.At[:len(f.At)-1] }},
			{"Dot", "Ahead", dot, func(f *few) { interleaved(f, 4); f.Ahead = f.Ahead[:len(f.At)-1] }},
			{"Dot", "Cache:", dot, func(f *few) { interleaved(f, 4); f.At[len(f.At)-1] += 9 * f.K.Stride }},
			{"Sum", "Rows:", sum, func(f *few) { interleaved(f, 4); f.HeadO++ }},
			{"Sum", "Scales", sum, func(f *few) {
				interleaved(f, 4)
				f.V = stored(f.V.Rows, f.N, f.C, I8, 2)
				f.Scales = f.Scales[:len(f.At)-1]
			}},
			{"Sum", "Cache:", sum, func(f *few) { inRuns(f, 4); f.At[0] = math.MaxInt }},
			{"Sum", "Scales", sum, func(f *few) { inRuns(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.Scales = nil }},
			{"Sum", "FarScale", sum, func(f *few) { inRuns(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.FarScale = nil }},
			{"Sum", "Cache.Scale", sum, func(f *few) { inRuns(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.Scales[0] = 2 * f.N }},
			{"Widen", "from", func(f *few) { o.Vector.Widen(make([]float32, f.N*f.D), &f.K, f.N, f.D) }, func(f *few) { f.K = cut(f.K, I8, f.N, f.D) }},
			{"Widen", "to", func(f *few) { o.Vector.Widen(make([]float32, f.N*f.D-1), &f.K, f.N, f.D) }, func(*few) {}},
			{"Inner", "x", func(f *few) { o.Back.Inner(f.M, f.Q, f.V.Rows, f.D) }, func(f *few) { last(&f.Q.Data, f.R, f.D, f.Q.Stride) }},
			{"Inner", "y", func(f *few) { o.Back.Inner(f.M, f.Q, f.V.Rows, f.D) }, func(f *few) { last(&f.V.Data, f.R, f.D, f.V.Stride) }},
			{"Narrow", "to", func(f *few) { o.Vector.Narrow(make([]uint16, f.D-1), f.L[:f.R], F16) }, func(f *few) { f.R, f.L = f.D, make([]float32, f.D) }},
			{"Narrow", "type 3", func(f *few) { o.Vector.Narrow(make([]uint16, f.R), f.L, I8) }, func(*few) {}},
		} {
			f := randomFew(4, 17, 9, 9)
			f.Q.Data, f.O.Data = f.Q.Data[:3*f.Q.Stride+9], f.O.Data[:3*f.O.Stride+9]
			c.cut(f)
			if said := panicOf(func() { c.run(f) }); !strings.Contains(said, c.operand) || strings.Contains(said, "runtime error") {
				t.Errorf("%s/%s: a bad %s: panic %q", o.ISA, c.name, c.operand, said)
			}
		}
	}
}

// TestShortRotate checks what TestShortOperands checks, for Rotate.
func TestShortRotate(t *testing.T) {
	for _, o := range complete() {
		for _, c := range []struct {
			name        string
			x, cos, sin int
		}{{"x", 33, 17, 17}, {"sin", 34, 17, 16}} {
			run := func() {
				o.Vector.Rotate(make([]float32, c.x), make([]float32, c.cos), make([]float32, c.sin), c.name == "x")
			}
			if said := panicOf(run); !strings.Contains(said, c.name) || strings.Contains(said, "runtime error") {
				t.Errorf("%s: a bad %s: panic %q", o.ISA, c.name, said)
			}
		}
	}
}

// cut returns rows as cells, one element short.
func cut(r Cells, typ Type, n, d int) Cells {
	c := stored(r.Rows, n, d, typ, 1)
	end := (n-1)*c.Stride + d - 1
	c.Half, c.Byte = c.Half[:min(end, len(c.Half))], c.Byte[:min(end, len(c.Byte))]
	return c
}

// TestShortMoves checks what TestShortOperands checks, for Load, Store and Inverse.
func TestShortMoves(t *testing.T) {
	for _, o := range complete() {
		if said := panicOf(func() { o.Vector.Inverse(make([]float32, 3), make([]float32, 4)) }); !strings.Contains(said, "to: 3 elements") {
			t.Errorf("%s/Inverse: one number more than there is room for: panic %q", o.ISA, said)
		}
		for name, cut := range map[string]func(m *Move){
			"Tile":    func(m *Move) { m.Tile = m.Tile[:(m.D-1)*m.Lanes+m.Width-1] },
			"Outside": func(m *Move) { m.Outside.Data = m.Outside.Data[:(m.Rows-1)*m.Outside.Stride+m.D-1] },
			"Scale":   func(m *Move) { m.Scale = m.Scale[:m.Rows-1] },
			"lane":    func(m *Move) { m.Rows = m.Width + 1 },
			"lanes":   func(m *Move) { m.Width = m.Lanes + 1 },
		} {
			for what, move := range map[string]func(*Move){"Load": o.Vector.Load, "Store": func(m *Move) { o.Vector.Store(m) }} {
				if what == "Load" && name == "Scale" {
					continue // Load does not use Scale
				}
				lanes := o.Shape.Lanes
				p := random(o, lanes, lanes, 17, 17)
				m := &Move{Lanes: lanes, Width: lanes, Rows: lanes, D: 17, Tile: p.Qt, Outside: p.K, Scale: p.M}
				cut(m)
				if said := panicOf(func() { move(m) }); !strings.Contains(said, name) || strings.Contains(said, "runtime error") {
					t.Errorf("%s/%s: a bad %s: panic %q", o.ISA, what, name, said)
				}
			}
		}
	}
}

func panicOf(f func()) (said string) {
	defer func() { said = fmt.Sprint(recover()) }()
	f()
	return ""
}

// TestExtremeFactor checks that a factor that float32 cannot hold gives the result of the portable
// loop.
func TestExtremeFactor(t *testing.T) {
	for _, o := range complete() {
		for _, f := range []float64{0, 1e-45, 1e40, -1e39} {
			p := random(o, o.Shape.Lanes, o.Shape.Keys+1, 3, 3)
			p.Factor = f
			want := p.scores()
			want.P = make([]float32, len(p.P))
			score(want)
			o.Panel.Score(p.scores())
			for j := range p.N {
				for l := range p.Width {
					if got, w := p.P[j*p.Lanes+l], want.P[j*p.Lanes+l]; got != w {
						t.Fatalf("%s: factor %v: P[%d][%d] = %v, want %v", o.ISA, f, j, l, got, w)
					}
				}
			}
		}
	}
}

// TestNoLanes checks that loops with no lanes in use touch no memory and finish all rows.
func TestNoLanes(t *testing.T) {
	for _, o := range complete() {
		p := random(o, 0, 2*o.Shape.Keys+1, 5, 5)
		p.Qt, p.P, p.O, p.M, p.L, p.S = nil, nil, nil, nil, nil, nil
		o.Panel.Score(p.scores())
		o.Panel.Mix(p.mix())
		s, f := p.softmax(), p.flash()
		o.Panel.Exp(s)
		o.Panel.Flash(f)
		if s.Done != p.N || f.Done != p.N {
			t.Errorf("%s: Exp does %d and Flash %d of %d", o.ISA, s.Done, f.Done, p.N)
		}
	}
}

// TestExpOfManyRows checks Exp of more rows than one call of assembly computes. It must finish all
// rows, and leave at the group that goes over its limit.
func TestExpOfManyRows(t *testing.T) {
	for _, o := range complete() {
		lanes, keys := o.Shape.Lanes, o.Shape.Keys
		p := random(o, lanes, 2*expAtOnce+keys+1, 0, 0).softmax()
		clear(p.P)
		clear(p.M)
		clear(p.L)
		bad := expAtOnce + keys + 1
		p.P[bad*lanes+3] = 2 * Limit
		for i, want := range []int{expAtOnce + keys, p.N} {
			p.From = p.Done
			if o.Panel.Exp(p); p.Done != want {
				t.Fatalf("%s: call %d: done %d, want %d", o.ISA, i, p.Done, want)
			}
			p.P[bad*lanes+3] = 0
		}
		for l, sum := range p.L {
			if sum != float32(p.N) {
				t.Fatalf("%s: L[%d] = %v, want %d", o.ISA, l, sum, p.N)
			}
		}
	}
}
