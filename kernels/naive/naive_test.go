package naive_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/kernels/naive"
)

func TestNaive(t *testing.T) {
	attntest.Run(t, naive.New(), attn.NeedSoftmax|attn.NeedWindow|attn.NeedBool|attn.NeedTemp|attn.NeedBias|attn.NeedLengths|
		attn.NeedLSE|attn.NeedMean|attn.NeedEntropy|attn.NeedWeights, attntest.Options{})
}
