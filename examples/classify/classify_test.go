package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attnlab/examples/internal/program"
	"attnlab/internal/processtest"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// TestMain runs the program itself in a process named classify, and else the tests.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "classify" {
		main()
	}
	os.Exit(m.Run())
}

// small returns the arguments of a small training, with more appended.
func small(task string, steps int, more ...string) []string {
	return append([]string{"-task", task, "-steps", fmt.Sprint(steps), "-batch", "8", "-length", "12", "-layers", "1", "-dim", "16", "-heads", "2", "-every", "3"}, more...)
}

// checkpoint runs the program to its end in this process. It returns the checkpoint: weights,
// moments, losses and settings.
func checkpoint(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if err := classify(t.Context(), append(args, "-o", dir), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	return saved(t, dir)
}

// saved returns the checkpoint in a run folder.
func saved(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSameBits checks that training on one thread and on two, and training that is interrupted and
// resumed, end in the same checkpoint to the bit.
func TestSameBits(t *testing.T) {
	steps := 20
	if testing.Short() {
		steps = 8
	}
	for _, task := range taskNames {
		want := checkpoint(t, filepath.Join(t.TempDir(), "r"), small(task, steps, "-threads", "1")...)
		if checkpoint(t, filepath.Join(t.TempDir(), "r"), small(task, steps, "-threads", "2")...) != want {
			t.Errorf("%s: two threads end in another checkpoint than one", task)
		}
		for _, at := range []int{1, 7} {
			dir := filepath.Join(t.TempDir(), "r")
			err := classify(stopAt(t, at), append(small(task, steps), "-o", dir), io.Discard, io.Discard)
			if !errors.Is(err, program.ErrInterrupted) || !strings.Contains(err.Error(), "go run ./examples/classify -resume -o "+dir) {
				t.Fatalf("interrupted: got error %v, want the command that resumes", err)
			}
			if checkpoint(t, dir, "-resume", "-threads", "2") != want {
				t.Errorf("%s: interrupted after %d steps and resumed, training ends in another checkpoint", task, at)
			}
		}
		if testing.Short() {
			return
		}
	}
}

// stopAt returns a context that is cancelled after n calls of Err. Training calls it once a step.
func stopAt(t *testing.T, n int) context.Context { return &countdown{t.Context(), n} }

// countdown is a context that is cancelled after left calls of Err.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestKilled checks that a killed training, once resumed, ends in the same checkpoint as one that
// was never killed.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("TestSameBits is the short form")
	}
	self := processtest.Self(t)
	args := small("brackets", 600)
	want := checkpoint(t, filepath.Join(t.TempDir(), "r"), args...)
	dir := filepath.Join(t.TempDir(), "r")
	cmd := &exec.Cmd{Path: self, Args: append(append([]string{"classify"}, args...), "-o", dir)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for there := false; !there; {
		select {
		case err := <-ended:
			if err == nil {
				t.Skip("the training was over before it could be killed")
			}
			t.Fatalf("the training ended before its first checkpoint: %v", err)
		case <-tick.C:
			_, err := os.Stat(filepath.Join(dir, "checkpoint"))
			there = err == nil
		}
	}
	_ = cmd.Process.Kill()
	if err := <-ended; err == nil {
		t.Skip("the training was over before it could be killed")
	}
	if saved(t, dir) == want {
		t.Error("the training saved its last checkpoint before it was killed")
	}
	if checkpoint(t, dir, "-resume") != want {
		t.Error("killed and resumed, training ends in another checkpoint")
	}
}

// TestLearns checks that a small model reaches 95 % held-out accuracy in each task.
func TestLearns(t *testing.T) {
	if testing.Short() {
		t.Skip("training takes seconds")
	}
	for task, steps := range map[string]int64{"majority": 300, "first": 300, "brackets": 800} {
		t.Run(task, func(t *testing.T) {
			s := defaults()
			s.Task, s.Length, s.Layers, s.Dim, s.Heads, s.Batch, s.Steps, s.Rate = task, 12, 2, 32, 4, 32, steps, 3e-3
			on, team, err := program.On(s.Kernel, s.ISA, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer team.Close()
			c, err := newClassifier(s, on)
			if err != nil {
				t.Fatal(err)
			}
			for c.trainer.Done() < s.Steps {
				if err := c.trainer.Step(); err != nil {
					t.Fatal(err)
				}
			}
			asked, right, wrong, err := c.ask(32)
			if err != nil || asked != 1024 || right+len(wrong) != asked {
				t.Fatalf("%d asked, %d right, %d wrong, %v", asked, right, len(wrong), err)
			}
			t.Logf("%d of %d right", right, asked)
			if 100*right < 95*asked {
				t.Errorf("%d of %d held-out sequences are right, want at least 95 %%", right, asked)
			}
		})
	}
}

// TestStepAllocatesNothing checks that a training step, with the drawing of its batch, allocates
// nothing.
func TestStepAllocatesNothing(t *testing.T) {
	for _, task := range taskNames {
		s := defaults()
		s.Task, s.Batch, s.Steps = task, 4, 50
		if testing.Short() {
			s.Length, s.Dim, s.Heads = 12, 16, 2
		}
		on, team, err := program.On(s.Kernel, s.ISA, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer team.Close()
		c, err := newClassifier(s, on)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(5, func() { _ = c.trainer.Step() }); n != 0 {
			t.Errorf("%s: %v allocations per step, want 0", task, n)
		}
	}
}

// TestTasks checks three things of each task: its classes fit their definition, each is drawn about
// equally often, and no held-out sequence is in a training batch.
func TestTasks(t *testing.T) {
	for _, name := range taskNames {
		d := newData(tasks[name], 10, 5)
		tokens, classes := make([]int32, 640), make([]int32, 64)
		seen, counts := map[string]bool{}, make([]int, len(d.classes))
		for step := range 40 {
			d.train(int64(step), tokens, classes)
			for i, class := range classes {
				x := tokens[i*10:][:10]
				seen[d.write(x)] = true
				counts[class]++
				if want := define(name, d.write(x)); d.classes[class] != want {
					t.Fatalf("%s: %s is %s, not %s", name, d.write(x), want, d.classes[class])
				}
			}
		}
		for class, n := range counts {
			if each := 2560 / len(counts); n < each*3/4 || n > each*5/4 {
				t.Errorf("%s: %d of 2560 sequences are %s, want about %d", name, n, d.classes[class], each)
			}
		}
		for batch := range 10 {
			d.ask(batch, tokens, classes)
			for i := range classes {
				if s := d.write(tokens[i*10:][:10]); seen[s] {
					t.Fatalf("%s: %s is held out, but was in a training batch", name, s)
				}
			}
		}
	}
}

// define returns the class of a sequence, computed in another way than by the task itself.
func define(task, s string) string {
	switch task {
	case "first":
		return s[:1]
	case "majority":
		best := ""
		for _, c := range "abcd" {
			if best == "" || strings.Count(s, string(c)) > strings.Count(s, best) {
				best = string(c)
			}
		}
		return best
	}
	for strings.Contains(s, "()") {
		s = strings.ReplaceAll(s, "()", "")
	}
	if s == "" {
		return "balanced"
	}
	return "unbalanced"
}

// TestNest checks that nest draws each of the 14 balanced sequences of 8 brackets equally often.
func TestNest(t *testing.T) {
	const n = 14000
	r, counts := rand.New(rand.NewPCG(4, 1)), map[string]float64{}
	x := make([]int32, 8)
	for range n {
		nest(r, x)
		s := tasks["brackets"].write(x)
		if define("brackets", s) != "balanced" {
			t.Fatalf("%s is not balanced", s)
		}
		counts[s]++
	}
	if len(counts) != 14 {
		t.Fatalf("%d sequences, want 14", len(counts))
	}
	var got, want []float64
	for _, c := range counts {
		got, want = append(got, c), append(want, n/14)
	}
	if p := 1 - (distuv.ChiSquared{K: 13}).CDF(stat.ChiSquare(got, want)); p < 1e-4 || math.IsNaN(p) {
		t.Errorf("counts %v: p = %v", got, p)
	}
}

// TestRefuses checks that a wrong command line is an error that names the remedy, and leaves no
// folder behind. It also checks the output and the files of a run.
func TestRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	for want, args := range map[string][]string{
		"majority, first, brackets": {"-task", "sorting"},
		"even number of brackets":   {"-length", "11"},
		"must divide the row":       {"-heads", "3"},
		"no kernel":                 {"-kernel", "linen"},
		"there is no run in":        {"-resume"},
		"there are only flags":      {"brackets"},
		"not defined: -tasks":       {"-tasks", "all"},
	} {
		err := classify(t.Context(), append([]string{"-o", dir}, args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", args, err, want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run that never began has a folder: %v", err)
	}
	if err := classify(t.Context(), []string{"-resume"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "with -o") {
		t.Errorf("resumed without a folder: %v", err)
	}

	var out, progress bytes.Buffer
	if err := classify(t.Context(), small("first", 5, "-o", dir), &out, &progress); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "held-out sequences right") || !strings.Contains(s, dir) || !strings.Contains(progress.String(), "5 of 5 steps") {
		t.Errorf("output lacks the result, the folder or the progress:\n%s%s", progress.String(), s)
	}
	for _, file := range []string{"settings.json", "checkpoint", "loss.svg", "loss.png"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	for want, args := range map[string][]string{
		"holds a run":                  small("first", 5),
		"begun with other settings":    {"-resume", "-rate", "1"},
		"begun with other settings: l": {"-resume", "-task", "majority"},
	} {
		if err := classify(t.Context(), append([]string{"-o", dir}, args...), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", args, err, want)
		}
	}
	if err := classify(t.Context(), []string{"-h"}, io.Discard, &progress); err == nil || !strings.Contains(progress.String(), "-task") {
		t.Errorf("help: %v", err)
	}
}
