// Command heads draws what the heads of a layer attend to, how spread out their weights are, and
// how similar the heads are. It compares a layer built by hand, an untrained one and a trained one.
// See README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("heads", look) }
