//go:build race

package harness_test

// raced reports that the race detector runs. It keeps several bytes for each byte of the program.
const raced = true
