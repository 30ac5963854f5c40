package cases_test

import (
	"math"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
)

var everything = attn.Problem{
	Batch: 2, SeqQ: 9, SeqKV: 9, HeadsQ: 4, HeadsKV: 2, Dim: 5, DimV: 3, Lengths: true,
	Score: attn.Score{Terms: attn.TermBias}, Mask: attn.Causal().With(attn.BoolBitmap),
	Want: attn.WantLSE | attn.WantMean | attn.WantEntropy | attn.WantMax | attn.WantArgMax | attn.WantWeights | attn.WantScores,
}

// TestNewArgs checks that every layout gives operands that pass Check, and that no output shares
// memory with another operand.
func TestNewArgs(t *testing.T) {
	for _, layout := range cases.Layouts() {
		n, err := cases.SlabLen(everything, layout)
		if err != nil {
			t.Fatal(err)
		}
		slab := make([]float32, n)
		a, err := cases.NewArgs(everything, layout, slab)
		if err != nil {
			t.Fatal(err)
		}
		if err := everything.Check(a); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
		written := 0
		cases.Outputs(a, func(name string, o *attn.Tensor) {
			cases.Rows(o, func(b, s, h int, row []float32) {
				for i := range row {
					if row[i]++; row[i] != 1 {
						t.Fatalf("%s: %s[%d %d %d %d] is an element of another output too", layout, name, b, s, h, i)
					}
					written++
				}
			})
		})
		if want := 2 * 9 * 4 * (3 + 4 + 9 + 9); written != want {
			t.Errorf("%s: outputs have %d elements, want %d", layout, written, want)
		}
		cases.Inputs(a, func(name string, o *attn.Tensor) {
			cases.Rows(o, func(b, s, h int, row []float32) {
				for i := range row {
					if row[i] != 0 {
						t.Fatalf("%s: %s[%d %d %d %d] is an element of an output too", layout, name, b, s, h, i)
					}
				}
			})
		})
		if _, err := cases.NewArgs(everything, layout, slab[1:]); err == nil || !strings.Contains(err.Error(), "SlabLen") {
			t.Errorf("%s: a slab that is too short: %v", layout, err)
		}
	}
}

func TestNewArgsRefuses(t *testing.T) {
	uneven, heads := everything, everything
	uneven.SeqKV = 10
	heads.HeadsKV = 3
	large := attn.Problem{Batch: 1, SeqQ: 1 << 31, SeqKV: 1 << 31, HeadsQ: 1 << 10, HeadsKV: 1, Dim: 1, DimV: 1, Want: attn.WantWeights}
	for _, c := range []struct {
		p            attn.Problem
		layout, says string
	}{
		{uneven, "packed", "9 query rows and 10 key rows"},
		{everything, "dhsb", "bhsd, bshd, packed"},
		{heads, "bhsd", "heads"},
		{large, "bhsd", "more than any machine"},
	} {
		if _, err := cases.SlabLen(c.p, c.layout); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want one that says %q", err, c.says)
		}
	}
}

// TestFillIsTheSameInEveryLayout checks that the same seed gives the same numbers in every layout
// that shares no rows.
func TestFillIsTheSameInEveryLayout(t *testing.T) {
	for _, dist := range cases.Distributions() {
		var first []float32
		for _, layout := range []string{"bhsd", "bshd", "packed", "padded"} {
			a, err := cases.NewArgs(everything, layout, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := cases.Fill(dist, everything, a, 7); err != nil {
				t.Fatal(err)
			}
			var all []float32
			cases.Inputs(a, func(_ string, o *attn.Tensor) {
				cases.Rows(o, func(_, _, _ int, row []float32) { all = append(all, row...) })
			})
			if first == nil {
				first = all
			}
			for i := range first {
				if all[i] != first[i] {
					t.Fatalf("%s: number %d is %v in layout %s, and %v in bhsd", dist, i, all[i], layout, first[i])
				}
			}
		}
	}
	a, _ := cases.NewArgs(everything, "bhsd", nil)
	if err := cases.Fill("gaussian", everything, a, 7); err == nil || !strings.Contains(err.Error(), "normal, std30") {
		t.Errorf("an unknown distribution: %v", err)
	}
}

// TestDistributions checks that each distribution has the scores that it is named for.
func TestDistributions(t *testing.T) {
	for _, scale := range []float64{0, 0.3} {
		p := attn.Problem{Batch: 1, SeqQ: 40, SeqKV: 256, HeadsQ: 1, HeadsKV: 1, Dim: 32, DimV: 1, Score: attn.Score{Scale: scale}}
		scores := func(dist string) (s [][]float64, mean, std float64) {
			a, err := cases.NewArgs(p, "bhsd", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := cases.Fill(dist, p, a, 3); err != nil {
				t.Fatal(err)
			}
			sum, squares := 0.0, 0.0
			for i := range p.SeqQ {
				row := make([]float64, p.SeqKV)
				for j := range row {
					for x, q := range a.Q.Row(0, i, 0) {
						row[j] += p.Scale() * float64(q) * float64(a.K.Row(0, j, 0)[x])
					}
					sum += row[j]
					squares += row[j] * row[j]
				}
				s = append(s, row)
			}
			n := float64(p.SeqQ * p.SeqKV)
			return s, sum / n, math.Sqrt(squares/n - sum*sum/n/n)
		}
		if _, mean, std := scores("normal"); scale == 0 && !(math.Abs(mean) < 0.2 && math.Abs(std-1) < 0.2) {
			t.Errorf("normal: mean %v, std %v", mean, std)
		}
		if _, mean, std := scores("std30"); !(math.Abs(mean) < 6 && math.Abs(std-30) < 6) {
			t.Errorf("std30: mean %v, std %v", mean, std)
		}
		rising, _, _ := scores("rising")
		for i, row := range rising {
			for j := 1; j < len(row); j++ {
				if step := row[j] - row[j-1]; !(step > 0.5 && step < 1.5) {
					t.Fatalf("rising: query %d, key %d scores %v more than the one before", i, j, step)
				}
			}
		}
		sparse, _, _ := scores("sparse")
		for j := range p.SeqKV {
			mean := 0.0
			for i := range sparse {
				mean += sparse[i][j] / float64(len(sparse))
			}
			if loud := j%64 == 5; scale == 0 && loud != (mean > 6) {
				t.Errorf("sparse: key %d scores %v on average", j, mean)
			}
		}
	}
}

// TestFillOfLargeOperands checks that the rows of a large operand, not all of which are drawn,
// differ as much as those of a small one. A few rows are equal by chance.
func TestFillOfLargeOperands(t *testing.T) {
	const drawn, more, d = 1 << 16, 4000, 64
	p := attn.Problem{Batch: 1, SeqQ: 1, SeqKV: drawn + more, HeadsQ: 1, HeadsKV: 1, Dim: d, DimV: d}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("normal", p, a, 3); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*attn.Tensor{&a.K, &a.V} {
		seen, twice := map[[d]float32]bool{}, 0
		sum, squares := 0.0, 0.0
		for j := range p.SeqKV {
			row := [d]float32(x.Row(0, j, 0))
			if seen[row] {
				twice++
			}
			seen[row] = true
			for _, v := range row {
				if j >= drawn {
					sum += float64(v)
					squares += float64(v) * float64(v)
				}
			}
		}
		if n := float64(more * d); !(math.Abs(sum/n) < 0.02 && math.Abs(squares/n-1) < 0.02) {
			t.Errorf("rows after the first %d have mean %v and variance %v", drawn, sum/n, squares/n)
		}
		// One copy in 64 begins where a row does, and about eight begin where another copy did.
		if twice > more/16 {
			t.Errorf("%d of %d rows were there before", twice, p.SeqKV)
		}
	}
}

// TestTrim checks that Trim shortens every operand with a row for each query or key.
func TestTrim(t *testing.T) {
	p := everything
	p.Mask.Bitmap = attn.BoolBitmap
	a, err := cases.NewArgs(p, "padded", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases.Trim(a, 4, 6)
	if err := p.Check(a); err != nil {
		t.Error(err)
	}
	if a.Q.S != 4 || a.V.S != 6 || a.Stats.Weights.D != 6 || a.KLen[1] != 6 {
		t.Errorf("%+v", a)
	}
}

// TestFillPages checks that keys in pages have the numbers of their place in the sequence.
func TestFillPages(t *testing.T) {
	p := attn.Problem{Batch: 2, SeqQ: 1, SeqKV: 20, HeadsQ: 1, HeadsKV: 1, Dim: 1, DimV: 1, Page: 8}
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cases.Fill("rising", p, a, 1); err != nil {
		t.Fatal(err)
	}
	for b := range 2 {
		for j := range 20 {
			page, row := a.KRow(&p, b, j)
			if got := a.K.Row(page, row, 0)[0]; got != float32(j) {
				t.Errorf("key %d of entry %d is %v", j, b, got)
			}
		}
	}
}
