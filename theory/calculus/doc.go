// Package calculus differentiates attention in float64. It has every Jacobian of the derivation,
// the backward pass in stages, and three independent ways to verify a gradient.
//
// # What is differentiated
//
//	S_ij = scale sum_a Q_ia K_ja
//	A_ij = exp(S_ij/T) / sum_k exp(S_ik/T)
//	O_ib = sum_j A_ij V_jb
//
// A bilinear score is S_ij = scale sum_ab Q_ia M_ab K_jb. L is a number computed from O, dX_ij is
// short for dL/dX_ij, and [x=y] is 1 where x and y are equal and 0 elsewhere.
//
// # Jacobians
//
// A Jacobian has four indices: two of the differentiated matrix and two of the variable.
//
//	dO_ib/dA_mn = [i=m] V_nb                        OutputByWeights
//	dO_ib/dV_mn = A_im [b=n]                        OutputByValues
//	dA_ij/dS_mn = [i=m] A_ij ([j=n] - A_in) / T     WeightsByScores
//	dS_ij/dQ_mn = scale [i=m] K_jn                  ScoresByQueries
//	dS_ij/dK_mn = scale Q_in [j=m]                  ScoresByKeys
//	dS_ij/dM_mn = scale Q_im K_jn                   ScoresByMetric
//
// Through chains two Jacobians. Pull takes a gradient back through one: dL/dX_mn = sum_ib dL/dY_ib
// dY_ib/dX_mn. Jacobians have n^2 d^2 elements and more, so they are for small problems. They show
// where the backward pass comes from: it is what remains after summing over every [x=y].
//
// # The backward pass
//
//	dV_jb = sum_i A_ij dO_ib                        GradV
//	dA_ij = sum_b dO_ib V_jb                        GradA
//	dS_ij = A_ij (dA_ij - D_i) / T                  GradSoftmax
//	D_i   = sum_j A_ij dA_ij = sum_b dO_ib O_ib     RowSums
//	dQ_ia = scale sum_j dS_ij K_ja                  GradQ
//	dK_ja = scale sum_i dS_ij Q_ia                  GradK
//	dM_ab = scale sum_ij Q_ia dS_ij K_jb            GradMetric
//
// The two forms of D are one sum in two orders:
//
//	D_i = sum_b dO_ib (sum_j A_ij V_jb) = sum_j A_ij (sum_b dO_ib V_jb)
//
// The form with O lets a kernel that never stores A start with one number for each row. A row of dS
// adds up to 0, because adding a constant to all scores changes nothing.
//
// By-products have gradients too. With z = S/T, LSE_i = log sum_j exp(z_ij), and the entropy H_i =
// -sum_j A_ij log A_ij,
//
//	dLSE_i/dS_ij = A_ij / T                         GradLogPartition
//	dH_i/dS_ij   = -A_ij (log A_ij + H_i) / T       GradEntropy
//
// # Conventions
//
//	scale         0 means 1/sqrt(d) for a dot product and 1 for a bilinear score, as in package
//	              scorers
//	temperature   T is that of attn.Score: 0 means 1, attn.Frozen is the limit T -> 0, and +Inf
//	              the limit of high temperature. At +Inf nothing depends on scores. At
//	              attn.Frozen the gradient is 0 where one key has all the weight, and NaN for
//	              tied keys, whose weights jump
//	hidden keys   have weight 0 and no effect: masks select, so NaN in a key or value that is
//	              hidden from a query does not reach that query's gradient. A row that sees no
//	              key has no gradient
//	shapes        operands whose shapes do not fit cause a panic that names them. Verify takes
//	              numbers from outside and returns an error instead
//
// # Verification
//
// Dual numbers (gonum num/dual) and the complex step give derivatives to the last digits, since
// neither subtracts two nearby numbers. Both run a second forward pass, written as plain loops.
// Central differences (gonum diff/fd) run the forward pass of package scorers and give about ten
// digits.
//
// # The reference library's module gradients
//
//	grad_output_wrt_V           GradV
//	grad_output_wrt_A           GradA
//	grad_softmax                GradSoftmax
//	grad_scores_wrt_Q           GradQ
//	grad_scores_wrt_K           GradK
//	attention_backward          Backward
//	verify_gradients            VerifyGradients, or Setting.Verify for another loss, mask,
//	                            temperature or backward pass
//	gradient_numerical_check    NumericalGradient
//	gradient_flow_analysis      GradientFlow
//
// # Where the source documents are wrong
//
//	E-03    a summary gives step 3 as dS = A (dA - rowsum(dA)); it is A (dA - rowsum(A dA))
//	E-04    dO_ib/dV_mn is printed with [i=m] in place of [j=m], which leaves the sum over j
//	        without a partner
//	E-16    a step of 1e-5 is said to verify float32 gradients to machine precision; rounding
//	        alone leaves errors of 1e-3 to 1e-2 there. See BestStep
//	E-23    a chain rule uses the index i three times: the inner factors need labels of their
//	        own, as in A_mn and S_pq
package calculus
