// Package streaming is softmax attention that meets its keys a block at a time, in float64: the
// online softmax and the block-wise attention of the paper's section 8, in the order in which a
// fast kernel does it, with nothing that makes it fast.
//
// A softmax seems to need all scores before the first weight is known, since each weight is divided
// by the sum of all. But what the scores seen so far add up to is three things: the largest one, m,
// the sum l, and the output before division, acc,
//
//	m = max_j s_j        l = sum_j exp(s_j - m)        acc = sum_j exp(s_j - m) v_j
//
// and a block of further scores changes them by
//
//	m'   = max(m, max_j s_j)
//	l'   = l exp(m - m') + sum_j exp(s_j - m')
//	acc' = acc exp(m - m') + sum_j exp(s_j - m') v_j
//
// At the end the output is acc / l and log sum_j exp(s_j) = m + log l. Subtracting m is not for
// safety alone: with it, no exponential is larger than 1. State is these three; Merge, which joins
// two of them, is what both lines above are cases of. It is commutative, and associative up to
// rounding, so that parts of the keys can be seen in any order, or on different machines.
//
// Attend goes over a problem in blocks of queries and keys and holds one block of scores: besides
// the output and one number a query (LSE), its memory does not grow with the length (the paper's
// O(n) is that one number: the output is n d_v more, E-37). Backward makes the weights once more
// from the LSE,
//
//	P_ij = exp(S_ij - LSE_i)        D_i = sum_b dO_ib O_ib = sum_j P_ij dP_ij
//	dS_ij = P_ij (dO_i.V_j - D_i)   dV_j = sum_i P_ij dO_i   dQ_i = scale sum_j dS_ij K_j   dK_j = scale sum_i dS_ij Q_i
//
// from Q, K, V, O, LSE and dO alone, and no more than a block of it at a time.
//
// # Guards
//
// The paper starts from m = -Inf and ends with acc / l (E-15). Where the first block is all hidden
// that is exp(-Inf + Inf), NaN, in a row that is sound, and where all blocks are, 0/0. Here a part
// without visible keys has no weight, whatever it is merged with, and a row without any has output
// 0 and LSE -Inf. Infinite scores follow package attn: -Inf is a hidden key, a single +Inf takes
// all the weight, and two of them, or a NaN, make the row NaN.
package streaming
