package command

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/harness/verify"
	"attnlab/kernels/asm"
	"attnlab/lab/sets"
	"attnlab/lab/survey"
	"attnlab/peers"
	"attnlab/theory/equations"

	"github.com/alecthomas/kong"
)

// A Lab is what a program measures, and what it measures by. Kernels and Sets are needed; a command
// that asks for anything else that is not there says so.
type Lab struct {
	// Kernels are what competes. Kernels of one algorithm stand in order of speed, the portable one
	// first.
	Kernels []attn.Kernel
	// Sets are the known instruction sets, whether this machine has them or not: asm.Levels().
	// Points are judged by their probes.
	Sets sets.Sets
	// Equations are the rows of benchrun equations.
	Equations []equations.Row
	// Peers makes a kernel of what --peer names: peers.Parse.
	Peers func(spec string) (*peers.Kernel, error)
	// Layers make workloads of layers, for --layer.
	Layers Layers
	// Effort says how long measurements take.
	Effort Effort
}

// Layers make workloads of layers around kernels. Package lab/layer has some.
type Layers interface {
	// Workload returns the workload of the layer at a point, around a kernel.
	Workload(k attn.Kernel, at run.Point) (*harness.Workload, error)
	// Norm runs an outside case of a normalisation with the loops of an instruction set.
	Norm(set asm.Level, o *cases.Outside) verify.Finding
}

// An Effort says how long measurements take. A zero field is the default.
type Effort struct {
	// Harness is the effort of samples, probes and profiles.
	Harness harness.Effort
	// Readings and Tries are those of a survey.Surveyor, which has their defaults.
	Readings, Tries int
}

// surveyor measures this machine.
func (l Lab) surveyor() *survey.Surveyor {
	return &survey.Surveyor{Sets: l.Sets, Effort: l.Effort.Harness, Readings: l.Effort.Readings, Tries: l.Effort.Tries}
}

// Peers is the flag that names programs which compete besides.
type Peers struct {
	Peer []string `placeholder:"NAME=COMMAND" help:"A program of another library, which competes as kernel NAME/native. Example: 'onnxruntime=node peers/onnxruntime/peer.mjs'. Separate several by commas. Reports show NAME and the program's name, never its arguments. The doc of package peers describes such programs."`
}

// among adds the peers to the kernels of a lab, and returns what each says it is. That is empty for
// a peer that does not say it: whatever it is asked fails for the same reason. Each exchange with a
// peer takes at most timeout. The caller closes the lab that is returned.
func (c *Peers) among(lab Lab, timeout time.Duration) (with Lab, about map[string]string, err error) {
	if with, err = c.join(lab); err != nil {
		return lab, nil, err
	}
	about = map[string]string{}
	for _, k := range with.Kernels[len(lab.Kernels):] {
		name, _ := k.Name()
		peer := k.(*peers.Kernel)
		peer.Timeout = timeout
		about[name], _ = peer.About()
	}
	return with, about, nil
}

// join adds the peers without starting them: those of a worker start on the CPU on which they are
// timed. Its messages do not repeat what may be secret.
func (c *Peers) join(lab Lab) (Lab, error) {
	lab.Kernels = slices.Clone(lab.Kernels)
	for i, spec := range c.Peer {
		if lab.Peers == nil {
			return lab, exitf(exitUsage, "--peer: this program takes no peers, leave the flag out")
		}
		k, err := lab.Peers(spec)
		if err != nil {
			return lab, exitf(exitUsage, `--peer, value %d of %d: %w; a comma in it is written \,`, i+1, len(c.Peer), err)
		}
		if name, _ := k.Name(); slices.Contains(algorithms(lab.Kernels), name) {
			return lab, exitf(exitUsage, "--peer %s: there is a kernel of this name, choose another", name)
		}
		lab.Kernels = append(lab.Kernels, k)
	}
	return lab, nil
}

// sum returns the SHA-256 of the flag, or nothing if it is not given. A run keeps it in place of
// arguments that may be secret.
func (c *Peers) sum() string {
	if len(c.Peer) == 0 {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(kong.JoinEscaped(c.Peer, ','))))
}

// close lets the programs of peers end.
func (l Lab) close() {
	for _, k := range l.Kernels {
		if c, ok := k.(io.Closer); ok {
			_ = c.Close() // all that was asked of it has been answered
		}
	}
}

// kill ends the programs of peers at once.
func (l Lab) kill() {
	for _, k := range l.Kernels {
		if p, ok := k.(*peers.Kernel); ok {
			p.Kill()
		}
	}
}

// server returns what a worker process serves. Its parent uses the workloads. It makes each point's
// workload once.
func (l Lab) server() *harness.Server {
	s := &harness.Server{Kernels: l.Kernels, Probes: survey.Probes(l.Sets), Effort: l.Effort.Harness}
	if count, _, err := machine.Counters(); err == nil {
		s.Count = count
	}
	type made struct {
		work *harness.Workload
		err  error
	}
	known := map[run.Point]made{}
	s.Workload = func(at run.Point) (*harness.Workload, error) {
		m, ok := known[at]
		if !ok {
			m.work, m.err = l.workload(at)
			known[at] = m
		}
		return m.work, m.err
	}
	return s
}

// workload makes the workload of a point.
func (l Lab) workload(at run.Point) (*harness.Workload, error) {
	k, err := harness.Find(l.Kernels, at.Kernel, at.ISA)
	switch {
	case err != nil:
		return nil, l.absent(at, err)
	case at.Layer == "":
		return harness.Attention(k, at)
	case l.Layers == nil:
		return nil, fmt.Errorf("layer %s: this program has no layers", at.Layer)
	}
	return l.Layers.Workload(k, at)
}

// absent says why there is no such kernel: the machine lacks the instruction set, or the algorithm
// has no form for it.
func (l Lab) absent(at run.Point, err error) error {
	if set, ok := l.Sets.Level(at.ISA); ok && !set.Available {
		return fmt.Errorf("%s: %s", set.ISA, set.Reason)
	}
	if isas := isasOf(l.Kernels, at.Kernel); len(isas) > 0 {
		return fmt.Errorf("%s has no %s form, only %s", at.Kernel, at.ISA, strings.Join(isas, ", "))
	}
	return err
}

// algorithms lists the names of algorithms, in the order of the kernels.
func algorithms(all []attn.Kernel) []string {
	var names []string
	for _, k := range all {
		if algo, _ := k.Name(); !slices.Contains(names, algo) {
			names = append(names, algo)
		}
	}
	return names
}

// isasOf lists the instruction sets of an algorithm's kernels.
func isasOf(all []attn.Kernel, algo string) []string {
	var names []string
	for _, k := range all {
		if a, isa := k.Name(); a == algo {
			names = append(names, isa)
		}
	}
	return names
}

// knownISAs lists every instruction set that a flag may name: the lab's sets, whether this machine
// has them or not, and what else kernels run on.
func (l Lab) knownISAs() []string {
	var names []string
	for _, v := range l.Sets {
		names = append(names, v.ISA)
	}
	for _, k := range l.Kernels {
		if _, isa := k.Name(); !slices.Contains(names, isa) {
			names = append(names, isa)
		}
	}
	return names
}

// known refuses a name that is not in the list.
func known(flag string, names, list []string) error {
	for _, n := range names {
		if !slices.Contains(list, n) {
			return exitf(exitUsage, "--%s %s: not known here; one of %s", flag, n, strings.Join(list, ", "))
		}
	}
	return nil
}
