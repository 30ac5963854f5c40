//go:build !race

package harness_test

const raced = false
