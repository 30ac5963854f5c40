// Command charlm trains a small character model on what this repository says about itself, and lets
// it write. See README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("charlm", charlm) }
