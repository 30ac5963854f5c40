//go:build mutant_head_modulo

package main

const mutantName = "head_modulo"
