// Package bilinear is bilinear forms, and the metrics among them: the algebra in which the score of
// a query and a key is q^a g_ab k^b.
//
// # Equations
//
//	<u, v>   = u_a v^a                       Pair: a covector with a vector. No metric is needed, and no basis: Basis
//	B(u, v)  = u^a M_ab v^b                  Form: M is any matrix, neither symmetric nor square of need. Linear in u and in v
//	Q(v)     = v^a M_ab v^b                  Quadratic: sees the symmetric part of M alone
//	S^ij     = q^ia M_ab k^jb                Forms: of all pairs of rows. RowForms pairs each row with its like
//
//	<u, v>_g = u^a g_ab v^b                  Metric.Inner: g symmetric and positive definite
//	v_a      = g_ab v^b                      Metric.Lower
//	v^a      = g^ab v_b, g^ac g_cb = δ^a_b   Metric.Raise, Metric.Inverse
//	|v|, d   = √<v, v>_g, |u - v|            Metric.Norm, Metric.Distance
//	cos      = <u, v>_g / (|u| |v|)          Metric.Cosine, Metric.Angle
//	d²       = <u, u> - 2 <u, v> + <v, v>    a form is a similarity, not a distance: E-22
//
//	g = δ, δ/√d, s δ, diag(w)                Euclidean, Scaled, ScaledBy, Diagonal
//	g_ab     = sum_c W_ca W_cb = (WᵀW)_ab    Learned, by W of r rows and d columns: <u, v>_g = (W u) . (W v)
//	dL/dW    = W (G + Gᵀ), G = dL/dg         Learned.Grad
//
// With the new components of vectors v' = B v, covectors become u' = B^-T u and forms M' = B^-T M
// B^-1, and neither u_a v^a nor u^a M_ab v^b changes.
//
// # What a metric is
//
// Validate, and every constructor that takes numbers, demands a matrix that is square, finite,
// symmetric (ErrAsymmetric) and positive definite: no negative eigenvalue (ErrIndefinite), and none
// that is zero (ErrSingular). What rounding may have done is allowed for, measured in each basis
// vector's own unit, so that a change of units does not change the answer: g_ab and g_ba may differ
// by d 2^-52 √(g_aa g_bb), which is what a product WᵀW may be off by, and an eigenvalue of g_ab /
// √(g_aa g_bb) that is not above 8 d 2^-52 is zero. (Eigenvalues change with the units, their signs
// do not.)
//
// # Where the source documents are wrong
//
//	E-05    g_ab = W_a^c W_cb, read as it stands, is W W, which is not symmetric: [[7, 10], [15, 22]] for W = [[1, 2], [3, 4]], where WᵀW is
//	        [[10, 14], [14, 20]]. And WᵀW is positive definite only where W has as many independent rows as there are dimensions: of fewer it is a form
//	        that has no inverse. Learned keeps the two apart: Form is always there, Metric may be an error
//	E-22    scores q . k have the metric δ; it is q . k / √d that has the scaled one, δ/√d. vᵀ tanh(W q + U k) is no bilinear form
//	E-24    indices that are contracted stand one up and one down: M_ab, where the documents have M^ab. See package tensor
//	E-31    a test for eigenvalues above -tol calls zero and [[1, 2], [2, 4]] metrics
package bilinear
