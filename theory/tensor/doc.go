// Package tensor is index notation made runnable: arrays of any rank, contracted by a spec that
// names their indices, as the source documents write their equations. Nothing here is fast; an
// equation is read, explained and evaluated by its definition.
//
// # A spec
//
// A spec names the indices of each operand, one letter an axis, and those of the result:
//
//	ia,ja->ij        S[i,j] = sum_a Q[i,a] K[j,a]
//
// The convention is Einstein's: an index that does not stand in the result is summed over.
//
//	summed           a letter of the operands that the result lacks, however often it occurs:  ij->i are sums of rows
//	free             a letter of the result. It may occur in several operands:                  ij,ij->ij is an elementwise product
//	repeated         twice in one operand walks the diagonal:                                   ii->i is the diagonal, ii-> the trace
//	no arrow         the result has the letters that occur once, in alphabetical order:         ja,ia is ja,ia->ij, and ii the trace
//	scalars          have no letters:                                                           a,a-> is a number, and ",ij->ij" multiplies by one
//	letters          are those of any alphabet, so μν->νμ is a spec. Blanks are passed over. Capitals come before small letters
//
// All places of a letter have the same extent; an extent of 1 is not stretched, and there is no
// ellipsis.
//
// # Upper and lower indices
//
// An axis may be marked Up or Down, on the tensor (method Mark) or in the spec, where ^ and _ hold
// for the letters that follow them within an operand:
//
//	^a,_ab,^b->      u^a g_ab v^b
//	_ab,^b->_a       v_a = g_ab v^b
//
// Where indices are marked, a sum must join an upper one with a lower one, which is what makes its
// value the same in every basis. Two upper ones, two lower ones, or three of any kind are an error
// (ErrVariance) that says where they stand; a metric puts it right: Lower and Raise. Unmarked axes
// are labels (a token, a head, a component whose kind nobody stated): they take part in sums as
// they come. A free index keeps its kind, and cannot be both.
//
// E-24: the source documents state this rule and then contract upper indices with upper ones
// throughout, S^ij = Q^ia K^ja and dV^nb = A^in dO^ib among them. With plain letters such a spec
// gives the intended numbers: it supposes a metric δ_ab, and token labels of no kind. The learned
// form of S = Q M Kᵀ has lower indices, M_ab, since both of its vectors have upper ones.
//
// # The notation of the source documents
//
//	i, j, m, n          positions of queries and keys; j runs over keys
//	a, b, c, d          components of a vector: of queries and keys, of values, of the model
//	h                   a head
//	μ, ν                stored patterns of a memory; coordinates where a space is curved
//	x^a, u_a            components of a vector, of a covector
//	δ^a_b               Kronecker's delta: 1 where a = b, else 0 (Delta)
//	g_ab, g^ab          metric and inverse metric: g^ac g_cb = δ^a_b, x_a = g_ab x^b, u^a = g^ab u_b (package bilinear)
//	M_ab                a bilinear form, of any shape and symmetry
//	W_ca                of a learned metric g_ab = sum_c W_ca W_cb
//	n_q, n_k            numbers of queries and keys
//	d_k, d_v, d_model   dimensions of queries and keys, of values, of the model
//	X^ib                the input of a layer: a row a token
//	Q^ia, K^ja, V^jb    queries, keys and values
//	W_Q^hba, W_K, W_V   projections of the input to the heads; W_O^hca back from them
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
//	φ                   a feature map, of linear attention
//	R^(i-j)             a row of a table of relative positions
//	M^ij                of a mask: 1 shows, 0 hides
package tensor
