package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A fence is memory between two pages that nobody may touch.
type fence struct{ mem []byte }

func newFence(t *testing.T, floats int) *fence {
	page := unix.Getpagesize()
	n := (4*floats + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, n+2*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Mprotect(mem[page:page+n], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	return &fence{mem[page:][:n:n]}
}

// put copies s to one end of the fence: its first element, or else its last, has a forbidden neighbour.
func (f *fence) put(s []float32, first bool) []float32 {
	if len(s) == 0 {
		return nil
	}
	at := len(f.mem)/4 - len(s)
	if first {
		at = 0
	}
	to := unsafe.Slice((*float32)(unsafe.Pointer(&f.mem[0])), len(f.mem)/4)[at:][:len(s):len(s)]
	copy(to, s)
	return to
}

// fences holds every operand of a panel between fences, cut to what the call addresses.
type fences map[string]*fence

func (fs fences) put(t *testing.T, p *Panel, first bool) *Panel {
	at := func(name string, s []float32, rows, cols, stride int) []float32 {
		n := 0
		if rows > 0 && cols > 0 {
			n = (rows-1)*stride + cols
		}
		if fs[name] == nil {
			fs[name] = newFence(t, 1<<15)
		}
		return fs[name].put(s[:n], first)
	}
	q := *p
	q.Qt, q.P, q.O = at("Qt", p.Qt, p.D, p.Width, p.Lanes), at("P", p.P, p.N, p.Width, p.Lanes), at("O", p.O, p.C, p.Width, p.Lanes)
	q.K.Data, q.V.Data = at("K", p.K.Data, p.N, p.D, p.K.Stride), at("V", p.V.Data, p.N, p.C, p.V.Stride)
	q.M, q.L = at("M", p.M, 1, p.Width, 0), at("L", p.L, 1, p.Width, 0)
	if p.S != nil {
		q.S = at("S", p.S, 1, p.Width, 0)
	}
	return &q
}

// TestAgainstPortable runs every loop of every set with its operands between pages that nobody may touch, and compares it with its
// portable twin: the same numbers up to the rounding of sums, and infinities and NaN in the same places.
func TestAgainstPortable(t *testing.T) {
	for _, o := range assembled() {
		twin := Portable(o.Lanes, o.Vec, o.Keys, o.Cols, o.Rank)
		ops := []struct {
			name     string
			run, ref func(*Panel)
			result   func(*Panel) []float32
		}{
			{"Score", o.Score, twin.Score, func(p *Panel) []float32 { return p.P }},
			{"Mix", o.Mix, twin.Mix, func(p *Panel) []float32 { return p.O }},
		}
		for _, op := range ops {
			t.Run(o.ISA+"/"+op.name, func(t *testing.T) {
				fs := fences{}
				for _, special := range []bool{false, true} {
					grid(o, func(width, n, d int) {
						p := random(o, width, n, d, d)
						if special {
							poison(p)
						}
						want := *p
						want.P, want.O = slices.Clone(p.P), slices.Clone(p.O)
						op.ref(&want)
						for _, first := range []bool{true, false} {
							got := fs.put(t, p, first)
							op.run(got)
							compare(t, fmt.Sprintf("width %d, %d keys, %d columns", width, n, d), op.result(got), op.result(&want), width, o.Lanes, float64(n+d))
						}
					})
				}
			})
		}
	}
}

// grid visits all widths with keys of 0 to 4 groups and one more, and 0 to 70 columns and 128: each number of keys with some numbers of
// columns, and the other way round.
func grid(o *Ops, do func(width, n, d int)) {
	for width := o.Vec; width <= o.Lanes; width += o.Vec {
		for n := range 4*o.Keys + 2 {
			for _, d := range []int{0, 1, 7, 64} {
				do(width, n, d)
			}
		}
		for d := range 71 {
			do(width, 2*o.Keys+1, d)
		}
		do(width, 3*o.Keys, 128)
	}
}

// poison puts special values here and there into the operands of a panel, in lanes in use and in rows.
func poison(p *Panel) {
	rng := rand.New(rand.NewPCG(uint64(p.N), uint64(p.D)))
	inf := float32(math.Inf(1))
	for _, s := range [][]float32{p.Qt, p.P, p.O, p.K.Data, p.V.Data} {
		for range len(s) / 40 {
			s[rng.IntN(len(s))] = []float32{inf, -inf, nan, 0x1p-140, -0x1p-149, float32(math.Copysign(0, -1))}[rng.IntN(6)]
		}
	}
}

// compare holds got to want: sums of numbers from a normal distribution may differ by a few roundings.
func compare(t *testing.T, what string, got, want []float32, width, lanes int, terms float64) {
	t.Helper()
	for i, g := range got {
		w := want[i]
		if i%lanes >= width {
			continue
		}
		switch tol := 4e-7 * (terms + 8) * max(1, math.Abs(float64(w))*0x1p-4); {
		case math.IsNaN(float64(w)) && math.IsNaN(float64(g)), g == w:
		case !(math.Abs(float64(g)-float64(w)) <= tol):
			t.Fatalf("%s: row %d, lane %d is %v, want %v", what, i/lanes, i%lanes, g, w)
		}
	}
}
