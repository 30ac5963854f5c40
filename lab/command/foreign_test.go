package command_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
	"attnlab/kernels/asm"
	"attnlab/kernels/naive"
	"attnlab/lab/command"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this binary the programs that scripts call, and that they call as their workers.
func TestMain(m *testing.M) {
	os.Setenv(command.NoRaceSleep, command.NoRaceSleepValue)
	programs := maps.Clone(command.Programs)
	programs["foreignrun"] = foreignMain
	testscript.Main(m, programs)
}

// foreignMain is the main function of a program of another module: it hands over a kernel and the
// instruction sets, and nothing else.
func foreignMain() {
	lab := command.Lab{Kernels: []attn.Kernel{foreign{naive.New()}}, Sets: asm.Levels(), Effort: command.Effort{Harness: command.Quickly, Readings: 3, Tries: 10}}
	os.Exit(command.Main(lab, os.Args[1:], os.Stdout, os.Stderr))
}

// A foreign kernel does plain softmax attention and nothing else.
type foreign struct{ attn.Kernel }

func (foreign) Name() (algo, isa string) { return "foreign", "go" }

func (k foreign) Check(p attn.Problem, workers int) (int64, error) {
	if err := p.Require("foreign/go", attn.NeedSoftmax); err != nil {
		return 0, err
	}
	return k.Kernel.Check(p, workers)
}

func (k foreign) Plan(p attn.Problem, team *attn.Team) (attn.Plan, error) {
	if _, err := k.Check(p, team.Workers()); err != nil {
		return nil, err
	}
	return k.Kernel.Plan(p, team)
}

// TestForeignKernel checks that a kernel of another module is listed, verified and swept through
// Main, and that what its program was not handed is refused by name.
func TestForeignKernel(t *testing.T) {
	t.Parallel()
	self := processtest.Self(t)
	dir := filepath.Join(t.TempDir(), "r")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list", 0, "foreign  go"},
		{"verify --core", 0, "1 kernels, "},
		{"sweep --seq 8,16 --mask full,causal --samples 2 --dim 8 -o " + dir, 0, "foreign  go "},
		{"sweep --kernel flash", 4, "--kernel flash: not known here; one of foreign"},
		{"sweep --peer a=b", 4, "--peer: this program takes no peers"},
		{"sweep --layer mha --seq 8 --mask full -o " + dir + "-layer", 0, "layer mha: this program has no layers"},
		{"equations", 4, "this program has no equations"},
	} {
		var out, errs bytes.Buffer
		cmd := &exec.Cmd{Path: self, Args: append([]string{"foreignrun"}, strings.Fields(c.args)...), Stdout: &out, Stderr: &errs}
		if _, failed := cmd.Run().(*exec.ExitError); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code || failed != (c.code != 0) {
			t.Errorf("%s: %v, want exit code %d\n%s%s", c.args, cmd.ProcessState, c.code, &out, &errs)
		}
		if !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%s: %q is not in\n%s%s", c.args, c.want, &out, &errs)
		}
	}
	r, err := run.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rows := r.Rows(); len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
	for _, w := range r.Rows() {
		if w.Kernel != "foreign" || w.Status != run.OK || w.Samples != 2 {
			t.Errorf("%s: %s %q, %v samples, want 2", w.Name(), w.Status, w.Note, w.Samples)
		}
	}
}
