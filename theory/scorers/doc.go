// Package scorers computes scores of queries and keys, and attention from scores, in float64, with
// every intermediate stage.
//
// # Scores
//
// A query is a row of Q and a key a row of K. A Scorer computes the matrix of their scores, with a
// row for each query and a column for each key:
//
//	Dot        s_ij = c sum_a q_ia k_ja             c defaults to 1/sqrt(d)
//	Bilinear   s_ij = c sum_ab q_ia M_ab k_jb       c defaults to 1
//	Additive   s_ij = sum_h v_h tanh(sum_a U_ha q_ia + sum_b W_hb k_jb)
//
// M is any matrix: a metric, a learned one, or one that is not square. The dot product is the
// bilinear form with the identity, and a bilinear form is a dot product with Q M in place of Q.
// Additive scores are neither, because they are not linear in the query. No kernel computes them,
// but a kernel that adds a bias takes them as the bias, with queries of zeros.
//
// Bilinear and Additive also return the gradients of a loss by their operands and parameters, given
// its gradient dS by the scores.
//
// # Attention
//
// Attend and Decompose return a Decomposition with every stage:
//
//	Raw            s_ij as the scorer computed them
//	Scores         s_ij of visible keys, -Inf for hidden ones
//	LogPartition   log Z_i = log sum_j exp(s_ij / T)
//	Weights        A_ij = exp(s_ij / T) / Z_i
//	Output         O_ib = sum_j A_ij v_jb
//
// Output has as many columns as V; Q may have a different number (erratum E-25).
//
// # Conventions
//
// The conventions are those of package attn, as far as float64 allows:
//
//	masks         select, they never multiply: a hidden NaN or Inf has no effect. A fill of -1e9
//	              would make a row that sees no key uniform (erratum E-14)
//	no keys       a query that sees no key has zero weights, a zero output and log Z = -Inf
//	temperature   0 means 1. attn.Frozen is the limit T -> 0: the largest score takes all the
//	              weight, and ties share it. +Inf is the limit in which visible keys share it
//	              evenly. See package gibbs for log Z in the limits
//	log Z         is stored, not Z: sums of exp(s) overflow, in float32 from s = 88.73 on
//	              (erratum E-30), in float64 from 709.79 on. Partition returns Z for small
//	              numbers
//	indices       sums run over the columns of both operands, and nothing is raised or lowered. M
//	              contracts with q and k, whose indices are up, so its own are down: M_ab
//	              (erratum E-24)
//	shapes        operands that do not fit cause a panic that names them, as in gonum. Package
//	              bridge takes the same operands and returns an error instead
//
// # The reference library's module attention
//
//	attention_scores                  Dot{Scale: 1} or Dot{}
//	attention_scores_with_metric      Bilinear{M: g}
//	attention_weights                 Weights
//	attention_output                  Output
//	scaled_dot_product_attention      Attend with Dot{}; the Decomposition has the weights
//	bilinear_attention                Attend with Bilinear{M: g}
//	batched_attention                 AttendBatch; a mask of two axes applies to all entries, one
//	                                  of three axes to one entry each
//	decompose_attention               Attend; its partition is Partition, its raw scores, which
//	                                  have no scale, are those of Dot{Scale: 1}
package scorers
