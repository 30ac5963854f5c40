package harness_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/kernels"
	"attnlab/kernels/naive"
)

func TestPowers(t *testing.T) {
	want := attn.AllSoftmax
	if got := harness.Powers(naive.New()); got != want {
		t.Errorf("naive does %v, found %v", want, got)
	}
	if got, want := want.Wants(), 2*attn.WantGrad-1; got != want {
		t.Errorf("wants %b, want %b", got, want)
	}
	// One problem for each ability: a kernel that does everything is found to.
	if got := harness.Powers(anything{}); got != attn.AllNeeds {
		t.Errorf("a kernel that accepts everything is not asked for %v", attn.AllNeeds&^got)
	}
}

// anything claims to do anything.
type anything struct{ attn.Kernel }

func (anything) Check(p attn.Problem, _ int) (int64, error) { return 0, p.Validate() }

// Every kernel of the module is right, and refuses rightly, on a case of each family.
func TestTryIsContentWithRightKernels(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases.Core() {
		if seen[c.Family] {
			continue
		}
		seen[c.Family] = true
		for _, k := range kernels.All() {
			if f := harness.Try(k, c); !f.Right() {
				t.Errorf("%v", f)
			}
		}
	}
}

// Claims that are not exact are wrong, whatever the numbers.
func TestTryFindsInexactClaims(t *testing.T) {
	var plain, biased cases.Case
	for _, c := range cases.Core() {
		switch {
		case c.Problem.Op != attn.OpSoftmax || c.Problem.SeqQ == 0:
		case c.Problem.Score.Terms == attn.TermBias && c.Problem.Mask.Bitmap == attn.BoolBitmap:
			biased = c
		case c.Problem.Needs() == attn.NeedSoftmax:
			plain = c
		}
	}
	if plain.Name == "" {
		t.Fatal("there is no plain case")
	}
	if biased.Name == "" { // two abilities at once
		biased = plain
		biased.Problem.Score.Terms, biased.Problem.Mask = attn.TermBias, attn.Full().With(attn.BoolBitmap)
	}
	both := func(p attn.Problem) bool { return p.Score.Terms != 0 && p.Mask.Bitmap != 0 }
	for _, c := range []struct {
		what string
		k    attn.Kernel
		c    cases.Case
		want string
	}{
		{"refuses two abilities together", odd{name: "x", check: func(p attn.Problem) error {
			if both(p) {
				return fmt.Errorf("x: %w", attn.ErrUnsupported)
			}
			return nil
		}}, biased, "each of which it accepts alone"},
		{"accepts together what it refuses alone", odd{name: "x", check: func(p attn.Problem) error {
			if p.Score.Terms != 0 && !both(p) {
				return fmt.Errorf("x: %w", attn.ErrUnsupported)
			}
			return nil
		}}, biased, "which it refuses alone"},
		{"refuses as malformed", odd{name: "x", check: func(p attn.Problem) error {
			if p.Score.Terms != 0 {
				return errors.New("x: bad problem")
			}
			return nil
		}}, biased, "as malformed"},
		{"plans what it does not check", disagreeing{odd{name: "x"}}, plain, "they must agree"},
	} {
		f := harness.Try(c.k, c.c)
		if f.Right() || !isInf(f.Worst) || !strings.Contains(f.Note, c.want) {
			t.Errorf("%s: %+v", c.what, f)
		}
	}
	refused := harness.Try(odd{name: "x", check: func(p attn.Problem) error {
		if p.Score.Terms != 0 {
			return fmt.Errorf("x: %w", attn.ErrUnsupported)
		}
		return nil
	}}, biased)
	if !refused.Right() || !refused.Refused {
		t.Errorf("an exact refusal: %+v", refused)
	}
}

// disagreeing plans what its Check refuses.
type disagreeing struct{ odd }

func (disagreeing) Check(attn.Problem, int) (int64, error) { return 0, attn.ErrUnsupported }

func (k disagreeing) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	return k.odd.Plan(p, team)
}

func TestTryFindsWrongNumbers(t *testing.T) {
	for _, k := range badLab().Kernels {
		name, _ := k.Name()
		if name != "wrong" && name != "lazy" {
			continue
		}
		f := harness.Try(k, cases.Core()[0])
		if f.Right() {
			t.Errorf("%s is found right: %+v", name, f)
		}
	}
	if (harness.Finding{Worst: math.NaN()}).Right() {
		t.Error("NaN is right")
	}
}
