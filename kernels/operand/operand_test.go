package operand_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/kernels/asm/asmtest"
	"attnlab/kernels/operand"
)

// layouts returns tensors of 2 batches, 5 rows and 3 heads of 4 numbers, in each layout. Each
// number encodes its indices.
func layouts(typ attn.DType) map[string]attn.Tensor {
	all := map[string]attn.Tensor{
		"bhsd": attn.NewTyped(typ, attn.BHSD, 2, 5, 3, 4),
		"bshd": attn.NewTyped(typ, attn.BSHD, 2, 5, 3, 4),
	}
	if typ == attn.F32 {
		_, k, v := attn.Packed(make([]float32, 2*5*3*(4+4+4)), 2, 5, 3, 3, 4, 4)
		all["packed K"], all["packed V"] = k, v
	}
	for _, t := range all {
		for b := range t.B {
			for s := range t.S {
				for h := range t.H {
					row := make([]float32, t.D)
					for c := range row {
						row[c] = place(b, s, h, c)
					}
					t.Write(row, b, s, h)
				}
			}
		}
	}
	return all
}

// place returns the number at an index. All types hold it exactly, in rows whose largest number is
// 127 times a power of two.
func place(b, s, h, c int) float32 {
	if c == 3 {
		return 127
	}
	return float32(b*60+s*12+h*4+c) - 60
}

// TestRows checks that row j is the tensor's row s+j, in each layout.
func TestRows(t *testing.T) {
	for name, x := range layouts(attn.F32) {
		for s := range x.S {
			rows := operand.Rows(&x, 1, s, 2)
			for j := range x.S - s {
				for c, got := range rows.Row(j, x.D) {
					if want := place(1, s+j, 2, c); got != want {
						t.Errorf("%s: row %d of those from %d has %v in column %d, want %v", name, j, s, got, c, want)
					}
				}
			}
		}
	}
	if rows := operand.Rows(&attn.Tensor{B: 2, S: 5, H: 3, SB: 20, SS: 4}, 1, 4, 2); rows.Data != nil {
		t.Errorf("a tensor without columns has rows %v, want none", rows)
	}
}

// TestCells checks, through each set's Widen, that row j is the tensor's row s+j in each layout and
// type.
func TestCells(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for _, typ := range []attn.DType{attn.F32, attn.F16, attn.BF16, attn.I8} {
			for name, x := range layouts(typ) {
				for s := range x.S {
					cells, n := operand.Cells(&x, 1, s, 2), x.S-s
					got := make([]float32, n*x.D)
					l.Ops.Vector.Widen(got, &cells, n, x.D)
					for i, got := range got {
						if want := place(1, s+i/x.D, 2, i%x.D); got != want {
							t.Errorf("%s, %v, %s: row %d of those from %d has %v in column %d, want %v", l.ISA, typ, name, i/x.D, s, got, i%x.D, want)
						}
					}
				}
			}
		}
	}
	if cells := operand.Cells(&attn.Tensor{Type: attn.F16, B: 2, S: 5, H: 3, SB: 20, SS: 4}, 1, 4, 2); cells.Half != nil {
		t.Errorf("a tensor without columns has cells %v, want none", cells)
	}
}

// TestCopy checks copies of any keys of a call, in one page or in several, against the rows that
// the page table names.
func TestCopy(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for _, page := range []int{0, 8, 16} {
			for _, typ := range []attn.DType{attn.F32, attn.F16, attn.BF16, attn.I8} {
				t.Run(fmt.Sprintf("%s, pages of %d, %v", l.ISA, page, typ), func(t *testing.T) {
					p := attn.Problem{Batch: 2, SeqQ: 1, SeqKV: 37, HeadsQ: 4, HeadsKV: 2, Dim: 6, DimV: 3, KV: typ, Page: page, Lengths: page != 0}
					if err := p.Validate(); err != nil {
						t.Fatal(err)
					}
					a, err := cases.NewArgs(p, "bshd", nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := cases.Fill("normal", p, a, 1); err != nil {
						t.Fatal(err)
					}
					if page != 0 { // neighbours in the cache are not neighbours in the pool
						slices.Reverse(a.Pages)
					}
					copier := operand.NewCopier(&p, l.Ops)
					for _, x := range [...]*attn.Tensor{&a.K, &a.V} {
						for _, span := range [][2]int{{0, 37}, {0, 8}, {3, 1}, {7, 2}, {5, 20}, {16, 16}, {36, 1}, {9, 0}} {
							key, n := span[0], span[1]
							got := make([]float32, n*x.D+1)
							got[n*x.D] = cases.Poison
							copier.Copy(got, x, a, 1, key, 1, n)
							if !cases.IsPoison(got[n*x.D]) {
								t.Errorf("%d keys from %d: the number behind them was written", n, key)
							}
							for j := range n {
								at, row := a.KRow(&p, 1, key+j)
								want := x.Read(make([]float32, x.D), at, row, 1)
								if !slices.Equal(got[j*x.D:][:x.D], want) {
									t.Errorf("%d keys from %d: key %d is %v, want %v", n, key, key+j, got[j*x.D:][:x.D], want)
								}
							}
						}
					}
				})
			}
		}
	}
}

// TestInPlace checks which operands the loops read in place.
func TestInPlace(t *testing.T) {
	for _, c := range []struct {
		kv   attn.DType
		page int
		want bool
	}{{attn.F32, 0, true}, {attn.F32, 8, false}, {attn.F16, 0, false}, {attn.I8, 8, false}} {
		if got := operand.InPlace(&attn.Problem{KV: c.kv, Page: c.page}); got != c.want {
			t.Errorf("%v in pages of %d: %v, want %v", c.kv, c.page, got, c.want)
		}
	}
}

// TestRotate checks a rotation by a quarter turn, and that each batch entry uses its own tables, in
// exact numbers. RotateBack must undo a rotation by any angle, up to rounding.
func TestRotate(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for _, c := range []struct {
			rope attn.Rope
			// (1, 2, 3, 4, 5) with 4 columns rotated, by a quarter and a half turn.
			want []float32
		}{
			{attn.RopeInterleaved, []float32{-2, 1, -3, -4, 5}},
			{attn.RopeHalves, []float32{-3, -2, 1, -4, 5}},
		} {
			p := attn.Problem{Batch: 2, Dim: 5, Score: attn.Score{Rope: c.rope}}
			a := &attn.Args{Terms: attn.Operands{Cos: attn.New(attn.BHSD, 2, 3, 1, 2), Sin: attn.New(attn.BHSD, 2, 3, 1, 2)}}
			copy(a.Terms.Cos.Row(1, 2, 0), []float32{0, -1})
			copy(a.Terms.Sin.Row(1, 2, 0), []float32{1, 0})
			row, sines := []float32{1, 2, 3, 4, 5}, make([]float32, operand.Angles(&p))
			operand.Rotate(l.Ops, &p, a, row, 1, 2)
			if !slices.Equal(row, c.want) {
				t.Errorf("%s, %v: rotated to %v, want %v", l.ISA, c.rope, row, c.want)
			}
			operand.RotateBack(l.Ops, &p, a, row, 1, 2, sines)
			if want := []float32{1, 2, 3, 4, 5}; !slices.Equal(row, want) {
				t.Errorf("%s, %v: rotated back to %v, want %v", l.ISA, c.rope, row, want)
			}
			// All batch entries share one table.
			a.Terms.Cos, a.Terms.Sin = attn.RopeTables(100, 9, 4)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range row {
				row[i] = float32(r.NormFloat64())
			}
			was := slices.Clone(row)
			operand.Rotate(l.Ops, &p, a, row, 1, 7)
			want := slices.Clone(was)
			c.rope.Turn(want, a.Terms.Cos.Row(0, 7, 0), a.Terms.Sin.Row(0, 7, 0))
			near(t, l.ISA+": rotated", row, want)
			operand.RotateBack(l.Ops, &p, a, row, 1, 7, sines)
			near(t, l.ISA+": rotated back", row, was)
		}
	}
}

func near(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 0x1p-20 {
			t.Errorf("%s: %v, want %v", name, got, want)
			return
		}
	}
}

// TestAngles checks the size of the tables of a problem.
func TestAngles(t *testing.T) {
	for _, c := range []struct {
		p    attn.Problem
		want int
	}{
		{attn.Problem{Dim: 8}, 0},
		{attn.Problem{Dim: 8, Score: attn.Score{Rope: attn.RopeHalves}}, 4},
		{attn.Problem{Dim: 9, Score: attn.Score{Rope: attn.RopeHalves}}, 4},
		{attn.Problem{Dim: 8, DimQ: 6, Score: attn.Score{Rope: attn.RopeInterleaved}}, 3},
		{attn.Problem{Dim: 4, DimQ: 6, Score: attn.Score{Rope: attn.RopeInterleaved}}, 2},
	} {
		if got := operand.Angles(&c.p); got != c.want {
			t.Errorf("dim %d, dim of Q %d, rope %v: %d angles, want %d", c.p.Dim, c.p.DimQ, c.p.Score.Rope, got, c.want)
		}
	}
}

// TestFinite checks that Finite reads each number of its rows, and none of another row.
func TestFinite(t *testing.T) {
	for _, l := range asmtest.Levels(t) {
		for name := range layouts(attn.F32) {
			for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
				for b := range 2 {
					for s := range 5 {
						for h := range 3 {
							for c := range 4 {
								x := layouts(attn.F32)[name]
								x.Row(b, s, h)[c] = bad
								want := b != 1 || h != 2 || s < 1 || s > 3
								if got := operand.Finite(l.Ops, &x, 1, 1, 2, 3); got != want {
									t.Errorf("%s, %s: %v at batch %d row %d head %d column %d: finite is %v, want %v", l.ISA, name, bad, b, s, h, c, got, want)
								}
							}
						}
					}
				}
			}
		}
		none := attn.Tensor{}
		if !operand.Finite(l.Ops, &none, 0, 0, 0, 3) {
			t.Errorf("%s: a tensor without data is not finite", l.ISA)
		}
	}
}
