//go:build mutant_causal_off_by_one

package main

const mutantName = "causal_off_by_one"
