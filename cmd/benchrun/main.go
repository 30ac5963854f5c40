// Command benchrun measures attention kernels: which are right, which is fastest at which length on
// this machine, and what they cost in memory. See benchrun --help.
package main

import (
	"fmt"
	"os"

	"attnlab/kernels"
	"attnlab/kernels/asm"
	"attnlab/lab/command"
	"attnlab/lab/layer"
	"attnlab/lab/sabotage"
	"attnlab/peers"
	"attnlab/theory/equations"
)

func main() {
	all, sets := kernels.All(), asm.Levels()
	layers := &layer.Layers{Sets: sets, Reference: all[0]}
	all, err := sabotage.Kernels(all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchrun:", err)
		os.Exit(4) // a usage error, as of every command
	}
	lab := command.Lab{Kernels: all, Sets: sets, Equations: equations.Table(), Peers: peers.Parse, Layers: layers}
	os.Exit(command.Main(lab, os.Args[1:], os.Stdout, os.Stderr))
}
