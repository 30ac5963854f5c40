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

// The fields of an assembled set are none of the portable ones.
func TestFieldsAreAssembly(t *testing.T) {
	for _, l := range Levels() {
		if !l.Available {
			t.Logf("SKIPPED: %s: %s", l.ISA, l.Reason)
			continue
		} else if l.ISA == "go" {
			continue
		}
		got := reflect.ValueOf(*l.Ops)
		for i := range got.NumField() {
			f := got.Type().Field(i)
			if f.Type.Kind() != reflect.Func || got.Field(i).IsNil() && strings.HasPrefix(f.Name, "Cut") && l.ISA != "amx" {
				continue
			}
			name := runtime.FuncForPC(got.Field(i).Pointer()).Name() // closures of Portable carry its name, also where it is inlined
			if !strings.Contains(name, "loops).") {
				t.Errorf("%s: %s is %s, want assembly", l.ISA, f.Name, name)
			}
		}
	}
}

// A CPU with AVX-512 runs every set of amd64, and every arm64 CPU has NEON, so that no test of a set is skipped there.
func TestAllSetsOnNewCPU(t *testing.T) {
	if runtime.GOARCH == "amd64" && !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ) {
		t.Skip("SKIPPED: this CPU has no AVX-512")
	}
	for _, s := range sets {
		if s.tiles != nil { // tests of parts say whether it is here
			continue
		}
		if !slices.ContainsFunc(assembled(), func(o *Ops) bool { return o.ISA == s.isa }) {
			t.Errorf("%s does not run here", s.isa)
		}
	}
}

// Each CPU has loops that ask memory its way, and compute 2^x so, and those are among the ones that are tested; Intel's with AVX-512 have rows brought
// together.
func TestSuited(t *testing.T) {
	for _, c := range []struct {
		vendor          cpuid.Vendor
		family          int
		way, streamed   int
		ahead, inStream int
	}{
		{cpuid.Intel, 6, 1, 1, 16 << 10, 16 << 10},
		{cpuid.AMD, 26, 0, 0, 4 << 10, 4 << 10},
		{cpuid.AMD, 25, 1, 0, 8 << 10, 0},
		{cpuid.VendorUnknown, 0, 0, 0, 4 << 10, 4 << 10},
	} {
		cpu := cpuid.CPU
		cpu.VendorID, cpu.Family = c.vendor, c.family
		for _, l := range levels(&cpu) {
			power, powers, ways := 0, len(l.variants), []*Ops(nil)
			if powers > 0 {
				if c.vendor == cpuid.Intel {
					power = powers - 1
				}
				ways = l.variants[power]
			}
			switch {
			case l.Ops == nil || l.ISA == "go":
			case powers != map[string]int{"avx2": 1, "avx512": 2, "amx": 1, "neon": 1}[l.ISA]:
				t.Errorf("%s computes 2^x in %d ways", l.ISA, powers)
			case strings.HasPrefix(l.ISA, "avx") && len(ways) != 2:
				t.Errorf("%s asks in %d ways, want 2", l.ISA, len(ways))
			case len(ways) == 2 && (l.Ops != ways[c.way] || l.Ops.Streamed != ways[c.streamed]):
				t.Errorf("%s of %v, family %d: not 2^x of %d with way %d, in a stream %d", l.ISA, c.vendor, c.family, power, c.way, c.streamed)
			case len(ways) == 2 && (l.Ops.Ahead != c.ahead || l.Ops.Streamed.Ahead != c.inStream):
				t.Errorf("%s of %v, family %d asks %d bytes ahead, in a stream %d", l.ISA, c.vendor, c.family, l.Ops.Ahead, l.Ops.Streamed.Ahead)
			case l.Ops.Gathers != (c.vendor == cpuid.Intel && l.ISA == "avx512"):
				t.Errorf("%s of %v gathers: %v", l.ISA, c.vendor, l.Ops.Gathers)
			}
		}
	}
}

// A set that the system does not allow is not there, and nothing of it is.
func TestNotAllowed(t *testing.T) {
	for i := range needs {
		before := needs[i].allowed
		needs[i].allowed = func() error { return errors.New("not today") }
		for _, l := range Levels() {
			if l.ISA == needs[i].isa && (l.Available || l.Ops != nil || l.variants != nil || cpuid.CPU.Supports(needs[i].features...) && l.Reason != "not today") {
				t.Errorf("%s: available %v, %s, %d variants", l.ISA, l.Available, l.Reason, len(l.variants))
			}
		}
		needs[i].allowed = before
	}
}

// A set is there only with every feature that it needs, and its loops are of sets that need no other: what is not detected is not called.
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
		if len(loops) < 15 {
			t.Errorf("%s: only %d loops", l.isa, len(loops))
		}
		for _, loop := range loops {
			of := isaOf.FindString(loop)
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

var isaOf = regexp.MustCompile(`^(avx2|avx512|amx|neon)`)

// functions are the names of those that a struct holds, in slices and in structs too, or behind a pointer.
func functions(v reflect.Value) (names []string) {
	switch v.Kind() {
	case reflect.Func:
		name := runtime.FuncForPC(v.Pointer()).Name()
		return []string{name[strings.LastIndex(name, ".")+1:]}
	case reflect.Struct:
		for i := range v.NumField() {
			names = append(names, functions(v.Field(i))...)
		}
	case reflect.Slice:
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

// A panel whose slice is one element short is refused by name before assembly touches anything, and so are lengths that make no sense.
func TestShortOperands(t *testing.T) {
	type operand struct {
		name string
		cut  func(p *Panel)
	}
	last := func(s *[]float32, rows, cols, stride int) { *s = (*s)[:(rows-1)*stride+cols-1] }
	qt := operand{"Qt", func(p *Panel) { last(&p.Qt, p.D, p.Width, p.Lanes) }}
	k := operand{"K", func(p *Panel) { last(&p.K.Data, p.N, p.D, p.K.Stride) }}
	farK := operand{"K", func(p *Panel) { p.K.Stride = 1 << 62 }}
	backK := operand{"K", func(p *Panel) { p.K.Stride = -1 }}
	weights := operand{"P", func(p *Panel) { last(&p.P, p.N, p.Width, p.Lanes) }}
	v := operand{"V", func(p *Panel) { last(&p.V.Data, p.N, p.C, p.V.Stride) }}
	out := operand{"O", func(p *Panel) { last(&p.O, p.C, p.Width, p.Lanes) }}
	incoming := operand{"Dot", func(p *Panel) { last(&p.Dot, p.C, p.Width, p.Lanes) }}
	sub := operand{"Sub", func(p *Panel) { p.Sub = p.Sub[:p.Width-1] }}
	y := operand{"Y", func(p *Panel) { last(&p.Y.Data, p.Width, p.C, p.Y.Stride) }}
	x := operand{"X", func(p *Panel) { last(&p.X, p.N, p.C, p.XStr) }}
	scale := operand{"Scale", func(p *Panel) { p.Scale = p.Scale[:p.N-1] }}
	width := operand{"lanes", func(p *Panel) { p.Width-- }}
	wide := operand{"lanes", func(p *Panel) { p.Width = 2 * p.Lanes }}
	rows := operand{"lanes", func(p *Panel) { p.Lanes-- }}
	refs := operand{"M", func(p *Panel) { p.M = p.M[:p.Width-1] }}
	sums := operand{"L", func(p *Panel) { p.L = p.L[:p.Width-1] }}
	products := operand{"S", func(p *Panel) { p.S = p.S[:p.Width-1] }}
	from := operand{"From", func(p *Panel) { p.From = 1 }}
	far := operand{"From", func(p *Panel) { p.From = 1 << 20 }}
	keys := operand{"P", func(p *Panel) { p.N = -1 }}
	mask := operand{"Edit.Lo", func(p *Panel) {
		p.Plain = 0
		p.Edit.Lo = make([]int32, p.Width)
		p.Edit.Hi = make([]int32, p.Width-1)
	}}
	stairs := func(name string, change func(since, until []int)) operand {
		return operand{name, func(p *Panel) {
			p.Since, p.Until = make([]int, p.Lanes), make([]int, p.Lanes)
			for i := range p.Until {
				p.Until[i] = 3
			}
			change(p.Since, p.Until)
		}}
	}
	since := operand{"Since", func(p *Panel) { p.Until = make([]int, p.Lanes) }}
	until := operand{"Until", func(p *Panel) { p.Since, p.Until = make([]int, p.Lanes), make([]int, 1) }}
	late := stairs("Since", func(since, _ []int) { since[0] = 1 })
	never := stairs("Since", func(since, _ []int) { since[2] = 4 })
	past := stairs("Until", func(_, until []int) { until[2] = 1 << 20 })
	down := stairs("Until", func(_, until []int) { until[1] = 2 })
	up := stairs("Since", func(since, _ []int) { since[1] = 1 })
	keep := operand{"Keep", func(p *Panel) { p.Keep = p.Keep[:p.Width-1] }}
	done := operand{"Done", func(p *Panel) { p.Done = 1 << 20 }}
	bias := operand{"Edit.Add", func(p *Panel) { last(&p.Edit.Add, p.N, p.Width, p.Lanes) }}
	high := operand{"Edit.SlopeHi", func(p *Panel) { p.Edit.SlopeHi = p.Edit.SlopeHi[:p.Width-1] }}
	low := operand{"Edit.SlopeLo", func(p *Panel) { p.Edit.SlopeLo = p.Edit.SlopeLo[:p.Width-1] }}
	pos := operand{"Edit.Pos", func(p *Panel) { p.Edit.Pos = p.Edit.Pos[:p.Width-1] }}
	bits := operand{"Edit.Bits", func(p *Panel) { p.Edit.Bits = p.Edit.Bits[:len(p.Edit.Bits)-1] }}
	for _, o := range assembled() {
		for _, c := range []struct {
			name     string
			run      func(*Panel)
			operands []operand
		}{
			{"Score", o.Score, []operand{qt, k, farK, backK, weights, width, wide, rows}},
			{"Flash", o.Flash, []operand{qt, k, farK, backK, weights, width, wide, rows, mask}},
			{"Top", o.Top, []operand{weights, refs, width, wide, rows}},
			{"Raise", o.Raise, []operand{weights, refs, sums, products, keep, width, done}},
			{"Exp", o.Exp, []operand{weights, refs, sums, products, width, from, far}},
			{"Mix", o.Mix, []operand{v, out, weights, keep, width, wide, rows, keys, since, until, late, never, past, down, up}},
			{"Cap", o.Cap, []operand{weights, width, wide, rows, keys}},
			{"Add", o.Add, []operand{weights, bias, width, wide, rows, keys}},
			{"Slope", o.Slope, []operand{weights, high, low, pos, width, wide, rows, keys}},
			{"Hide", o.Hide, []operand{weights, bits, width, wide, rows, keys}},
			{"DScore", o.DScore, []operand{v, incoming, sub, weights, width, wide, rows}},
			{"Outer", o.Outer, []operand{y, x, weights, keys, scale}},
			{"OuterT", turned(o.OuterT), []operand{{"X", out.cut}, {"Y", v.cut}, weights, keys}},
		} {
			for _, bad := range c.operands {
				p := random(o, o.Lanes, 2*o.Keys+1, 9, 9)
				bad.cut(p)
				if said := panicOf(func() { c.run(p) }); !strings.Contains(said, bad.name) {
					t.Errorf("%s/%s: a bad %s: panic %q", o.ISA, c.name, bad.name, said)
				}
			}
		}
	}
}

// Vectors that leave Flash in steps that it does not have are refused before assembly reads a step.
func TestBadSteps(t *testing.T) {
	for _, o := range assembled() {
		for _, bad := range []struct {
			name   string
			change func(p *Panel)
		}{
			{"Until", func(p *Panel) { p.Until = p.Until[1:] }},
			{"Until", func(p *Panel) { p.Until = []int{} }},
			{"Until", func(p *Panel) { p.Until[0] = 0 }},
			{"Until", func(p *Panel) { p.Until[0]-- }},
			{"Until", func(p *Panel) { p.Until[0] = -o.Keys }},
			{"Until", func(p *Panel) { p.From = o.Keys }},
			{"Until", func(p *Panel) { p.Until[len(p.Until)-1] += o.Keys }},
			{"Until", func(p *Panel) { p.Until[len(p.Until)-1] -= 2 * o.Keys }},
			{"Until", func(p *Panel) { copy(p.Until[o.Unit()/o.Vec:], p.Until[:o.Unit()/o.Vec]) }},
			{"Until", func(p *Panel) { p.N++ }},
			{"Factor", func(p *Panel) { p.Factor = 1e-40 }},
			{"Factor", func(p *Panel) { p.Factor = math.NaN() }},
		} {
			p := random(o, o.Lanes, o.Lanes/o.Unit()*o.Keys+1, 5, 5)
			p.N--
			for lane := 0; lane < o.Lanes; lane += o.Vec {
				p.Until = append(p.Until, (1+lane/o.Unit())*o.Keys)
			}
			steps := fmt.Sprint(p.Until)
			bad.change(p)
			if said := panicOf(func() { o.Flash(p) }); !strings.Contains(said, bad.name) {
				t.Errorf("%s: %s made %v to %d of %d: panic %q", o.ISA, steps, p.Until, p.From, p.N, said)
			}
		}
	}
}

// inRuns says of keys where they lie that they lie in runs.
func inRuns(f *Few, run int) {
	f.Run = run
	for j := 0; j < f.N; j += run {
		f.At, f.Ahead, f.Scales = append(f.At, j*f.K.Stride), append(f.Ahead, f.K.Address(j*f.K.Stride)), append(f.Scales, j)
	}
	f.Far, f.FarScale = f.Ahead, f.Ahead
}

// inTurn makes the queries those of two heads, with the same keys.
func inTurn(f *Few, run int) {
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

// The same for the loops on rows.
func TestShortFew(t *testing.T) {
	for _, o := range assembled() {
		last := func(s *[]float32, rows, cols, stride int) { *s = (*s)[:(rows-1)*stride+cols-1] }
		for _, c := range []struct {
			name, operand string
			run           func(*Few)
			cut           func(f *Few)
		}{
			{"Dot", "Q", o.Dot, func(f *Few) { last(&f.Q.Data, f.R, f.D, f.Q.Stride) }},
			{"Dot", "K", o.Dot, func(f *Few) { last(&f.K.Data, f.N, f.D, f.K.Stride) }},
			{"Dot", "P", o.Dot, func(f *Few) { last(&f.P, f.R, f.N, f.Stride) }},
			{"Weigh", "P", o.Weigh, func(f *Few) { last(&f.P, f.R, (f.N+o.Vec-1)/o.Vec*o.Vec, f.Stride) }},
			{"Weigh", "M", o.Weigh, func(f *Few) { f.M = f.M[:f.R-1] }},
			{"Weigh", "L", o.Weigh, func(f *Few) { f.L = f.L[:f.R-1] }},
			{"Weigh", "S", o.Weigh, func(f *Few) { f.S = f.S[:f.R-1] }},
			{"Weigh", "From", o.Weigh, func(f *Few) { f.From = f.R + 1 }},
			{"Sum", "P", o.Sum, func(f *Few) { last(&f.P, f.R, f.N, f.Stride) }},
			{"Sum", "V", o.Sum, func(f *Few) { last(&f.V.Data, f.N, f.C, f.V.Stride) }},
			{"Sum", "O", o.Sum, func(f *Few) { last(&f.O.Data, f.R, f.C, f.O.Stride) }},
			{"Sum", "V", o.Sum, func(f *Few) { f.V.Stride = -1 }},
			{"Dot", "K", o.Dot, func(f *Few) { f.K.Stride = 1 << 62 }},
			{"Dot", "K", o.Dot, func(f *Few) { f.K = cut(f.K, F16, f.N, f.D) }},
			{"Dot", "K", o.Dot, func(f *Few) { f.K = cut(f.K, BF16, f.N, f.D) }},
			{"Dot", "K", o.Dot, func(f *Few) { f.K = cut(f.K, I8, f.N, f.D) }},
			{"Dot", "K.Scale", o.Dot, func(f *Few) { f.K = stored(f.K.Rows, f.N, f.D, I8, 1); f.K.Scale = f.K.Scale[:f.N-1] }},
			{"Dot", "K.Scale", o.Dot, func(f *Few) { f.K = stored(f.K.Rows, f.N, f.D, I8, 1); f.K.ScaleStride = -1 }},
			{"Dot", "K: type 4", o.Dot, func(f *Few) { f.K.Type = I8 + 1 }},
			{"Sum", "V", o.Sum, func(f *Few) { f.V = cut(f.V, F16, f.N, f.C) }},
			{"Sum", "V.Scale", o.Sum, func(f *Few) { f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.V.Scale = nil }},
			{"Dot", "K", o.Dot, func(f *Few) { inRuns(f, 4); f.At[0] = 13*f.K.Stride + 9 }},
			{"Dot", "At", o.Dot, func(f *Few) { inRuns(f, 4); f.At[0] = -1 }},
			{"Dot", "At", o.Dot, func(f *Few) { inRuns(f, 4); f.At = f.At[:4] }},
			{"Dot", "Ahead", o.Dot, func(f *Few) { inRuns(f, 4); f.Ahead = nil }},
			{"Dot", "Far", o.Dot, func(f *Few) { inRuns(f, 4); f.Far = nil }},
			{"Dot", "Run", o.Dot, func(f *Few) { inRuns(f, 4); f.Run = -4 }},
			{"Dot", "Heads", o.Dot, func(f *Few) { f.Heads = 2 }},
			{"Dot", "Heads", o.Dot, func(f *Few) { f.Heads = -1 }},
			{"Dot", "P", o.Dot, func(f *Few) { inTurn(f, 4); f.P = f.P[:(2*f.R-1)*f.Stride] }},
			{"Dot", "Q", o.Dot, func(f *Few) { inTurn(f, 4); f.HeadQ++ }},
			{"Dot", "Q", o.Dot, func(f *Few) { inTurn(f, 4); f.HeadQ = math.MinInt }},
			{"Dot", "At", o.Dot, func(f *Few) { inTurn(f, 4); f.At = f.At[:len(f.At)-1] }},
			{"Dot", "Ahead", o.Dot, func(f *Few) { inTurn(f, 4); f.Ahead = f.Ahead[:len(f.At)-1] }},
			{"Dot", "K", o.Dot, func(f *Few) { inTurn(f, 4); f.At[len(f.At)-1] += 9 * f.K.Stride }},
			{"Sum", "O", o.Sum, func(f *Few) { inTurn(f, 4); f.HeadO++ }},
			{"Sum", "Scales", o.Sum, func(f *Few) { inTurn(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.Scales = f.Scales[:len(f.At)-1] }},
			{"Sum", "V", o.Sum, func(f *Few) { inRuns(f, 4); f.At[0] = math.MaxInt }},
			{"Sum", "Scales", o.Sum, func(f *Few) { inRuns(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.Scales = nil }},
			{"Sum", "FarScale", o.Sum, func(f *Few) { inRuns(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.FarScale = nil }},
			{"Sum", "V.Scale", o.Sum, func(f *Few) { inRuns(f, 4); f.V = stored(f.V.Rows, f.N, f.C, I8, 2); f.Scales[0] = 2 * f.N }},
			{"Widen", "from", func(f *Few) { o.Widen(make([]float32, f.N*f.D), &f.K, f.N, f.D) }, func(f *Few) { f.K = cut(f.K, I8, f.N, f.D) }},
			{"Widen", "to", func(f *Few) { o.Widen(make([]float32, f.N*f.D-1), &f.K, f.N, f.D) }, func(*Few) {}},
			{"Inner", "x", func(f *Few) { o.Inner(f.M, f.Q, f.V.Rows, f.D) }, func(f *Few) { last(&f.Q.Data, f.R, f.D, f.Q.Stride) }},
			{"Inner", "y", func(f *Few) { o.Inner(f.M, f.Q, f.V.Rows, f.D) }, func(f *Few) { last(&f.V.Data, f.R, f.D, f.V.Stride) }},
			{"Narrow", "to", func(f *Few) { o.Narrow(make([]uint16, f.D-1), f.L[:f.R], F16) }, func(f *Few) { f.R, f.L = f.D, make([]float32, f.D) }},
			{"Narrow", "type 3", func(f *Few) { o.Narrow(make([]uint16, f.R), f.L, I8) }, func(*Few) {}},
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

func TestShortRotate(t *testing.T) {
	for _, o := range assembled() {
		for _, c := range []struct {
			name        string
			x, cos, sin int
		}{{"x", 33, 17, 17}, {"sin", 34, 17, 16}} {
			run := func() { o.Rotate(make([]float32, c.x), make([]float32, c.cos), make([]float32, c.sin), c.name == "x") }
			if said := panicOf(run); !strings.Contains(said, c.name) || strings.Contains(said, "runtime error") {
				t.Errorf("%s: a bad %s: panic %q", o.ISA, c.name, said)
			}
		}
	}
}

// cut are rows as cells, one element short.
func cut(r Cells, typ Type, n, d int) Cells {
	c := stored(r.Rows, n, d, typ, 1)
	end := (n-1)*c.Stride + d - 1
	c.Half, c.Byte = c.Half[:min(end, len(c.Half))], c.Byte[:min(end, len(c.Byte))]
	return c
}

func TestShortMoves(t *testing.T) {
	for _, o := range assembled() {
		if said := panicOf(func() { o.Inverse(make([]float32, 3), make([]float32, 4)) }); !strings.Contains(said, "to: 3 elements") {
			t.Errorf("%s/Inverse: one number more than there is room for: panic %q", o.ISA, said)
		}
		for name, cut := range map[string]func(m *Move){
			"Tile":    func(m *Move) { m.Tile = m.Tile[:(m.D-1)*m.Lanes+m.Width-1] },
			"Outside": func(m *Move) { m.Outside.Data = m.Outside.Data[:(m.Rows-1)*m.Outside.Stride+m.D-1] },
			"Scale":   func(m *Move) { m.Scale = m.Scale[:m.Rows-1] },
			"lane":    func(m *Move) { m.Rows = m.Width + 1 },
			"lanes":   func(m *Move) { m.Width = m.Lanes + 1 },
		} {
			for what, move := range map[string]func(*Move){"Load": o.Load, "Store": func(m *Move) { o.Store(m) }} {
				if what == "Load" && name == "Scale" {
					continue // which it does not use
				}
				p := random(o, o.Lanes, o.Lanes, 17, 17)
				m := &Move{Lanes: o.Lanes, Width: o.Lanes, Rows: o.Lanes, D: 17, Tile: p.Qt, Outside: p.K, Scale: p.M}
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

// A factor that float32 cannot hold gives what the portable loop gives.
func TestExtremeFactor(t *testing.T) {
	for _, o := range assembled() {
		for _, f := range []float64{0, 1e-45, 1e40, -1e39} {
			p := random(o, o.Lanes, o.Keys+1, 3, 3)
			p.Factor = f
			want := *p
			want.P = make([]float32, len(p.P))
			score(&want)
			o.Score(p)
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

// With no lanes in use there are none to touch.
func TestNoLanes(t *testing.T) {
	for _, o := range assembled() {
		p := random(o, 0, 2*o.Keys+1, 5, 5)
		p.Qt, p.P, p.O, p.M, p.L, p.S = nil, nil, nil, nil, nil, nil
		o.Score(p)
		o.Mix(p)
		for _, step := range []func(*Panel){o.Exp, o.Flash} {
			p.Done = 0
			if step(p); p.Done != p.N {
				t.Errorf("%s: done %d of %d", o.ISA, p.Done, p.N)
			}
		}
	}
}

// More rows than Exp does in one call of assembly: all are done, and it leaves in the group that goes over.
func TestExpOfManyRows(t *testing.T) {
	for _, o := range assembled() {
		p := random(o, o.Lanes, 2*expAtOnce+o.Keys+1, 0, 0)
		clear(p.P)
		clear(p.M)
		clear(p.L)
		bad := expAtOnce + o.Keys + 1
		p.P[bad*o.Lanes+3] = 2 * Limit
		for i, want := range []int{expAtOnce + o.Keys, p.N} {
			p.From = p.Done
			if o.Exp(p); p.Done != want {
				t.Fatalf("%s: call %d: done %d, want %d", o.ISA, i, p.Done, want)
			}
			p.P[bad*o.Lanes+3] = 0
		}
		for l, sum := range p.L {
			if sum != float32(p.N) {
				t.Fatalf("%s: L[%d] = %v, want %d", o.ISA, l, sum, p.N)
			}
		}
	}
}
