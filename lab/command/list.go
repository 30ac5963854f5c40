package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/verify"
	"attnlab/peers"
)

// ListCmd lists kernels and instruction sets.
type ListCmd struct {
	Peers
	Timeout time.Duration `default:"2m" help:"Give a peer up if it takes longer to say what it is (${default})."`
}

// Help is printed above the flags.
func (*ListCmd) Help() string {
	return `Some kernels choose by the CPU how they compute. Such a kernel is shown with its path: the choices that change its bits, such as exp=reduced. Rows of
different paths are those of different kernels: sweep --resume does not mix them, and ab, compare and gate do not compare them.`
}

// Run prints the lists. It asks each kernel what it can do. A peer that does not say what it is is
// listed with its error.
func (c *ListCmd) Run(to streams, lab Lab) error {
	lab, about, err := c.among(lab, c.Timeout)
	if err != nil {
		return err
	}
	defer lab.close()
	silent := 0
	t := tabwriter.NewWriter(to.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KERNEL\tISA\tDOES")
	type kind struct {
		algo string
		does string
	}
	var any attn.Needs
	var kinds []kind
	isas := map[kind][]string{}
	for _, k := range lab.Kernels {
		algo, isa := k.Name()
		have := verify.Powers(k)
		any |= have
		it := kind{algo, have.String()}
		if text, peer := about[algo]; peer && text == "" {
			_, err := k.(*peers.Kernel).About()
			it.does = err.Error()
			silent++
		}
		if isas[it] == nil {
			kinds = append(kinds, it)
		}
		isas[it] = append(isas[it], isa)
	}
	for _, it := range kinds {
		fmt.Fprintf(t, "%s\t%s\t%s\n", it.algo, strings.Join(isas[it], ", "), it.does)
	}
	fmt.Fprintln(t, "\nISA\tHERE\tKERNELS")
	for _, v := range lab.Sets {
		here := "yes"
		if !v.Available {
			here = "no: " + v.Reason
		}
		var algos []string
		for _, k := range lab.Kernels {
			if algo, isa := k.Name(); isa == v.ISA {
				algos = append(algos, algo)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.ISA, here, strings.Join(algos, ", "))
	}
	if paths := harness.Paths(lab.Kernels); len(paths) > 0 {
		fmt.Fprintln(t, "\nKERNEL\tPATH")
		for _, name := range slices.Sorted(maps.Keys(paths)) {
			fmt.Fprintf(t, "%s\t%s\n", name, paths[name])
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if lack := attn.AllNeeds &^ any; lack != 0 {
		fmt.Fprintf(to.Out, "\nNo kernel does: %v.\n", lack)
	}
	if silent > 0 {
		return exitf(exitIncomplete, "%d of %d peers do not say what they are", silent, len(about))
	}
	return nil
}
