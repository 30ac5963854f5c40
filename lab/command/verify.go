package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/verify"
)

// VerifyCmd compares kernels with the float64 definition.
type VerifyCmd struct {
	Peers
	Kernel  []string      `placeholder:"NAME" help:"Kernels; default all. Example: flash,linear."`
	ISA     []string      `name:"isa" placeholder:"NAME" help:"Instruction sets; default all of this machine. Example: go,avx2."`
	Pass    string        `default:"both" enum:"forward,backward,both" placeholder:"PASS" help:"forward, backward or both (${default})."`
	Cases   string        `placeholder:"PATH" help:"Also run outside cases: ONNX node tests as JSON, a file or a folder of *.json."`
	Core    bool          `help:"Only the quick subset of the cases."`
	Timeout time.Duration `default:"2m" help:"Fail a case that takes longer (${default})."`
}

// Help is printed above the flags.
func (*VerifyCmd) Help() string {
	return `The table shows the worst error of each kernel in each family of cases, relative to the error that float32 arithmetic may leave: 1 is the limit. A
kernel must refuse exactly the cases that it does not claim to do. A family of which it does none is shown as -.

Outside cases (--cases) are node tests of ONNX operators. Kernels answer Attention, LinearAttention, RotaryEmbedding, Softmax and LogSoftmax. The layers of
package nn answer LayerNormalization and RMSNormalization, on the instruction sets of these kernels. Other operators are listed as unsupported.

Families: ` + cases.Explained() + "."
}

// Run verifies, and is exit 1 if any answer is wrong.
func (c *VerifyCmd) Run(to streams, lab Lab) error {
	lab, _, err := c.among(lab, c.Timeout)
	if err != nil {
		return err
	}
	defer lab.close()
	picked, err := lab.pick(c.Kernel, c.ISA)
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
	client, err := newClient(c.Timeout, c.Peers)
	if err != nil {
		return err
	}
	defer client.Close()
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
		n, err := verifyCases(ctx, stop, client, picked, ofPass(pass, list), to.Out)
		if err != nil {
			return err
		}
		wrong += n
	}
	if c.Cases != "" {
		more, err := lab.verifyOutside(ctx, stop, client, picked, c.Cases, outside, to.Out)
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

// passes returns the passes that a value of --pass names.
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
func (l Lab) pick(algos, isas []string) ([]attn.Kernel, error) {
	if err := known("kernel", algos, algorithms(l.Kernels)); err != nil {
		return nil, err
	}
	if err := known("isa", isas, l.knownISAs()); err != nil {
		return nil, err
	}
	var picked []attn.Kernel
	for _, k := range l.Kernels {
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

// verifyCases tries every case on every kernel in a worker process, prints the worst of each
// family, and returns the number of wrong answers. If it is interrupted it prints what it knows.
func verifyCases(ctx context.Context, stop <-chan struct{}, w verify.Worker, picked []attn.Kernel, list []cases.Case, out io.Writer) (wrong int, err error) {
	t, err := verify.Cases(ctx, stop, w, picked, list)
	if t == nil {
		return 0, err
	}
	return t.Wrong, errors.Join(t.WriteText(out), incomplete(err))
}

// verifyOutside runs the cases that were read from path on every kernel, and normalisations with
// every instruction set of the kernels. It prints a report and returns the number of wrong answers.
func (l Lab) verifyOutside(ctx context.Context, stop <-chan struct{}, w verify.Worker, picked []attn.Kernel, path string, list []cases.Outside, out io.Writer) (wrong int, err error) {
	outside := verify.Outside{Path: path, List: list}
	if l.Layers != nil {
		for _, set := range l.Sets.Of(picked) {
			outside.Norms = append(outside.Norms, func(o *cases.Outside) verify.Finding { return l.Layers.Norm(set, o) })
		}
	}
	r, err := outside.Run(ctx, stop, w, picked)
	if err != nil {
		return 0, incomplete(err)
	}
	return len(r.Wrong), r.WriteText(out)
}

// incomplete gives the error of an interrupted list of cases its exit code.
func incomplete(err error) error {
	if errors.Is(err, verify.ErrInterrupted) {
		return exitf(exitIncomplete, "%w", err)
	}
	return err
}
