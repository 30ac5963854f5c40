package nn

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCheckpoint checks that training continues from a loaded checkpoint as if it had not been
// interrupted.
func TestCheckpoint(t *testing.T) {
	type rest struct{ Step int }
	train := func(p *Param, o Optimiser, from, to int) {
		for step := from; step < to; step++ {
			for i := range p.W.Data {
				p.Grad.Data[i] = p.W.Data[i]*float32(i) - float32(step)
			}
			o.Step(0.01)
		}
	}
	begin := func() (*Param, *Adam) {
		p := NewParam("p", 3, 4).Normal(rand.New(rand.NewPCG(1, 9)), 1)
		return p, NewAdam([]*Param{p}, 0.1)
	}
	p, o := begin()
	train(p, o, 0, 7)
	path := filepath.Join(t.TempDir(), "c")
	if err := (&Checkpoint{[]*Param{p}, o, &rest{7}}).Save(path); err != nil {
		t.Fatal(err)
	}
	train(p, o, 7, 20)

	q, again := begin()
	var r rest
	c := &Checkpoint{[]*Param{q}, again, &r}
	if err := c.Load(path); err != nil {
		t.Fatal(err)
	}
	train(q, again, r.Step, 20)
	if r.Step != 7 || !slices.Equal(p.W.Data, q.W.Data) {
		t.Errorf("from step %d training came to %v, want %v", r.Step, q.W.Data, p.W.Data)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was := slices.Clone(q.W.Data)
	refused := func(what, why string, c *Checkpoint, text []byte) {
		t.Helper()
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(bad, text, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := c.Load(bad); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v, want the file and %q", what, err, why)
		}
		if !slices.Equal(q.W.Data, was) || r.Step != 7 {
			t.Fatalf("%s: something changed", what)
		}
	}
	for n := range text {
		refused("cut", "cut off", c, text[:n])
		altered := slices.Clone(text)
		altered[n] ^= 0x10
		refused("altered", "", c, altered)
	}
	refused("another parameter", "the parameters differ", &Checkpoint{[]*Param{NewParam("q", 3, 4)}, again, &r}, text)
	refused("another optimiser", "another optimiser", &Checkpoint{[]*Param{q}, NewSGD([]*Param{q}, 0), &r}, text)
	if err := c.Load(filepath.Join(t.TempDir(), "nothing")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "nowhere")
	if err := c.Save(filepath.Join(dir, "c")); err == nil {
		t.Error("saved into a folder that is not there")
	}
}
