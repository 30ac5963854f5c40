package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/kernels/asm"
)

// ListCmd lists what there is to measure.
type ListCmd struct{ Peers }

// Run lists it. What a kernel can do is found out by asking it.
func (c *ListCmd) Run(to streams, all kernelList) error {
	all, _, err := c.among(all)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(to.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KERNEL\tISA\tDOES")
	type kind struct {
		algo string
		have attn.Needs
	}
	var any attn.Needs
	var kinds []kind
	isas := map[kind][]string{}
	for _, k := range all {
		algo, isa := k.Name()
		it := kind{algo, harness.Powers(k)}
		any |= it.have
		if isas[it] == nil {
			kinds = append(kinds, it)
		}
		isas[it] = append(isas[it], isa)
	}
	for _, it := range kinds {
		fmt.Fprintf(t, "%s\t%s\t%v\n", it.algo, strings.Join(isas[it], ", "), it.have)
	}
	fmt.Fprintln(t, "\nISA\tHERE\tKERNELS")
	for _, v := range asm.Levels() {
		here := "yes"
		if !v.Available {
			here = "no: " + v.Reason
		}
		var algos []string
		for _, k := range all {
			if algo, isa := k.Name(); isa == v.ISA {
				algos = append(algos, algo)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.ISA, here, strings.Join(algos, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(to.Out, "\nNo kernel does: %v.\n", attn.AllNeeds&^any)
	return nil
}
