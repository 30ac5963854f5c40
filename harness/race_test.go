//go:build race

package harness_test

// raced: the race detector keeps several bytes of its own for each byte of the program.
const raced = true
