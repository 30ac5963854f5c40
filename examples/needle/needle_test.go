package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/examples/internal/program"
	"attnlab/kernels"
)

// TestSearch checks that softmax retrieves needles at every size, that linear attention retrieves
// them from few keys only, and that one thread and two give the same results.
func TestSearch(t *testing.T) {
	s := settings{Seed: 2, Dim: 32, Least: 4, Most: 1024, Haystacks: 2, Needles: 32}
	if testing.Short() {
		s.Most = 256
	}
	all, err := search(t.Context(), s, 2, func(int64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	last := len(all[0]) - 1
	by := map[string][]result{}
	for i, results := range all {
		by[methods[i].name] = results
		if len(results) != len(s.sizes()) || results[last].n != s.Most {
			t.Fatalf("%s: %d sizes up to %d", methods[i].name, len(results), results[last].n)
		}
	}
	for _, r := range by["softmax, scale x 2"] {
		if r.right != 1 {
			t.Errorf("softmax at twice the scale retrieves %v among %d keys, want all", r.right, r.n)
		}
	}
	if r := by["linear, identity"][0]; r.right < .95 {
		t.Errorf("linear attention retrieves %v among %d keys, want nearly all", r.right, r.n)
	}
	for _, name := range []string{"linear, elu+1", "linear, relu+1", "linear, identity"} {
		if r, soft := by[name][last], by["softmax"][last]; r.right > .5 || r.right >= soft.right || r.err <= soft.err {
			t.Errorf("%s retrieves %v among %d keys, off by %v; softmax %v, off by %v", name, r.right, r.n, r.err, soft.right, soft.err)
		}
	}
	again, err := search(t.Context(), s, 1, func(int64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		for j := range all[i] {
			if all[i][j] != again[i][j] {
				t.Errorf("%s: on one thread %v, on two %v", methods[i].name, again[i][j], all[i][j])
			}
		}
	}
}

// TestWeightOfTheNeedle checks the weight that softmax gives the needle against its equation. The
// other keys have weights e^(s cos), whose mean over random directions is known.
func TestWeightOfTheNeedle(t *testing.T) {
	const dim, n = 64, 512
	h := newHaystacks(1, n, n, dim, rand.New(rand.NewPCG(3, 1)))
	for i := range n {
		if j := h.planted[i]; h.q.Row(0, i, 0)[0] != h.k.Row(0, j, 0)[0] {
			t.Fatalf("needle %d is not key %d", i, j)
		}
		length := 0.0
		for _, x := range h.k.Row(0, i, 0) {
			length += float64(x) * float64(x)
		}
		if math.Abs(length-dim) > 1e-3 {
			t.Fatalf("a key has the square %v, want %d", length, dim)
		}
	}
	p := methods[0].problem(1, n, n, dim)
	p.Want = attn.WantWeights
	kernel, err := kernels.Best(p)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := kernel.Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	args := &attn.Args{Q: h.q, K: h.k, V: h.v, Out: attn.New(attn.BHSD, 1, n, 1, dim)}
	args.Stats.Weights = attn.New(attn.BHSD, 1, n, 1, n)
	plan.Forward(args)
	mean := 0.0
	for i := range n {
		mean += float64(args.Stats.Weights.Row(0, i, 0)[h.planted[i]]) / n
	}
	// The cosine of random directions has a variance of about 1/dim, so the mean of e^(8 cos) is
	// about e^(8^2 / 2 / 64).
	if want := math.Exp(8) / (math.Exp(8) + (n-1)*math.Exp(.5)); math.Abs(mean-want) > .01 {
		t.Errorf("the needle has the weight %v, want about %v", mean, want)
	}
}

// TestProgram checks the table and the files of a run, the error of an empty list of sizes, and
// that a cancelled context stops the program.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	args := []string{"-o", dir, "-dim", "16", "-most", "16", "-haystacks", "1", "-needles", "8"}
	var out, progress bytes.Buffer
	if err := needle(t.Context(), args, &out, &progress); err != nil {
		t.Fatal(err)
	}
	for _, m := range methods {
		if !strings.Contains(out.String(), m.name) {
			t.Errorf("%s is not in the table:\n%s", m.name, &out)
		}
	}
	// Besides the methods there are a title, the sizes, and the path of the curves.
	if lines := strings.Split(out.String(), "\n"); len(lines) != len(methods)+4 || len(strings.Fields(lines[1])) != 4 {
		t.Errorf("the table is\n%s", &out)
	}
	for _, file := range []string{"needle.svg", "needle.png"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if err := needle(t.Context(), []string{"-most", "1"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "-most 1") {
		t.Errorf("no sizes: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := needle(over, args[2:], io.Discard, io.Discard); !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
}
