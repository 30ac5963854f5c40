package naive_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/naive"
)

// TestNaive runs the suite on naive.
func TestNaive(t *testing.T) {
	attntest.Run(t, naive.New(), attn.AllSoftmax, attntest.Options{})
}
