//go:build mutant_rescale_out

package main

const mutantName = "rescale_out"
