//go:build mutant_drop_tail

package main

const mutantName = "drop_tail"
