// Command needle stores a value under one of n keys and asks for it by its key. It compares what
// softmax and linear attention retrieve as n grows. See README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("needle", needle) }
