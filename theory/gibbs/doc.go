// Package gibbs is softmax as statistical mechanics has it: the scores of a query's keys are
// energies with the sign turned, weights are the Gibbs distribution over them, and what is said of
// attention by temperature, entropy and free energy is computed here, in float64, from the
// equations.
//
// # Equations
//
// For scores s_j, energies E_j = -s_j, a temperature T and beta = 1/T,
//
//	p_j   = exp(-E_j/T) / Z = exp(s_j/T) / Z         Gibbs of energies, Softmax of scores
//	Z     = sum_j exp(s_j/T)                         LogPartition is its logarithm: Z itself overflows
//	log p_j = s_j/T - log Z                          LogSoftmax
//	H     = - sum_j p_j log p_j                      Entropy, with 0 log 0 = 0. 0 <= H <= log n
//	      = log Z - sum_j p_j s_j/T                  EntropyAt: the same from the scores, without logarithms of weights
//	n_eff = exp(H)                                   EffectiveStates: from 1 to n
//	<E>   = - sum_j p_j s_j                          ExpectedEnergy
//	F     = - T log Z = <E> - T H                    FreeEnergy
//	C     = d<E>/dT = beta^2 Var(E)                  HeatCapacity
//	dp_i/ds_j = beta (p_i delta_ij - p_i p_j)        Jacobian; as the answer to a small push on the scores, Susceptibility
//
// Weights are also what minimises the free energy. For any a of the simplex (a_j >= 0, sum a_j =
// 1),
//
//	Phi(a) = - sum_j a_j s_j - T H(a)                Functional
//	Phi(a) - F = T KL(a || p) >= 0                   Divergence is KL(a || p)
//
// and the Lagrangian Phi(a) + lambda (sum_j a_j - 1) is stationary at -s_j + T (log a_j + 1) +
// lambda = 0, which says a_j ~ exp(s_j/T): Minimize goes there downhill.
//
// # Conventions
//
//	logarithm     natural; entropy is in nats
//	scores        every function but Gibbs and GibbsRows takes scores, not energies
//	temperature   0 is the limit T -> 0: the largest score takes all, and m that tie for it take 1/m each. +Inf is the limit of high temperature: all
//	              visible states weigh the same. What has a finite limit there has it exactly (package attn calls the first limit attn.Frozen, and
//	              means 1 by 0). A negative temperature or NaN makes every number NaN
//	hidden        a score of -Inf, which Mask puts where a state is not to be seen. It has weight 0, exactly, and counts for nothing else: masks select
//	nothing seen  a row without a visible state has zero weights, log Z = -Inf, F = +Inf and H = 0
//	infinity      a single score of +Inf takes all the weight at every temperature. Two of them, or a NaN, make every number NaN
//	n             of NormalizedEntropy and MaxEntropy counts all states, hidden ones too, as the source documents have it
//
// # Where the source documents are wrong
//
//	E-01    tables of temperature for s = [2, 1, 0]: Sweep(s, 0.25, 0.5, 1, 2, math.Inf(1)) has the right figures
//	E-08    the limit T -> 0 is one state only where the largest score is unique
//	E-14    a fill of -1e9 for hidden scores makes a row that is hidden altogether uniform; -Inf without a guard makes it NaN. Here it is zero
//	E-17    H = -sum p log(p + eps) is negative for one-hot weights
//	E-18    H/log n is 0/0 for n = 1; here it is 0
//	E-39    the Z of F = -T log Z is Z(T), not the sum of exp(s_j)
package gibbs
