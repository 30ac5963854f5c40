// Package tensor evaluates index notation: arrays of any rank, contracted by a spec that names
// their indices, as the source documents write their equations. Nothing here is fast. Equations are
// parsed, explained and evaluated by their definition.
//
// # A spec
//
// A spec names the indices of each operand, one letter for each axis, and those of the result:
//
//	ia,ja->ij        S[i,j] = sum_a Q[i,a] K[j,a]
//
// By Einstein's convention, an index that is not in the result is summed over.
//
//	summed     a letter of the operands that is not in the result, however often it occurs: ij->i
//	           sums rows
//	free       a letter of the result. It may occur in several operands: ij,ij->ij is an
//	           elementwise product
//	repeated   a letter twice in one operand walks the diagonal: ii->i is the diagonal, ii-> the
//	           trace
//	no arrow   the result has the letters that occur once, in alphabetical order: ja,ia is
//	           ja,ia->ij, and ii is the trace
//	scalars    have no letters: a,a-> is a number, and ",ij->ij" multiplies by one
//	letters    may be of any alphabet, so μν->νμ is a spec. Blanks are ignored. Capitals come
//	           before small letters
//
// All occurrences of a letter have the same extent. An extent of 1 is not stretched, and there is
// no ellipsis.
//
// # Upper and lower indices
//
// An axis may be marked Up or Down, on the tensor (method Mark) or in the spec. There, ^ and _
// apply to the letters that follow them within an operand:
//
//	^a,_ab,^b->      u^a g_ab v^b
//	_ab,^b->_a       v_a = g_ab v^b
//
// A sum over marked indices must join an upper one with a lower one; its value is then the same in
// every basis. Two upper indices, two lower ones, or three of any kind are an error (ErrVariance),
// which names their operands. A metric fixes it: Lower and Raise. Unmarked axes are labels: a
// token, a head, or a component whose kind is not stated. No rule restricts their sums. A free
// index keeps its kind, and cannot be both.
//
// E-24: the source documents state this rule, but contract upper indices with upper ones
// throughout, for example in S^ij = Q^ia K^ja and dV^nb = A^in dO^ib. With plain letters such a
// spec gives the intended numbers: it implies a metric δ_ab, and token labels without a kind. The
// learned form of S = Q M Kᵀ has lower indices, M_ab, because both of its vectors have upper ones.
//
// # The notation of the source documents
//
//	i, j, m, n          positions of queries and keys; j runs over keys
//	a, b, c, d          components of a vector: of queries and keys, of values, of the model
//	h                   a head
//	μ, ν                stored patterns of a memory; coordinates of a curved space
//	x^a, u_a            components of a vector, of a covector
//	δ^a_b               Kronecker's delta: 1 where a = b, else 0 (Delta)
//	g_ab, g^ab          metric and inverse metric (package bilinear): g^ac g_cb = δ^a_b, x_a =
//	                    g_ab x^b, u^a = g^ab u_b
//	M_ab                a bilinear form, of any shape and symmetry
//	W_ca                matrix of a learned metric g_ab = sum_c W_ca W_cb
//	n_q, n_k            numbers of queries and keys
//	d_k, d_v, d_model   dimensions of queries and keys, of values, of the model
//	X^ib                the input of a layer, one row for each token
//	Q^ia, K^ja, V^jb    queries, keys and values
//	W_Q^hba, W_K, W_V   projections of the input to the heads; W_O^hca back from the heads
//	S^ij                score of key j for query i: Q^ia g_ab K^jb, with g = δ/√d_k
//	Z^i                 partition function: sum_j exp(S^ij)
//	A^ij                weight: exp(S^ij) / Z^i
//	O^ib                output: A^ij V^jb
//	Y^ia                output of a layer: the heads' outputs through W_O
//	E_j, T, β           energy, the negative of a score; temperature and its inverse
//	H, F                entropy of weights, in nats; free energy -T log Z
//	L, dX               a loss, and its gradient by X, which has the indices of X
//	Γ^c_ab, F_ij        Christoffel symbols of a metric; Fisher information
//	ξ^μ                 a pattern of a memory
//	φ                   a feature map of linear attention
//	R^(i-j)             a row of a table of relative positions
//	M^ij                element of a mask: 1 shows, 0 hides
package tensor
