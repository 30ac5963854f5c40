// Package gibbs computes softmax as statistical mechanics defines it. The scores of a query's keys
// are energies with the sign turned, and the weights are the Gibbs distribution over them. The
// package computes temperature, entropy and free energy of attention in float64, straight from the
// equations.
//
// # Equations
//
// For scores s_j, energies E_j = -s_j, a temperature T and beta = 1/T,
//
//	p_j   = exp(-E_j/T) / Z = exp(s_j/T) / Z    Gibbs of energies, Softmax of scores
//	Z     = sum_j exp(s_j/T)                    LogPartition is log Z: Z itself overflows
//	log p_j = s_j/T - log Z                     LogSoftmax
//	H     = - sum_j p_j log p_j                 Entropy, 0 <= H <= log n; 0 log 0 = 0
//	      = log Z - sum_j p_j s_j/T             EntropyAt: from scores, without log p_j
//	n_eff = exp(H)                              EffectiveStates: from 1 to n
//	<E>   = - sum_j p_j s_j                     ExpectedEnergy
//	F     = - T log Z = <E> - T H               FreeEnergy
//	C     = d<E>/dT = beta^2 Var(E)             HeatCapacity
//	dp_i/ds_j = beta (p_i delta_ij - p_i p_j)   Jacobian of weights, Susceptibility of scores
//
// The weights also minimise the free energy. For any a of the simplex (a_j >= 0, sum a_j = 1),
//
//	Phi(a) = - sum_j a_j s_j - T H(a)           Functional
//	Phi(a) - F = T KL(a || p) >= 0              Divergence is KL(a || p)
//
// The Lagrangian Phi(a) + lambda (sum_j a_j - 1) is stationary where
//
//	-s_j + T (log a_j + 1) + lambda = 0
//
// that is, where a_j is proportional to exp(s_j/T). Minimize finds this point by descent.
//
// # Conventions
//
//	logarithm     natural; entropy is in nats
//	scores        every function but Gibbs and GibbsRows takes scores, not energies
//	temperature   0 is the limit T -> 0: the largest score takes all the weight, and m tied
//	              scores take 1/m each. +Inf is the limit of high temperature: all visible states
//	              weigh the same. A quantity with a finite limit has that limit exactly. A
//	              negative temperature or NaN makes every number NaN. (Package attn calls the
//	              first limit attn.Frozen; there, 0 means 1.)
//	hidden        a score of -Inf, which Mask sets. A hidden state has weight 0, exactly, and
//	              counts for nothing else: masks select
//	nothing seen  a row without a visible state has zero weights, log Z = -Inf, F = +Inf and H =
//	              0
//	infinity      a single score of +Inf takes all the weight at every temperature. Two of them,
//	              or a NaN, make every number NaN
//	n             in NormalizedEntropy and MaxEntropy counts all states, hidden ones too, as in
//	              the source documents
//
// # Where the source documents are wrong
//
//	E-01    the tables of temperature for s = [2, 1, 0] are wrong; Sweep(s, 0.25, 0.5, 1, 2,
//	        math.Inf(1)) returns the right figures
//	E-08    the limit T -> 0 is one state only where the largest score is unique
//	E-14    filling hidden scores with -1e9 makes a fully hidden row uniform, and -Inf without a
//	        guard makes it NaN. Here it is zero
//	E-17    H = -sum p log(p + eps) is negative for one-hot weights
//	E-18    H/log n is 0/0 for n = 1; here it is 0
//	E-39    the Z of F = -T log Z is Z(T), not the sum of exp(s_j)
package gibbs
