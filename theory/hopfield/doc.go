// Package hopfield is attention as an associative memory: the classical network of binary spins,
// the modern network of real vectors whose update is one call of attention, how much either can
// store, and how to look at what it does.
//
// # Attention is one update
//
// A modern network stores M patterns k_j, the rows of K, and holds a state x of as many numbers.
// With an inverse temperature beta,
//
//	p  = softmax(beta K x)           how much of the state is pattern j
//	x' = sum_j p_j k_j = K^T p       the update
//
// which is the output row of attention for the query x, with the scale beta. Word for word:
//
//	attention                        Hopfield network
//	query q_i                        state x, from where a pattern is looked for
//	key k_j                          stored pattern, what a state is compared with
//	value v_j                        what is read out for it: the pattern itself, or one that goes with it
//	score scale q_i.k_j              overlap of state and pattern, times beta
//	scale 1/sqrt(d), 1/(scale T)     inverse temperature beta, temperature 1/beta
//	weights A_i                      probabilities p of the patterns
//	output row o_i                   next state
//	rows of Q                        many states, each updated by itself
//	one layer                        one update
//	LSE_i                            beta (|x|^2/2 - E): the energy but for |x|^2/2
//	keys and values that differ      hetero-association: a pattern is recognised, another one named
//
// So a retrieval runs through any attention kernel: Modern.Retrieve takes one, and a zero
// bridge.Attention is the definition. Scores, and the states between two updates, are then rounded
// to float32; Update, Energy and Settle stay in float64.
//
// # Energy
//
//	E(x)  = -1/beta log sum_j exp(beta k_j.x) + |x|^2/2 + const
//	dE/dx = x - K^T softmax(beta K x) = x - x'
//
// The states that the update keeps are those where the energy is stationary. That an update never
// raises the energy needs an argument of its own: E is the convex |x|^2/2 less a convex function
// whose gradient is x', so that function grows by at least x'.(x'-x), and
//
//	E(x) - E(x') >= |x'-x|^2/2
//
// which is what the tests ask for. Nothing of this holds if the logarithm is not divided by beta,
// as the tutorial and the paper print it (E-06): the gradient is then x - beta x', and with the
// single pattern (1,0), beta = 4 and x = (2,0) the update raises that function from -6 to -3.5.
// With values that are not the keys there is no energy at all. The constant is left out everywhere
// but in Constant, as it is in the sources' figures. The tutorial writes the product patterns^T x
// in the energy and patterns x in the update; patterns stand in rows here, and it is the second
// (E-06b).
//
// # Classical networks
//
// A state is N spins of +1 or -1, and with M such patterns in rows
//
//	W    = 1/N sum_mu k_mu k_mu^T       Hebb's rule
//	E(x) = -1/2 x^T W x
//	x_i  <- sign(sum_j W_ij x_j)        where sign(0) leaves x_i as it is
//
// Sweep goes from spin to spin (asynchronous), and each spin sees those before it: with no negative
// number on the diagonal of W the energy never rises. Synchronous updates all at once. The library
// calls that asynchronous, and leaves spins of 0 where a sum is 0 (E-32). What it may do to the
// energy depends on the diagonal. Hebb's rule puts M/N there, which makes W positive semi-definite,
// and then the synchronous update descends as well, by the argument above. Without the diagonal,
// which is how capacities are stated, two halves of a pattern can turn each other over for ever,
// and the energy can rise.
//
// # Capacity
//
// Classical, random patterns. The sources' 0.14 N patterns are "reliably stored" only if some wrong
// bits are allowed (E-07b):
//
//	0.138 N        retrieval with a few wrong bits, the load at which memory breaks down
//	N / (2 ln N)   most patterns without a wrong bit
//	N / (4 ln N)   all of them
//
// for large N: 500 spins still recall half of the patterns at a load of about 0.17 N, 1000 at 0.16
// N. And stable states are not patterns only: -k is as stable as k, and so are mixtures such as
// sign(k_1+k_2+k_3).
//
// Modern, random patterns on a sphere of radius K sqrt(d-1). The sources say exp(d/2) (E-07). What
// Ramsauer and others prove, "Hopfield Networks is All You Need" (2020; missing from the tutorial's
// bibliography, E-27), is that with probability 1-p at least
//
//	sqrt(p) c^((d-1)/4)      c = b / W0(exp(a + ln b))      a = 2/(d-1) (1 + ln(2 beta K^2 p (d-1)))      b = 2 beta K^2 / 5
//
// patterns can be stored, W0 being Lambert's function: 7.4 patterns for beta = 1, K = 3, d = 20, p
// = .001, where exp(d/2) is 22026. It is exponential in d and a lower bound, far below what is
// measured: SphereTrial. How much is stored depends on beta and K, of which exp(d/2) knows nothing.
// For beta = K = 1 it is what a rough estimate gives, own weight exp(d) against M times exp(d/2),
// the mean weight of another pattern.
package hopfield
