// Package streaming computes softmax attention one block of keys at a time, in float64. It is the
// online softmax and block-wise attention of the paper's section 8: the order of a fast kernel,
// without its optimisations.
//
// A softmax seems to need all scores before the first weight, because each weight is divided by the
// sum over all keys. But three things summarise the scores seen so far: the largest one, m, the sum
// l, and the output before division, acc,
//
//	m = max_j s_j        l = sum_j exp(s_j - m)        acc = sum_j exp(s_j - m) v_j
//
// and a block of further scores changes them to
//
//	m'   = max(m, max_j s_j)
//	l'   = l exp(m - m') + sum_j exp(s_j - m')
//	acc' = acc exp(m - m') + sum_j exp(s_j - m') v_j
//
// At the end the output is acc / l, and log sum_j exp(s_j) = m + log l. Subtracting m keeps every
// exponential at 1 or below. A State is these three numbers. Merge joins two states; both sets of
// formulas above are special cases of it. It is commutative, and associative up to rounding. So
// parts of the keys can be processed in any order, or on different machines.
//
// Attend runs over blocks of queries and keys, and holds one block of scores. Besides the output
// and one number for each query (LSE), its memory does not grow with the length. The paper's O(n)
// is that one number; the output adds n d_v (E-37). Backward recomputes the weights from the LSE,
//
//	P_ij  = exp(S_ij - LSE_i)
//	D_i   = sum_b dO_ib O_ib = sum_j P_ij dP_ij
//	dS_ij = P_ij (dO_i.V_j - D_i)
//	dV_j  = sum_i P_ij dO_i
//	dQ_i  = scale sum_j dS_ij K_j
//	dK_j  = scale sum_i dS_ij Q_i
//
// using only Q, K, V, O, LSE and dO, and holds one block at a time.
//
// # Guards
//
// The paper starts from m = -Inf and ends with acc / l (E-15). If the first block is all hidden,
// that computes exp(-Inf + Inf) = NaN in a valid row; if all blocks are, 0/0. Here a part without
// visible keys has no weight in any merge, and a row without visible keys has output 0 and LSE
// -Inf. Infinite scores follow package attn: -Inf is a hidden key, and a single +Inf takes all the
// weight. Two of them, or a NaN, make the row NaN.
package streaming
