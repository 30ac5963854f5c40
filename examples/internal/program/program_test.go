package program

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attnlab/nn"
)

// some is the settings of a made-up program.
type some struct {
	N int
	S string
}

func someFlags(set *flag.FlagSet, s *some) {
	set.IntVar(&s.N, "n", s.N, "a number")
	set.StringVar(&s.S, "s", s.S, "a text")
}

// TestBegin checks the settings, the folder and the errors of new and of resumed runs.
func TestBegin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "r")
	begin := func(args ...string) (some, *Run, error) {
		return Begin("test", args, some{3, "x"}, someFlags, io.Discard)
	}
	s, r, err := begin("-o", dir, "-n", "4")
	if err != nil || s != (some{4, "x"}) || r.Resume || r.Threads < 1 {
		t.Fatalf("%v, %+v, %v", s, r, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder exists before Open")
	}
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	if err := r.Open(); err == nil || !strings.Contains(err.Error(), "-resume") {
		t.Errorf("opened twice: %v", err)
	}
	s, again, err := begin("-resume", "-o", dir, "-n", "4", "-threads", "7")
	if err != nil || s != (some{4, "x"}) || again.Settings() != r.Settings() || again.Threads != 7 {
		t.Errorf("resumed: %v, %+v, %v", s, again, err)
	}
	if err := again.Open(); err != nil {
		t.Error(err)
	}
	if _, _, err := begin("-resume", "-o", dir, "-n", "3"); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("resumed with another number: %v", err)
	}
	if _, r, err := begin(); err != nil || !strings.HasPrefix(r.Dir, "runs"+string(filepath.Separator)) || !strings.HasSuffix(r.Dir, "-test") {
		t.Errorf("a fresh folder: %+v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(dir, settingsFile), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := begin("-resume", "-o", dir); err == nil || !strings.Contains(err.Error(), settingsFile) {
		t.Errorf("truncated settings: %v", err)
	}
}

// TestExit checks the exit code and the message of each kind of error.
func TestExit(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{errors.New("no"), exitFailed, "test: no\n"},
		{fmt.Errorf("%w: to resume", ErrInterrupted), exitIncomplete, "test: interrupted: to resume\n"},
	} {
		var to bytes.Buffer
		if code := exit("test", test.err, &to); code != test.code || to.String() != test.says {
			t.Errorf("%v: exit code %d and %q, want %d and %q", test.err, code, to.String(), test.code, test.says)
		}
	}
}

// TestProgress checks that, where the output is no terminal, there is a line for each tenth except
// the tenths that are already done.
func TestProgress(t *testing.T) {
	var to bytes.Buffer
	tell, end := Progress(&to, "steps", 31, 100)
	for done := int64(32); done <= 100; done++ {
		tell(done, "x")
	}
	end()
	lines := strings.Split(strings.TrimSpace(to.String()), "\n")
	if want := 7; len(lines) != want || lines[0] != "40 of 100 steps: x" || lines[want-1] != "100 of 100 steps: x" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// TestOn checks the kernel, the team and the errors of On.
func TestOn(t *testing.T) {
	for _, kernel := range []string{"naive", "tiled", "flash"} {
		on, team, err := On(kernel, BestISA(), 2)
		if err != nil || team.Workers() != 2 || on.Products == nil {
			t.Fatalf("%s: %v", kernel, err)
		}
		if algo, _ := on.Kernel.Name(); algo != kernel {
			t.Errorf("asked for %s, it is %s", kernel, algo)
		}
		team.Close()
	}
	if _, _, err := On("naive", "mmx", 1); err == nil || !strings.Contains(err.Error(), BestISA()) {
		t.Errorf("unknown instruction set: %v", err)
	}
	if _, _, err := On("flash", "mmx", 1); err == nil {
		t.Error("unknown kernel: no error")
	}
}

// TestTrain checks that an interrupted training has saved all its steps and names the command that
// resumes it, that it resumes to the same losses, and that a damaged checkpoint is an error.
func TestTrain(t *testing.T) {
	trainer := func() *nn.Trainer {
		on, team, err := On("flash", "go", 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(team.Close)
		m, err := nn.NewModel(3, 4, 3, false, nn.Config{Layers: 1, Dim: 8, Heads: 1}, rand.New(rand.NewPCG(1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		tr, err := nn.NewTrainer(m, on, 1, 4, nn.NewAdam(m.Params(), 0), nn.Schedule{Rate: .01, Steps: 10})
		if err != nil {
			t.Fatal(err)
		}
		tr.Fill = func(step int64, tokens, targets []int32) {
			for i := range tokens {
				tokens[i], targets[i] = int32(step+int64(i))%3, 0
			}
		}
		return tr
	}
	whole := trainer()
	for range 10 {
		if err := whole.Step(); err != nil {
			t.Fatal(err)
		}
	}

	dir := t.TempDir()
	r := &Run{Dir: dir, Every: 4, Levels: []Level{{"level", 1}}, name: "test", progress: io.Discard}
	ctx, cancel := context.WithCancel(t.Context())
	begun := trainer()
	fill := begun.Fill
	begun.Fill = func(step int64, tokens, targets []int32) {
		if fill(step, tokens, targets); step == 5 {
			cancel()
		}
	}
	if err := r.Train(ctx, begun, 10); !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "after 6 of 10 steps; to resume: go run ./examples/test -resume -o "+dir) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := os.Stat(r.Path("loss.svg")); err != nil {
		t.Error(err)
	}
	r.Resume = true
	again := trainer()
	if err := r.Train(t.Context(), again, 10); err != nil || !slices.Equal(again.Losses, whole.Losses) {
		t.Errorf("resumed, its losses are %v, want %v; %v", again.Losses, whole.Losses, err)
	}
	if err := os.WriteFile(r.Path(checkpointFile), []byte("cut"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := r.Train(t.Context(), trainer(), 10); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("truncated checkpoint: %v", err)
	}
}
