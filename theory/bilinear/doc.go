// Package bilinear computes with bilinear forms, and with metrics as special forms. The score of a
// query and a key is such a form, q^a g_ab k^b.
//
// # Equations
//
//	<u, v>   = u_a v^a                       Pair: a covector with a vector
//	B(u, v)  = u^a M_ab v^b                  Form: M is any matrix
//	Q(v)     = v^a M_ab v^b                  Quadratic: depends on the symmetric part of M alone
//	S^ij     = q^ia M_ab k^jb                Forms: all pairs of rows; RowForms: matching rows
//
//	<u, v>_g = u^a g_ab v^b                  Metric.Inner: g symmetric and positive definite
//	v_a      = g_ab v^b                      Metric.Lower
//	v^a      = g^ab v_b, g^ac g_cb = δ^a_b   Metric.Raise, Metric.Inverse
//	|v|, d   = √<v, v>_g, |u - v|            Metric.Norm, Metric.Distance
//	cos      = <u, v>_g / (|u| |v|)          Metric.Cosine, Metric.Angle
//	d²       = <u, u> - 2 <u, v> + <v, v>    a form is a similarity, not a distance: E-22
//
//	g = δ, δ/√d, s δ, diag(w)                Euclidean, Scaled, ScaledBy, Diagonal
//	g_ab     = sum_c W_ca W_cb = (WᵀW)_ab    Learned, W of r rows: <u, v>_g = (W u) . (W v)
//	dL/dW    = W (G + Gᵀ), G = dL/dg         Learned.Grad
//
// Pair needs neither a metric nor a basis. In Form, M need be neither symmetric nor square; the
// form is linear in u and in v.
//
// A Basis changes the components of vectors to v' = B v, of covectors to u' = B^-T u, and of forms
// to M' = B^-T M B^-1. Neither u_a v^a nor u^a M_ab v^b changes.
//
// # What a metric is
//
// Validate, and every constructor that takes numbers, requires a matrix that is square, finite,
// symmetric (ErrAsymmetric) and positive definite. Positive definite means no negative eigenvalue
// (ErrIndefinite) and none that is zero (ErrSingular).
//
// The tests allow for rounding, measured in the unit of each basis vector, so a change of units
// does not change the result. g_ab and g_ba may differ by d 2^-52 √(g_aa g_bb), the possible error
// of a product WᵀW. An eigenvalue of g_ab / √(g_aa g_bb) counts as zero up to 8 d 2^-52.
// (Eigenvalues change with the units; their signs do not.)
//
// # Where the source documents are wrong
//
//	E-05    g_ab = W_a^c W_cb, read literally, is W W, which is not symmetric: [[7, 10], [15,
//	        22]] for W = [[1, 2], [3, 4]], where WᵀW is [[10, 14], [14, 20]]. WᵀW is positive
//	        definite only if W has as many independent rows as there are dimensions; with fewer
//	        it is a form without an inverse. Learned separates the two: Form always exists,
//	        Metric may return an error
//	E-22    scores q . k have the metric δ; q . k / √d has the scaled one, δ/√d. vᵀ tanh(W q + U
//	        k) is no bilinear form
//	E-24    of two contracted indices one is up and one is down: M_ab, where the documents have
//	        M^ab. See package tensor
//	E-31    a test for eigenvalues above -tol accepts zero and [[1, 2], [2, 4]] as metrics
package bilinear
