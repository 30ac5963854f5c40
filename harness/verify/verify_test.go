package verify_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/harnesstest"
	"attnlab/harness/verify"
	"attnlab/kernels"
	"attnlab/kernels/naive"
)

// TestPowers checks the abilities found of a kernel against those it has.
func TestPowers(t *testing.T) {
	want := attn.AllSoftmax
	if got := verify.Powers(naive.New()); got != want {
		t.Errorf("naive does %v, found %v", want, got)
	}
	if got, want := want.Wants(), 2*attn.WantGrad-1; got != want {
		t.Errorf("wants %b, want %b", got, want)
	}
	// Powers asks for each ability there is.
	if got := verify.Powers(anything{}); got != attn.AllNeeds {
		t.Errorf("a kernel that accepts everything is not asked for %v", attn.AllNeeds&^got)
	}
}

// anything claims to do anything.
type anything struct{ attn.Kernel }

func (anything) Check(p attn.Problem, _ int) (int64, error) { return 0, p.Validate() }

// TestTryAcceptsRightKernels checks every kernel of the module on a case of each family.
func TestTryAcceptsRightKernels(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases.Core() {
		if seen[c.Family] {
			continue
		}
		seen[c.Family] = true
		for _, k := range kernels.All() {
			if f := verify.Try(k, c); !f.Right() {
				t.Errorf("%v", f)
			}
		}
	}
}

// TestTryFindsInexactClaims checks that claims that are not exact are wrong, whatever the numbers.
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
		{"refuses two abilities together", harnesstest.Odd{OnCheck: func(p attn.Problem) error {
			if both(p) {
				return fmt.Errorf("x: %w", attn.ErrUnsupported)
			}
			return nil
		}}, biased, "each of which it accepts alone"},
		{"accepts together what it refuses alone", harnesstest.Odd{OnCheck: func(p attn.Problem) error {
			if p.Score.Terms != 0 && !both(p) {
				return fmt.Errorf("x: %w", attn.ErrUnsupported)
			}
			return nil
		}}, biased, "which it refuses alone"},
		{"refuses as malformed", harnesstest.Odd{OnCheck: func(p attn.Problem) error {
			if p.Score.Terms != 0 {
				return errors.New("x: bad problem")
			}
			return nil
		}}, biased, "as malformed"},
		{"plans what it does not check", disagreeing{harnesstest.Odd{}}, plain, "they must agree"},
	} {
		f := verify.Try(c.k, c.c)
		if f.Right() || !math.IsInf(f.Worst, 1) || !strings.Contains(f.Note, c.want) {
			t.Errorf("%s: %+v", c.what, f)
		}
	}
	refused := verify.Try(harnesstest.Odd{OnCheck: func(p attn.Problem) error {
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
type disagreeing struct{ harnesstest.Odd }

func (disagreeing) Check(attn.Problem, int) (int64, error) { return 0, attn.ErrUnsupported }

func (k disagreeing) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	return k.Odd.Plan(p, team)
}

// TestTryFindsWrongNumbers checks that a wrong element and an answer that was not written are
// found.
func TestTryFindsWrongNumbers(t *testing.T) {
	for _, k := range []harnesstest.Odd{
		{Algo: "wrong", OnForward: func(a *attn.Args, honest attn.Plan) { honest.Forward(a); a.Out.Data[0]++ }},
		{Algo: "lazy", OnForward: func(*attn.Args, attn.Plan) {}},
	} {
		if f := verify.Try(k, cases.Core()[0]); f.Right() {
			t.Errorf("%s is found right: %+v", k.Algo, f)
		}
	}
	if (verify.Finding{Worst: math.NaN()}).Right() {
		t.Error("NaN is right")
	}
}
