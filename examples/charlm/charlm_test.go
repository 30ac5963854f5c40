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
	"slices"
	"strings"
	"testing"

	"attnlab/examples/internal/program"
	"attnlab/nn"
)

// checkout makes a folder like a checkout of the module, with a few thousand characters of
// documentation.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":          "module attnlab\n\ngo 1.26.0\n",
		"README.md":       strings.Repeat("A kernel is a value, and a plan decides and allocates. ", 150),
		"CONTRIBUTING.md": strings.Repeat("Rows are sequences one after another; a mask hides keys. ", 150),
		"docs/page.md":    strings.Repeat("What a mask hides is not counted: neither as work nor as speed. ", 150),
		"a/a.go": "// Package a is first.\npackage a\n\nimport \"fmt\"\n\n// A T is a type.\ntype T struct{}\n\n// String is a method.\nfunc (T) String() string {\n\t// not this\n\treturn fmt.Sprint(c)\n}\n\n" +
			"// c is not exported.\nconst c = 1\n\n// These are.\nconst (\n\tC = 2\n)\n\ntype (\n\t// A U is another.\n\tU int\n)\n",
		"a/a_test.go":       "// Package a is not a test.\npackage a\n",
		"a/testdata/b.go":   "// Nor data.\npackage b\n",
		".hidden/hidden.go": "// Nor hidden.\npackage hidden\n",
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestDocumentation checks which text is collected from a checkout, that its root is found from a
// folder below, and the errors of an incomplete one.
func TestDocumentation(t *testing.T) {
	root := checkout(t)
	text, err := documentation(root)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Package a is first.\n\nA T is a type.\n\nString is a method.\n\nThese are.\n\nA U is another.\n\n"; !strings.HasSuffix(text, " \n"+want) {
		t.Errorf("the Go files end with %q, want %q", text[max(0, len(text)-300):], want)
	}
	for _, page := range []string{"A kernel is a value", "Rows are sequences", "What a mask hides"} {
		if strings.Count(text, page) != 150 {
			t.Errorf("%q occurs %d times, want 150", page, strings.Count(text, page))
		}
	}
	if found, err := findRoot(filepath.Join(root, "a", "testdata")); err != nil || found != root {
		t.Errorf("the root is %s, %v; want %s", found, err, root)
	}
	if _, err := findRoot(filepath.Dir(root)); err == nil || !strings.Contains(err.Error(), "-root") {
		t.Errorf("outside of a checkout: %v", err)
	}
	if err := os.Remove(filepath.Join(root, "README.md")); err != nil {
		t.Fatal(err)
	}
	if _, err := documentation(root); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "whole checkout") {
		t.Errorf("a checkout without README.md: %v", err)
	}
}

// TestVocabulary checks which characters are in a vocabulary, and that unknown ones become 0.
func TestVocabulary(t *testing.T) {
	v := newVocabulary("aaa∂∂ bb  c", 2)
	if want := (vocabulary{unknown, ' ', 'a', 'b', '∂'}); !slices.Equal(v, want) {
		t.Fatalf("vocabulary %q, want %q", string(v), string(want))
	}
	if got := v.encode("ab∂c"); !slices.Equal(got, []int32{2, 3, 4, 0}) || v.decode(got) != "ab∂\uFFFD" {
		t.Errorf("ab∂c is encoded as %v and decoded as %q", got, v.decode(got))
	}
}

// TestSplit checks that every tenth piece is held out.
func TestSplit(t *testing.T) {
	text := ""
	for i := range 25 {
		text += strings.Repeat(string(rune('a'+i)), 3)
	}
	train, heldOut := split(text+"ä", 3)
	if heldOut != "jjjttt" || len([]rune(train)) != 70 || !strings.HasSuffix(train, "yyyä") {
		t.Errorf("held out %q of %q", heldOut, train)
	}
}

// TestBigram checks the loss against pairs counted by hand: a b twice, b a once.
func TestBigram(t *testing.T) {
	want := -(math.Log(3./4) + math.Log(2./3)) / 2
	if got := bigram([]int32{0, 1, 0, 1}, []int32{0, 1, 0}, 2); math.Abs(got-want) > 1e-15 {
		t.Errorf("%v, want %v", got, want)
	}
	if got := bigram([]int32{0, 0}, []int32{2, 1, 2}, 3); math.Abs(got-math.Log(3)) > 1e-15 {
		t.Errorf("loss of pairs that are not in the training text: %v, want log 3", got)
	}
}

// reduced returns a model trained for a few seconds on this repository's documentation.
func reduced(t *testing.T, steps int64) *author {
	t.Helper()
	root, err := findRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := documentation(root)
	if err != nil {
		t.Fatal(err)
	}
	train, heldOut := split(text, 2000)
	s := defaults()
	s.Layers, s.Dim, s.Heads, s.Context, s.Batch, s.Steps, s.Rate, s.Dropout = 1, 64, 2, 64, 12, steps, 6e-3, 0
	if testing.Short() {
		s.Dim, s.Context, s.Batch, heldOut = 16, 32, 2, heldOut[:500]
	}
	on, team, err := program.On(s.Kernel, s.ISA, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(team.Close)
	a, err := newAuthor(s, train, heldOut, on)
	if err != nil {
		t.Fatal(err)
	}
	for a.trainer.Done() < steps {
		if err := a.trainer.Step(); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// TestLearns checks that a trained model predicts held-out characters better than counting pairs
// does, that the cache changes nothing in what it writes, and that a step allocates nothing.
func TestLearns(t *testing.T) {
	steps := int64(400)
	if testing.Short() {
		steps = 4
	}
	a := reduced(t, steps)
	loss, err := a.loss()
	if err != nil {
		t.Fatal(err)
	}
	pairs := bigram(a.train, a.heldOut, len(a.vocabulary))
	t.Logf("%d characters, %d held out: loss %.3f, pairs %.3f", len(a.train), len(a.heldOut), loss, pairs)
	if !testing.Short() && !(loss < pairs) {
		t.Errorf("held-out loss %v, want less than %v by counting pairs", loss, pairs)
	}
	for _, beginning := range []string{"A", "The kernel ", "## "} {
		tokens := a.encode(beginning)
		n := a.Context - len(tokens)
		cached, err := a.goOn(tokens, n, new(nn.Sampler))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := a.goOnWhole(tokens, n)
		if err != nil {
			t.Fatal(err)
		}
		if len(cached) != n || !slices.Equal(cached, whole) {
			t.Errorf("after %q, the cache writes %q and full passes write %q", beginning, a.decode(cached), a.decode(whole))
		}
	}
	if n := testing.AllocsPerRun(2, func() { _ = a.trainer.Step() }); n != 0 {
		t.Errorf("%v allocations per step, want 0", n)
	}
	// This text fills the cache more than once.
	if text, err := a.goOn(a.encode("The "), 2*a.Context, new(nn.Sampler)); err != nil || len(text) != 2*a.Context {
		t.Errorf("%d characters, %v; want %d", len(text), err, 2*a.Context)
	}
}

// TestLoss checks the held-out loss against one computed character by character.
func TestLoss(t *testing.T) {
	a := reduced(t, 1)
	a.heldOut = a.heldOut[:3*a.Context+20]
	got, err := a.loss()
	if err != nil {
		t.Fatal(err)
	}
	sum, all := 0.0, len(a.heldOut)-1
	for from := 0; from < all; from += a.Context {
		g, err := a.model.Generate(a.on, a.Context, 1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < min(from+a.Context, all); i++ {
			if err := g.Read(a.heldOut[i : i+1]); err != nil {
				t.Fatal(err)
			}
			z := 0.0
			for _, x := range g.Logits() {
				z += math.Exp(float64(x))
			}
			sum += math.Log(z) - float64(g.Logits()[a.heldOut[i+1]])
		}
	}
	if want := sum / float64(all); math.Abs(got-want) > 1e-4 {
		t.Errorf("loss %v, want %v", got, want)
	}
}

// TestResumed checks that an interrupted run, once resumed, uses the text it began with, ends in
// the same checkpoint, and writes the same text.
func TestResumed(t *testing.T) {
	root := checkout(t)
	args := func(dir string, more ...string) []string {
		return append([]string{
			"-o", dir, "-root", root, "-steps", "12", "-batch", "2", "-context", "16", "-layers", "1", "-dim", "16", "-heads", "2", "-every", "5", "-length", "30",
		}, more...)
	}
	run := func(ctx context.Context, args []string) (checkpoint, said string, err error) {
		var out bytes.Buffer
		if err = charlm(ctx, args, &out, io.Discard); err != nil {
			return "", "", err
		}
		text, err := os.ReadFile(filepath.Join(args[1], "checkpoint"))
		_, said, _ = strings.Cut(out.String(), "held-out loss")
		return string(text), strings.ReplaceAll(said, args[1], ""), err
	}
	want, said, err := run(t.Context(), args(filepath.Join(t.TempDir(), "r"), "-threads", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said, "full passes: the same") || !strings.Contains(said, "\nA kernel ") {
		t.Errorf("got output %s, want the comparison of the cache, and text", said)
	}
	dir := filepath.Join(t.TempDir(), "r")
	if _, _, err = run(&countdown{t.Context(), 7}, args(dir)); !errors.Is(err, program.ErrInterrupted) || !strings.Contains(err.Error(), "-resume -o "+dir) {
		t.Fatalf("interrupted: got error %v, want the command that resumes", err)
	}
	if err := os.WriteFile(filepath.Join(root, "README.md"), []byte("changed meanwhile"), 0o666); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, no steps are left
		again, saidAgain, err := run(t.Context(), []string{"-o", dir, "-resume", "-threads", "2", "-length", "30"})
		if err != nil {
			t.Fatal(err)
		}
		if again != want || saidAgain != said {
			t.Errorf("resumed, the run ends differently: got %s, want %s", saidAgain, said)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, trainFile), []byte(strings.Repeat("other text. ", 900)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err = run(t.Context(), []string{"-o", dir, "-resume"}); err == nil {
		t.Error("resumed with another text: no error")
	}
}

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

// TestRefuses checks that wrong settings are an error that names the remedy, and leave no folder
// behind.
func TestRefuses(t *testing.T) {
	root := checkout(t)
	for want, args := range map[string][]string{
		"even number of columns": {"-dim", "20", "-heads", "4"},
		"-context of 2 or more":  {"-context", "1"},
		"too short":              {"-context", "30000"},
		"want a prompt":          {"-prompt", ""},
		"-root":                  {"-root", filepath.Dir(root)},
	} {
		dir := filepath.Join(t.TempDir(), "r")
		err := charlm(t.Context(), append([]string{"-o", dir, "-root", root}, args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", args, err, want)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: a run that never began has a folder", fmt.Sprint(args))
		}
	}
}
