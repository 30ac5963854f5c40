package equations

// models is the rows on what is built from attention.
func models() []Row {
	wait := func(id, statement string) Row {
		return Row{ID: id, Statement: statement, Is: Pending, Of: []string{"package nn"}}
	}
	return []Row{
		wait("T-34..36", "Q^hia = Q^ib W_Q^hba, and so for K and V: each head sees a projection of its own"),
		wait("T-40", "Y^ia = sum_hc O^hic W_O^hca: heads are joined by a projection"),
		wait("T-41", "diversity = 1 - mean cosine of the patterns of two heads"),
		wait("P-51..57", "self-attention and its heads on one input X"),
		wait("P-6.2", "multi-head attention has 4 d_model^2 parameters"),
		wait("P-58", "Q_h = X W_Q^h lies in a subspace of d_k dimensions"),
		wait("D-self/cross", "self-attention has n_q = n_k; cross-attention need not"),
		wait("D-mha", "split into heads, attend, join, project"),
		wait("N-mha", "multi-head attention"),
		wait("L-2.3", "self-attention: Q = X W_Q, K = X W_K, V = X W_V"),
		wait("L-3.1", "MultiHead(Q, K, V) = Concat(head_1 ... head_h) W^O"),
		wait("L-3.3", "parameters of single-head and of multi-head attention"),
		wait("L-5.4", "a cache of keys and values makes a step O(t d)"),
		wait("L-6.3", "cross-attention: queries of the decoder, keys and values of the encoder"),
		wait("L-6.4", "mixture of experts: G = softmax(x W_g), the sum over the k largest"),
		wait("L-P2", "a multi-head layer, causal, with its gradients checked"),
		wait("L-P5", "an encoder block that learns to classify sequences"),
		wait("M-multihead", "multihead_attention and what stands around it"),
	}
}
