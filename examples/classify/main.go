// Command classify trains a small transformer encoder to say what class a sequence is of: which
// letter is the most frequent, which one is the first, or whether its brackets are balanced. See
// README.md.
package main

import "attnlab/examples/internal/program"

func main() { program.Main("classify", classify) }
