// Command heads draws what the heads of a layer look at, how spread out each is, and how much alike
// they are: of a layer built by hand, and of one before and after it is trained. See README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("heads", look) }
