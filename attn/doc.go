// Package attn is the vocabulary of attnlab: what an attention problem is, what its operands look like, and what a kernel promises. No
// kernel lives here.
//
// # The problem
//
// For every batch b, query head h and query row i, with kv = h / (HeadsQ/HeadsKV) the key head that h shares,
//
//	s_j = scale * q_i . k_j + bias_j        the score of every visible key j
//	z_j = s_j / T                           T is the temperature
//	p_j = exp(z_j) / sum_j exp(z_j)         the weights: non-negative, summing to 1
//	o_i = sum_j p_j v_j                     the output row
//
// and the by-products of a row are
//
//	LSE     = log sum_j exp(z_j)            natural logarithm
//	Mean    = sum_j p_j s_j                 the expected score
//	Entropy = LSE - sum_j p_j z_j           of the weights, in nats, at least 0
//	F       = -T * LSE                      the free energy, which is derived and not stored
//
// A linear problem replaces exp(z) by a product of features (type Linear).
//
// # Layout
//
// A Tensor is a strided view of a [batch, sequence, head, dim] array. Only the last dimension must be contiguous, so the layouts that
// real programs use are views of one another, and no kernel copies to change layout:
//
//	BSHD     b0 [ s0 [ h0 d.... | h1 d.... ] s1 [ h0 d.... | h1 d.... ] ... ]       SS = H*D   SH = D
//	BHSD     b0 [ h0 [ s0 d.... | s1 d.... ] h1 [ s0 d.... | s1 d.... ] ... ]       SS = D     SH = S*D
//	packed   b0 [ s0 [ q0 q1 q2 q3 | k0 k1 | v0 v1 ] s1 [ q0 q1 ... ] ... ]          three views of one slab, one SS
//	broadcast    a zero stride: the same row for every index of that dimension
//
// Stats, bias and mask follow the same order: a row value such as LSE is [batch, query, head, 1], weights and bias are
// [batch, query, head, key].
//
// # Conventions
//
//   - Positions. Query row i of batch b stands at position QPos[b]+i if positions are given; otherwise bottom-right alignment puts the
//     last query on the last key in use (position nk-nq+i), and top-left puts query i on key i. Positions may be negative.
//   - Masks. A band shows keys pos-Left <= j <= pos+Right; Causal is Left unbounded, Right 0; Window(0, 0) is the query's own key alone.
//     Constructors elsewhere that count the query itself subtract one. Mask.Keys turns a position into an interval of keys.
//   - Masks select, they never multiply: NaN or Inf behind a mask does not leak. NaN in a visible operand propagates to its row alone.
//   - A query with no visible key has a zero output row, LSE -Inf, Mean and Entropy 0 and zero weights.
//   - Infinite scores: -Inf has weight 0. A single +Inf takes all the weight: the output is that key's value row, LSE and Mean are +Inf,
//     Entropy 0. Two or more +Inf, or a NaN, make every number of the row NaN. A row whose visible scores are all -Inf is a row with no
//     visible key.
//   - Temperature. 0 means 1. Frozen is the limit T -> 0: the largest score takes all the weight, ties share it evenly. +Inf is the limit
//     of high temperature: visible keys share the weight evenly, -Inf scores excepted. In both limits Mean and Entropy are the limits of
//     their finite values; LSE diverges as T -> 0 and is refused there.
//   - Sizes in a Problem are capacities. A call may bring fewer query rows (Q.S <= SeqQ) or keys (K.S <= SeqKV, or KLen), so decoding
//     never replans. Zero-size problems are valid and do nothing.
//   - Bad input is an error from Check and Plan, or one checked panic from Forward whose text names the operand; it is never a wrong
//     answer. Out and Stats must not overlap an operand.
//   - Same bits. For one kernel, instruction set and Problem.SeqQ path, an output row is a function of its query, its visible keys and
//     their absolute index only: not of the thread count, batch mates, layout or neighbouring rows.
package attn
