// Command classify trains a small transformer encoder to classify sequences by their most frequent
// letter, by their first letter, or by whether their brackets are balanced. See README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("classify", classify) }
