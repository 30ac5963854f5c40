// Package scorers is how a query and a key make a score, and attention from scores in float64, with
// everything in between kept.
//
// # Scores
//
// A query is a row of Q, a key a row of K, and a Scorer makes the matrix of their scores, a row a
// query and a column a key:
//
//	Dot        s_ij = c sum_a q_ia k_ja                                    c = 1/sqrt(d) unless another one is asked for
//	Bilinear   s_ij = c sum_ab q_ia M_ab k_jb                              c = 1, and M any matrix: a metric, a learned one, one that is not square
//	Additive   s_ij = sum_h v_h tanh(sum_a U_ha q_ia + sum_b W_hb k_jb)
//
// The dot product is the bilinear form whose M is c times the identity, and a bilinear form is a
// dot product with Q M in place of Q. Additive scores are neither: they are not linear in the
// query. No kernel makes them, but a kernel that adds a bias takes them as one, with queries of
// zeros.
//
// Bilinear and Additive say what gradient a loss has by their operands and parameters if it has the
// gradient dS by the scores.
//
// # Attention
//
// Attend and Decompose go on from there, and the Decomposition that they return has every stage:
//
//	Raw            s_ij as the scorer made them
//	Scores         s_ij of the keys that the mask shows, -Inf for the others
//	LogPartition   log Z_i = log sum_j exp(s_ij / T)
//	Weights        A_ij = exp(s_ij / T) / Z_i
//	Output         O_ib = sum_j A_ij v_jb
//
// Output has as many columns as V, which need not be as many as Q has (erratum E-25).
//
// # Conventions
//
// They are those of package attn, to the letter where float64 allows:
//
//	masks         select, they never multiply: NaN and Inf behind one do not leak. A fill of -1e9 would make a row that sees no key uniform over all of them
//	              (erratum E-14)
//	no keys       a query that sees no key has zero weights, a zero output and log Z = -Inf
//	temperature   0 means 1. attn.Frozen is the limit T -> 0, where the largest score takes all the weight and ties share it; +Inf is the limit in which
//	              visible keys share it evenly. Package gibbs has the softmax, and says what log Z is in the limits
//	log Z         and not Z: sums of exp(s) overflow, in float32 from s = 88.73 on (erratum E-30), in float64 from 709.79 on. Partition is there to look at
//	              where the numbers are small
//	indices       sums run over both operands' columns, and nothing is raised or lowered: M has the indices that contract with q and k, which are up, so its
//	              own are down, M_ab (erratum E-24)
//	shapes        operands that do not fit are a panic whose text names them, as in gonum. Package bridge takes the same operands and returns an error
//
// # The reference library's module attention
//
//	attention_scores                  Dot{Scale: 1} or Dot{}
//	attention_scores_with_metric      Bilinear{M: g}
//	attention_weights                 Weights
//	attention_output                  Output
//	scaled_dot_product_attention      Attend with Dot{}; its weights are in the Decomposition
//	bilinear_attention                Attend with Bilinear{M: g}
//	batched_attention                 AttendBatch; a mask of two axes is one for all entries, one of three axes has one each
//	decompose_attention               Attend; its partition is Partition, its raw scores, which have no scale, are those of Dot{Scale: 1}
package scorers
