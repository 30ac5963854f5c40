package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/examples/internal/program"
	"attnlab/nn"

	"gonum.org/v1/gonum/mat"
)

// TestBuilt checks that built heads attend to the keys they were built for, with each kernel, and
// that entropies and similarities agree with that.
func TestBuilt(t *testing.T) {
	for _, kernel := range []string{"naive", "tiled"} {
		on, team, err := program.On(kernel, program.BestISA(), 2)
		if err != nil {
			t.Fatal(err)
		}
		defer team.Close()
		l, err := built(on)
		if err != nil {
			t.Fatal(err)
		}
		n := len(text)
		for h, look := range map[int]func(i, j int) bool{
			0: func(i, j int) bool { return j == max(i-1, 0) },
			1: func(i, j int) bool { return j == max(i-1, 0) },
			2: func(_, j int) bool { return j == 0 },
			3: func(i, j int) bool { return text[i] == text[j] },
			4: func(int, int) bool { return true },
		} {
			for i := range n {
				seen := 0
				for j := range n {
					if look(i, j) {
						seen++
					}
				}
				for j := range n {
					want := 0.0
					if look(i, j) {
						want = 1 / float64(seen)
					}
					if got := l.patterns[h].At(i, j); math.Abs(got-want) > 1e-3 {
						t.Fatalf("%s: %s: query %d gives key %d the weight %v, want %v", kernel, l.heads[h], i, j, got, want)
					}
				}
			}
		}
		e := nn.HeadEntropies(l.patterns)
		if math.Abs(e[4]-math.Log(float64(n))) > 1e-5 || e[0] > .01 || e[2] > .01 || e[3] < 1 || e[3] > e[4] {
			t.Errorf("%s: entropies %v", kernel, e)
		}
		similarities := l.similarities()
		if math.Abs(similarities[0][1]-1) > 1e-6 || similarities[0][2] > .3 || math.Abs(similarities[3][3]-1) > 1e-6 || similarities[2][3] != similarities[3][2] {
			t.Errorf("%s: similarities of the heads: %v", kernel, similarities)
		}
		with, without := nn.Diversity(l.patterns), nn.Diversity(append([]*mat.Dense{}, l.patterns[1:]...))
		if with >= without {
			t.Errorf("%s: diversity %v with a duplicated head, want less than %v without it", kernel, with, without)
		}
	}
}

// TestTrained checks that heads attend to all letters before training, and that one attends to the
// first letter after it.
func TestTrained(t *testing.T) {
	s := defaults()
	if testing.Short() {
		s.Steps = 3
	}
	on, team, err := program.On(s.Kernel, s.ISA, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	r, err := newReader(s, on)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.look("untrained")
	if err != nil {
		t.Fatal(err)
	}
	for h, e := range nn.HeadEntropies(before.patterns) {
		if e < .6*math.Log(length) {
			t.Errorf("untrained, head %d has entropy %v, want at least 0.6 of %v", h, e, math.Log(length))
		}
	}
	for r.trainer.Done() < s.Steps {
		if err := r.trainer.Step(); err != nil {
			t.Fatal(err)
		}
	}
	after, err := r.look("trained")
	if err != nil {
		t.Fatal(err)
	}
	for h, p := range after.patterns {
		for i := range length {
			if sum := mat.Sum(p.RowView(i)); math.Abs(sum-1) > 1e-4 {
				t.Fatalf("head %d, query %d: weights sum to %v, want 1", h, i, sum)
			}
		}
	}
	if testing.Short() {
		return
	}
	first := func(l *layer) (most float64) {
		for _, p := range l.patterns {
			most = max(most, mat.Sum(p.ColView(0))/length)
		}
		return most
	}
	t.Logf("weight of the first letter: %.3f, then %.3f; loss %.3f", first(before), first(after), r.trainer.Losses[s.Steps-1])
	if first(before) > .3 || first(after) < .7 {
		t.Errorf("largest weight of the first letter: %v untrained, want at most 0.3; %v trained, want at least 0.7", first(before), first(after))
	}
}

// TestProgram checks that the program can be interrupted and resumed, what it prints, and which
// files it writes.
func TestProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	var out bytes.Buffer
	args := []string{"-o", dir, "-steps", "6", "-every", "2"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := look(ctx, args, &out, io.Discard); !errors.Is(err, program.ErrInterrupted) || !strings.Contains(err.Error(), fmt.Sprintf("go run ./examples/heads -resume -o %s", dir)) {
		t.Fatalf("interrupted: %v", err)
	}
	if err := look(t.Context(), []string{"-o", dir, "-resume"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"built: diversity 0.", "the same letter", "untrained", "trained: diversity", "head 4", filepath.Join(dir, "heads.svg")} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
	for _, file := range []string{"heads.svg", "heads.png", "loss.svg"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if err := look(t.Context(), []string{"-kernel", "flash", "-o", dir + "2"}, &out, io.Discard); err == nil || !strings.Contains(err.Error(), "weights") {
		t.Errorf("a kernel that returns no weights: %v", err)
	}
}
