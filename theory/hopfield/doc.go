// Package hopfield treats attention as an associative memory. It has the classical network of
// binary spins and the modern network of real vectors, whose update is one call of attention. It
// also has the capacity of both, and ways to inspect their behaviour.
//
// # Attention is one update
//
// A modern network stores M patterns k_j, the rows of K, and has a state x of the same length. With
// an inverse temperature beta,
//
//	p  = softmax(beta K x)           the share of each pattern in the next state
//	x' = sum_j p_j k_j = K^T p       the update
//
// The update is the output row of attention for the query x, with the scale beta. Term by term:
//
//	attention                        Hopfield network
//	query q_i                        state x, the start of the search for a pattern
//	key k_j                          stored pattern, compared with the state
//	value v_j                        read-out for k_j: the pattern itself, or an associated one
//	score scale q_i.k_j              overlap of state and pattern, times beta
//	scale 1/sqrt(d), 1/(scale T)     inverse temperature beta, temperature 1/beta
//	weights A_i                      probabilities p of the patterns
//	output row o_i                   next state
//	rows of Q                        many states, each updated independently
//	one layer                        one update
//	LSE_i                            beta (|x|^2/2 - E): the energy except for |x|^2/2
//	keys and values that differ      hetero-association: recognise one pattern, return another
//
// So any attention kernel can retrieve patterns. Modern.Retrieve takes a kernel as a
// bridge.Attention; the zero value is the definition. Scores, and the states between two updates,
// are then rounded to float32. Update, Energy and Settle compute in float64.
//
// # Energy
//
//	E(x)  = -1/beta log sum_j exp(beta k_j.x) + |x|^2/2 + const
//	dE/dx = x - K^T softmax(beta K x) = x - x'
//
// The fixed points of the update are the stationary points of the energy. That an update never
// raises the energy needs a separate argument. E is the convex |x|^2/2 minus a convex function
// whose gradient is x'. That function grows by at least x'.(x'-x), so
//
//	E(x) - E(x') >= |x'-x|^2/2
//
// The tests check this inequality. It fails if the logarithm is not divided by beta, as the
// tutorial and the paper print it (E-06). The gradient is then x - beta x'. With the single pattern
// (1,0), beta = 4 and x = (2,0), the update raises that function from -6 to -3.5.
//
// If the values are not the keys, there is no energy. Only Constant includes the constant; the
// sources' figures leave it out too. The tutorial writes the product patterns^T x in the energy and
// patterns x in the update. Here patterns are rows, so the second form is right (E-06b).
//
// # Classical networks
//
// A state is N spins of +1 or -1. With M such patterns in rows,
//
//	W    = 1/N sum_mu k_mu k_mu^T       Hebb's rule
//	E(x) = -1/2 x^T W x
//	x_i  <- sign(sum_j W_ij x_j)        sign(0) leaves x_i unchanged
//
// Sweep updates one spin after another (asynchronously); each spin sees the earlier updates. If the
// diagonal of W has no negative number, the energy never rises. Synchronous updates all spins at
// once. The reference library calls this asynchronous, and leaves spins of 0 where a sum is 0
// (E-32).
//
// A synchronous update may raise the energy or not, depending on the diagonal. Hebb's rule puts M/N
// there, which makes W positive semi-definite; the synchronous update then descends too, by the
// argument above. Capacities are stated without the diagonal. There, two halves of a pattern can
// flip each other for ever, and the energy can rise.
//
// # Capacity
//
// Classical networks, random patterns: the sources' 0.14 N patterns are "reliably stored" only if
// some wrong bits are allowed (E-07b). For large N,
//
//	0.138 N        retrieval with a few wrong bits: the load at which memory breaks down
//	N / (2 ln N)   most patterns without a wrong bit
//	N / (4 ln N)   all patterns without a wrong bit
//
// Small networks reach more: 500 spins still recall half of the patterns at a load of about 0.17 N,
// 1000 spins at 0.16 N. Not only patterns are stable: -k is as stable as k, and so are mixtures
// such as sign(k_1+k_2+k_3).
//
// Modern networks, random patterns on a sphere of radius K sqrt(d-1): the sources give exp(d/2)
// (E-07). Ramsauer et al., "Hopfield Networks is All You Need" (2020; missing from the tutorial's
// bibliography, E-27), prove less. With probability 1-p, at least
//
//	sqrt(p) c^((d-1)/4)
//
// patterns can be stored, where W0 is Lambert's function and
//
//	c = b / W0(exp(a + ln b))
//	a = 2/(d-1) (1 + ln(2 beta K^2 p (d-1)))
//	b = 2 beta K^2 / 5
//
// For beta = 1, K = 3, d = 20 and p = 0.001 this is 7.4 patterns, where exp(d/2) is 22026. The
// bound is exponential in d, but far below the capacity that SphereTrial finds. The capacity
// depends on beta and K, which exp(d/2) leaves out. For beta = K = 1, exp(d/2) follows from a rough
// estimate: the own weight exp(d) against M times exp(d/2), the mean weight of another pattern.
package hopfield
