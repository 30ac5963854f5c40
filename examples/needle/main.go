// Command needle plants a value under a key among n others and asks for it by its key: what do
// softmax and linear attention retrieve as n grows? See README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("needle", needle) }
