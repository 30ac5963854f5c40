package asm

import (
	"fmt"
	"math"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// TestSuited checks that each CPU gets its own row of the table.
func TestSuited(t *testing.T) {
	l1, l2, _ := Caches()
	temporal := func(ahead int) Reading { return Reading{Hint: Temporal, Ahead: ahead, Room: l2 / 4} }
	nonTemporal := func(ahead int) Reading { return Reading{Hint: NonTemporal, Ahead: ahead, Room: l1 * 2 / 3} }
	intel := Speed{Reading: temporal(16 * kib), Stream: temporal(16 * kib)}
	copier := intel
	copier.CopiesRows = true
	others := Speed{Reading: nonTemporal(4 * kib), Stream: nonTemporal(4 * kib)}
	for _, c := range []struct {
		name   string
		vendor cpuid.Vendor
		family int
		isa    string
		speed  Speed
		exp    Exp
	}{
		{"Intel", cpuid.Intel, 6, "avx2", intel, Reduced},
		{"Intel", cpuid.Intel, 6, "avx512", copier, Reduced},
		{"Intel", cpuid.Intel, 6, "amx", intel, Reduced},
		{"AMD", cpuid.AMD, 25, "avx512", Speed{Reading: temporal(8 * kib), Stream: nonTemporal(0)}, Table},
		{"AMD", cpuid.AMD, 23, "avx2", Speed{Reading: temporal(8 * kib), Stream: nonTemporal(0)}, Table},
		{"AMD", cpuid.AMD, 26, "avx512", others, Table},
		{"unknown", cpuid.VendorUnknown, 0, "avx2", others, Table},
		{"unknown", cpuid.VendorUnknown, 0, "neon", others, Table},
		{"ARM", cpuid.ARM, 0, "neon", others, Table},
	} {
		cpu := cpuid.CPU
		cpu.VendorID, cpu.Family = c.vendor, c.family
		want := Tuning{c.speed, Path{Exp: c.exp, Prescaled: true, PackFrom: packFrom}}
		if got := tune(c.isa, &cpu); got != want {
			t.Errorf("%s on %s, family %d: %s, want %s", c.isa, c.name, c.family, told(got), told(want))
		}
	}
}

// told returns a tuning as text. Only its Path has a String method.
func told(t Tuning) string { return fmt.Sprintf("%+v, %s", t.Speed, t.Path) }

// TestLevelsAreTuned checks that a set uses the loops that its tuning names, and that its tuning
// names no loop that the set lacks.
func TestLevelsAreTuned(t *testing.T) {
	ways := map[string][]Exp{"avx2": {Table, Table, Table}, "avx512": {Table, Reduced, Table}, "amx": {Reduced, Reduced, Reduced}, "neon": {Series, Series, Series}}
	for _, vendor := range []cpuid.Vendor{cpuid.Intel, cpuid.AMD, cpuid.VendorUnknown} {
		for _, family := range []int{6, 25, 26} {
			cpu := cpuid.CPU
			cpu.VendorID, cpu.Family = vendor, family
			for _, l := range levels(&cpu) {
				if l.set == nil || ways[l.ISA] == nil {
					continue
				}
				want := tune(l.ISA, &cpu)
				want.Exp = ways[l.ISA][want.Exp]
				if l.ISA != "amx" {
					want.PackFrom = 0
				}
				if l.ISA == "neon" {
					want.Hint, want.Stream.Hint = NonTemporal, NonTemporal
				}
				if l.Ops.Tuning != want {
					t.Errorf("%s of %v, family %d: %s, want %s", l.ISA, vendor, family, told(l.Ops.Tuning), told(want))
				}
				if got := l.With(l.Ops.Tuning); got.Tuning != l.Ops.Tuning || got.ISA != l.ISA {
					t.Errorf("%s of %v, family %d: another %s with its own tuning: %s, want %s", l.ISA, vendor, family, got.ISA, told(got.Tuning), told(l.Ops.Tuning))
				}
				streamed := l.Ops.Streamed
				if want.Reading = want.Stream; streamed.Tuning != want || streamed.Streamed != streamed {
					t.Errorf("%s of %v, family %d, in a stream: %s, want %s", l.ISA, vendor, family, told(streamed.Tuning), told(want))
				}
				if (streamed == l.Ops) != (l.Ops.Tuning.Reading == l.Ops.Tuning.Stream) {
					t.Errorf("%s of %v, family %d: reads streams by loops of their own: %v", l.ISA, vendor, family, streamed != l.Ops)
				}
				for _, exp := range []Exp{Table, Reduced, Series} {
					tuning := l.Ops.Tuning
					tuning.Exp = exp
					if got := l.With(tuning).Tuning.Exp; got != ways[l.ISA][exp] {
						t.Errorf("%s: asked for 2^x by way %d it takes way %d, want %d", l.ISA, exp, got, ways[l.ISA][exp])
					}
				}
			}
		}
	}
}

// TestPortableHasOneTuning checks that no tuning changes the portable loops.
func TestPortableHasOneTuning(t *testing.T) {
	l := Levels()[0]
	if got := l.With(Tuning{Path: Path{Exp: Series, Prescaled: true}}); got != l.Ops || got.Tuning != (Tuning{}) {
		t.Errorf("portable loops with another tuning: %s", told(got.Tuning))
	}
}

// TestSpeedKeepsBits checks that the Speed of any CPU's tuning changes no bit, whatever the Path,
// also for rows that come in a stream.
func TestSpeedKeepsBits(t *testing.T) {
	compared := 0
	for _, l := range Levels() {
		if l.set == nil {
			continue
		}
		for _, exp := range []Exp{Table, Reduced, Series} {
			for _, n := range []int{1, 29, 300} {
				for _, r := range []int{1, 2, 9} {
					for _, typ := range []Type{F32, F16, BF16, I8} {
						const d = 130
						first := ""
						var want [][]float32
						for i := range tunings {
							whole := l.With(Tuning{tunings[i].tuning(l.ISA).Speed, Path{Exp: exp}})
							for _, o := range []*Ops{whole, whole.Streamed} {
								got := decoded(o, r, n, d, typ)
								if want == nil {
									first, want = tunings[i].name, got
									continue
								}
								for k, name := range []string{"Dot", "Weigh", "L", "S", "Sum", "Read"} {
									compared++
									for at, x := range got[k] {
										if w := want[k][at]; math.Float32bits(x) != math.Float32bits(w) {
											t.Fatalf("%s, %v, type %d, %d queries, %d keys: %s: element %d is %v for %s, %v for %s",
												l.ISA, o.Tuning.Path, typ, r, n, name, at, x, tunings[i].name, w, first)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if compared == 0 {
		t.Skip("SKIPPED: this build, or machine, has no loops in assembly")
	}
}

// decoded returns the results of the loops that a Reading tunes, on random rows.
func decoded(o *Ops, r, n, d int, typ Type) [][]float32 {
	f := randomFew(r, n, d, d)
	f.K, f.V = stored(f.K.Rows, n, d, typ, 1), stored(f.V.Rows, n, d, typ, 2)
	all := [][]float32{}
	keep := func(x []float32) { all = append(all, append([]float32(nil), x...)) }
	used := func() (x []float32) {
		for i := range f.R {
			x = append(x, f.P[i*f.Stride:][:n]...)
		}
		return x
	}
	o.Decode.Dot(f.dot())
	keep(used())
	w := f.weigh()
	w.Prefetch = Prefetch{4096, 64} // not mapped
	o.Decode.Weigh(w)
	keep(used())
	keep(f.L)
	keep(f.S)
	o.Decode.Sum(f.sum())
	keep(f.O.Data)
	return append(all, []float32{o.Probe.Read(numbers(1e-2))})
}

// TestPathNames checks that the name of a path shows each of its fields.
func TestPathNames(t *testing.T) {
	for want, p := range map[string]Path{
		"exp=table":                     {Exp: Table},
		"exp=reduced":                   {Exp: Reduced},
		"exp=series,prescaled":          {Exp: Series, Prescaled: true},
		"exp=reduced,prescaled":         {Exp: Reduced, Prescaled: true},
		"exp=reduced,prescaled,pack=96": {Exp: Reduced, Prescaled: true, PackFrom: 96},
	} {
		if got := p.String(); got != want {
			t.Errorf("%d, %v is called %s, want %s", p.Exp, p.Prescaled, got, want)
		}
	}
}
