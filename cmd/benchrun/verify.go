package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness"
)

// VerifyCmd compares kernels with the definition.
type VerifyCmd struct {
	Peers
	Kernel  []string      `placeholder:"NAME" help:"Kernels; default all."`
	ISA     []string      `name:"isa" placeholder:"NAME" help:"Instruction sets; default all that are here."`
	Pass    string        `default:"both" enum:"forward,backward,both" placeholder:"PASS" help:"forward, backward or both (${default})."`
	Cases   string        `placeholder:"PATH" help:"Run outside cases besides: ONNX node tests as JSON, a file or a folder of *.json."`
	Core    bool          `help:"Only the quick subset of the cases."`
	Timeout time.Duration `default:"2m" help:"Give a case up when it takes longer (${default})."`
}

// Help is printed above the flags.
func (*VerifyCmd) Help() string {
	return `The table shows the worst error of each kernel in each family of cases, as a part of what float32 arithmetic may leave: 1 is the limit. A
kernel that does not do what a case asks for must say so, exactly there; - is a family that a kernel does nothing of.

Outside cases (--cases) are of Attention, LinearAttention, RotaryEmbedding, Softmax and LogSoftmax, which kernels answer, and of LayerNormalization and
RMSNormalization, which the layers of package nn answer on the instruction sets of these kernels. Whatever else there is, is named as unsupported.

Families: ` + cases.Explained() + "."
}

// Run verifies, and is exit 1 if any answer is wrong.
func (c *VerifyCmd) Run(to streams, all kernelList) error {
	all, _, err := c.among(all, c.Timeout)
	if err != nil {
		return err
	}
	defer all.close()
	picked, err := pick(all, c.Kernel, c.ISA)
	if err != nil {
		return err
	}
	var outside []cases.Outside
	if c.Cases != "" {
		if c.Cases, err = filepath.Abs(c.Cases); err != nil {
			return err
		}
		if outside, err = cases.ReadONNX(c.Cases); err != nil {
			return exitf(exitUsage, "--cases: %w", err)
		}
	}
	child, err := newChild(c.Timeout, c.Peers)
	if err != nil {
		return err
	}
	defer child.Close()
	list := cases.All()
	if c.Core {
		list = cases.Core()
	}
	ctx, stop, release := interruptible(to.Err)
	defer release()
	wrong := 0
	for _, pass := range passes(c.Pass) {
		if c.Pass != "forward" {
			fmt.Fprintln(to.Out, pass)
		}
		n, err := verify(ctx, stop, child, picked, ofPass(pass, list), to.Out)
		if err != nil {
			return err
		}
		wrong += n
	}
	if c.Cases != "" {
		more, err := verifyOutside(ctx, stop, child, picked, c.Cases, outside, to.Out)
		if err != nil {
			return err
		}
		wrong += more
	}
	if wrong > 0 {
		return exitf(exitWrong, "wrong answers: %d", wrong)
	}
	return nil
}

// passes are those that a value of --pass stands for.
func passes(pass string) []string {
	if pass == "both" {
		return []string{"forward", "backward"}
	}
	return []string{pass}
}

// ofPass are the cases of one pass. Those of the backward pass are the others with their gradients,
// as far as they can have any.
func ofPass(pass string, list []cases.Case) []cases.Case {
	var some []cases.Case
	for _, c := range list {
		ok := !c.Backward()
		if pass == "backward" {
			c, ok = c.Differentiated(attn.WantEntropy)
		}
		if ok {
			some = append(some, c)
		}
	}
	return some
}

// pick selects kernels by the values of --kernel and --isa.
func pick(all []attn.Kernel, algos, isas []string) ([]attn.Kernel, error) {
	if err := known("kernel", algos, algorithms(all)); err != nil {
		return nil, err
	}
	if err := known("isa", isas, knownISAs(all)); err != nil {
		return nil, err
	}
	var picked []attn.Kernel
	for _, k := range all {
		algo, isa := k.Name()
		if (len(algos) == 0 || slices.Contains(algos, algo)) && (len(isas) == 0 || slices.Contains(isas, isa)) {
			picked = append(picked, k)
		}
	}
	if len(picked) == 0 {
		return nil, exitf(exitUsage, "--kernel %s --isa %s: no such kernel is available here", strings.Join(algos, ","), strings.Join(isas, ","))
	}
	return picked, nil
}

// verify tries every case on every kernel in a worker process, prints the worst of each family, and
// counts the wrong answers. Interrupted, it prints what it knows.
func verify(ctx context.Context, stop <-chan struct{}, w harness.Worker, picked []attn.Kernel, list []cases.Case, out io.Writer) (wrong int, err error) {
	t := newTally(list)
	for _, k := range picked {
		algo, isa := k.Name()
		for _, c := range list {
			if harness.Stopped(ctx, stop) {
				return t.wrong, errors.Join(t.print(out), exitf(exitIncomplete, "interrupted at %s/%s: the table is of what was tried before", algo, isa))
			}
			f, err := w.Try(ctx, algo, isa, c)
			switch {
			case ctx.Err() != nil:
				continue
			case errors.Is(err, harness.ErrNoChild):
				return 0, err
			case err != nil:
				f = f.Broken(err)
			}
			t.add(f)
			if f.Late {
				break // or a kernel that hangs would take its time with every case
			}
		}
	}
	return t.wrong, t.print(out)
}

// A tally is the table of findings: kernels by families.
type tally struct {
	families []string
	kernels  []string
	cells    map[[2]string]*cell // kernel, family
	tried    int
	wrong    int
}

// A cell is one kernel on one family.
type cell struct {
	tried, wrong int
	worst        harness.Finding
}

func newTally(list []cases.Case) *tally {
	t := &tally{cells: map[[2]string]*cell{}}
	for _, c := range list {
		if !slices.Contains(t.families, c.Family) {
			t.families = append(t.families, c.Family)
		}
	}
	return t
}

func (t *tally) add(f harness.Finding) {
	kernel := f.Kernel + "/" + f.ISA
	if !slices.Contains(t.kernels, kernel) {
		t.kernels = append(t.kernels, kernel)
	}
	if f.Refused {
		return
	}
	at := [2]string{kernel, f.Family}
	c := t.cells[at]
	if c == nil {
		c = &cell{worst: f}
		t.cells[at] = c
	}
	c.tried++
	t.tried++
	if !f.Right() {
		c.wrong++
		t.wrong++
	}
	if !(f.Worst <= c.worst.Worst) {
		c.worst = f
	}
}

func (t *tally) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "err/tol\t%s\t\n", strings.Join(t.families, "\t"))
	var wrong strings.Builder
	for _, kernel := range t.kernels {
		fmt.Fprintf(w, "%s\t", kernel)
		for _, family := range t.families {
			switch c := t.cells[[2]string{kernel, family}]; {
			case c == nil:
				fmt.Fprint(w, "-\t")
			case c.wrong > 0:
				fmt.Fprint(w, "WRONG\t")
				fmt.Fprintf(&wrong, "wrong in %d of %d %s cases, worst: %v\n", c.wrong, c.tried, family, c.worst)
			default:
				fmt.Fprintf(w, "%.2f\t", c.worst.Worst)
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s%d kernels, %d calls compared with the definition, %d wrong\n", wrong.String(), len(t.kernels), t.tried, t.wrong)
	return err
}
