// Package flashtest holds what tests of flash and of its two paths share.
package flashtest

import (
	"math"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// Inf is +Inf.
var Inf = float32(math.Inf(1))

// NewArgs returns the operands of a call.
func NewArgs(t testing.TB, p attn.Problem, layout string) *attn.Args {
	t.Helper()
	a, err := cases.NewArgs(p, layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Filled returns the operands of a call, normally distributed.
func Filled(t testing.TB, p attn.Problem, layout string) *attn.Args {
	t.Helper()
	a := NewArgs(t, p, layout)
	if err := cases.Fill("normal", p, a, 1); err != nil {
		t.Fatal(err)
	}
	return a
}

// FillPages copies the keys and values in use of one call to the pages of another.
func FillPages(p *attn.Problem, to, from *attn.Args) {
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

// Same reports whether two numbers have the same bits.
func Same(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }

// SameRows checks that each row of one tensor has the bits of another's.
func SameRows(t testing.TB, what string, got, want *attn.Tensor) {
	t.Helper()
	for b := range got.B {
		for i := range got.S {
			for h := range got.H {
				x, y := got.Read(make([]float32, got.D), b, i, h), want.Read(make([]float32, want.D), b, i, h)
				if !slices.EqualFunc(x, y, Same) {
					t.Fatalf("%s: row %d of head %d is %v, want %v", what, i, h, x, y)
				}
			}
		}
	}
}
