//go:build mutant_grad_last_of_group

package main

const mutantName = "grad_last_of_group"
