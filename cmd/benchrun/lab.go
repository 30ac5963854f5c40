package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/peers"

	"github.com/alecthomas/kong"
)

// A kernelList is every kernel that a command line may speak of.
type kernelList []attn.Kernel

// allKernels lists those of this build: the module's, behind a mutant_* build tag a wrong one,
// which verification must find, and behind the tag slow some that waste time, which ab must catch,
// and a fault in one cell, which gate must name.
func allKernels() kernelList { return slices.Concat(faulty(kernels.All()), mutant(), slowed()) }

// Peers is the flag that names programs which compete besides.
type Peers struct {
	Peer []string `placeholder:"NAME=COMMAND" help:"A program that is not ours and competes as kernel NAME/native, such as 'onnxruntime=node peers/onnxruntime/peer.mjs'; several are separated by commas. Reports show NAME and the program's name, never its arguments. Package peers says what such a program does."`
}

// among adds the peers to the kernels of this build, each exchange with them bounded by timeout,
// and returns what each says it is. That is empty for one that does not say it: whatever is asked
// of it fails, for the same reason. Whoever calls it closes the list.
func (c *Peers) among(all kernelList, timeout time.Duration) (both kernelList, about map[string]string, err error) {
	if both, err = c.join(all); err != nil {
		return nil, nil, err
	}
	about = map[string]string{}
	for _, k := range both[len(all):] {
		name, _ := k.Name()
		peer := k.(*peers.Kernel)
		peer.Timeout = timeout
		about[name], _ = peer.About()
	}
	return both, about, nil
}

// join is among without starting any of them. A worker's are to start on the CPU on which they are
// timed. Messages do not repeat what may be secret.
func (c *Peers) join(all kernelList) (kernelList, error) {
	all = slices.Clone(all)
	for i, spec := range c.Peer {
		k, err := peers.Parse(spec)
		if err != nil {
			return nil, exitf(exitUsage, `--peer, value %d of %d: %w; a comma in it is written \,`, i+1, len(c.Peer), err)
		}
		if name, _ := k.Name(); slices.Contains(algorithms(all), name) {
			return nil, exitf(exitUsage, "--peer %s: there is a kernel of this name, choose another", name)
		}
		all = append(all, k)
	}
	return all, nil
}

// sum is the SHA-256 of the flag, empty if it is not given: a run keeps it in place of arguments
// that may be secret.
func (c *Peers) sum() string {
	if len(c.Peer) == 0 {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(kong.JoinEscaped(c.Peer, ','))))
}

// close lets the programs end that peers have running.
func (l kernelList) close() {
	for _, k := range l {
		if c, ok := k.(io.Closer); ok {
			_ = c.Close() // all that was asked of it has been answered
		}
	}
}

// kill ends them at once.
func (l kernelList) kill() {
	for _, k := range l {
		if p, ok := k.(*peers.Kernel); ok {
			p.Kill()
		}
	}
}

// profileTime is how long a point runs under the profiler. Tests take less.
var profileTime = harness.ProfileTime

// newLab is what is handed to the harness.
func newLab(all kernelList) *harness.Lab {
	l := &harness.Lab{Kernels: all, Probes: probes(asm.Levels()), Profile: profileTime}
	if count, _, err := machine.Counters(); err == nil {
		l.Count = count
	}
	l.Workload = func(at run.Point) (*harness.Workload, error) {
		k, err := l.Kernel(at.Kernel, at.ISA)
		if err != nil {
			return nil, absent(l, at, err)
		}
		if at.Layer != "" {
			return layerWorkload(k, at)
		}
		return harness.Attention(k, at)
	}
	return l
}

// absent says why there is no such kernel: the instruction set is not to be had here, or the
// algorithm has no form for it.
func absent(l *harness.Lab, at run.Point, err error) error {
	for _, v := range asm.Levels() {
		if v.ISA == at.ISA && !v.Available {
			return fmt.Errorf("%s: %s", v.ISA, v.Reason)
		}
	}
	if isas := isasOf(l.Kernels, at.Kernel); len(isas) > 0 {
		return fmt.Errorf("%s has no %s form, only %s", at.Kernel, at.ISA, strings.Join(isas, ", "))
	}
	return err
}

// probes chooses the probe a point is judged by: its own instruction set's, and for loops that are
// not ours the fastest of this machine.
func probes(levels []asm.Level) func(run.Point) harness.Probes {
	return func(at run.Point) harness.Probes {
		ops := probed(levels, at)
		return harness.Probes{Peak: ops.Probe.Peak, Read: ops.Streamed.Probe.Read, Chain: ops.Probe.Chain, Slots: ops.Probe.Slots}
	}
}

// probed are the loops of the instruction set that a point is judged by.
func probed(levels []asm.Level, at run.Point) *asm.Ops {
	var best *asm.Ops
	for _, v := range levels {
		if !v.Available {
			continue
		}
		best = v.Ops // they stand in order of speed
		if v.ISA == at.ISA {
			break
		}
	}
	return best
}

// algorithms lists the names of kernels in order.
func algorithms(all []attn.Kernel) []string {
	var names []string
	for _, k := range all {
		if algo, _ := k.Name(); !slices.Contains(names, algo) {
			names = append(names, algo)
		}
	}
	return names
}

// isasOf lists the instruction sets that an algorithm has here.
func isasOf(all []attn.Kernel, algo string) []string {
	var names []string
	for _, k := range all {
		if a, isa := k.Name(); a == algo {
			names = append(names, isa)
		}
	}
	return names
}

// knownISAs lists every instruction set that a flag may name: the levels, here or not, and what
// else kernels run on.
func knownISAs(all []attn.Kernel) []string {
	var names []string
	for _, v := range asm.Levels() {
		names = append(names, v.ISA)
	}
	for _, k := range all {
		if _, isa := k.Name(); !slices.Contains(names, isa) {
			names = append(names, isa)
		}
	}
	return names
}

// availableISAs lists the levels that run here, portable first.
func availableISAs() []string {
	var names []string
	for _, v := range asm.Levels() {
		if v.Available {
			names = append(names, v.ISA)
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
