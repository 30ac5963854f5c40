// Package theory is the mathematics of attention, in packages that are each one way to look at it.
// There is no code here: this page is the map, and the references.
//
// All of it is float64 on gonum's matrices and made to be read. Nothing is fast, and nothing knows
// a kernel: package bridge carries matrices to one, and package equations asks of the packages, of
// the definition (attn/oracle) and of any kernel whether each numbered equation of the source
// documents holds.
//
// # Map
//
// The library of the paper's section 10.1 has eight modules and two that its list leaves out. What
// each says is said here by
//
//	its module    here
//	attention     scorers: products, learned forms and additive scores, with every step from scores to output; streaming: the same, a block of keys at a time
//	bilinear      bilinear: forms, metrics, upper and lower indices; geometry: metrics that change from place to place, and those of families of distributions
//	einsum        tensor: index notation, parsed and contracted
//	softmax       gibbs: softmax as the Gibbs distribution, its entropy, free energy and limits
//	gradients     calculus: Jacobians, and the backward pass step by step; streaming: the one that makes the weights once more
//	hopfield      hopfield: classical and modern memories
//	masking       attn: bands, bitmaps, key lengths, Problem.Picture; positions: what else depends on where rows stand
//	multihead     nn: Attention, which learns the projections, taken apart by Decompose; Diversity and HeadEntropies. Heads are a dimension of attn's tensors, see below
//	backend       kernels: All, ByName and Best. A kernel is a value that is passed, never a setting
//	utils         figures: pictures and tables
//
// and beyond the library: regression (attention as kernel regression, features, linear attention)
// and positions (encodings, rotations, biases, tables).
//
// # Heads
//
// A head projects rows of d_model numbers to d_k: Q_h = X W_Q^h, so that a row x becomes its inner
// products with the d_k columns of W_Q^h. All that the head sees of x is the part in the space that
// these columns span, which has at most d_k of the d_model dimensions; what is orthogonal to it
// goes unseen. So rank Q_h <= d_k, whatever X is. Heads with different subspaces compare the same
// rows by different properties. A head's score is a bilinear form on X, with the matrix W_Q^h
// W_K^hT / sqrt(d_k) of rank d_k at most: many heads of few dimensions are many forms of low rank,
// where one head of all dimensions would be a single form of full rank, at the same cost. What a
// head gives back is in the d_v dimensions, at most, that the rows of W_V^h W_O^h span, and the
// heads are summed.
//
// No projection is part of attn.Problem: a split of rows into heads is a view of the same numbers
// (attn.Wrap with BSHD), and what differs between heads is what has been projected before.
//
// # References
//
// Those of the lesson:
//
//	A. Vaswani et al. Attention is all you need. NeurIPS 2017. arXiv:1706.03762
//	J. Devlin et al. BERT: pre-training of deep bidirectional transformers. NAACL 2019. arXiv:1810.04805
//	T. Brown et al. Language models are few-shot learners. NeurIPS 2020. arXiv:2005.14165
//	J. Su et al. RoFormer: enhanced transformer with rotary position embedding. 2021. arXiv:2104.09864
//	O. Press, N. Smith, M. Lewis. Train short, test long: attention with linear biases. ICLR 2022. arXiv:2108.12409
//	T. Dao et al. FlashAttention: fast and memory-efficient exact attention with IO-awareness. NeurIPS 2022. arXiv:2205.14135
//
// and those of what is said besides:
//
//	D. Bahdanau, K. Cho, Y. Bengio. Neural machine translation by jointly learning to align and translate. ICLR 2015. arXiv:1409.0473    additive scores
//	P. Shaw, J. Uszkoreit, A. Vaswani. Self-attention with relative position representations. NAACL 2018. arXiv:1803.02155             tables of positions
//	Z. Dai et al. Transformer-XL. ACL 2019. arXiv:1901.02860                                                                           four terms of a score
//	C. Raffel et al. Exploring the limits of transfer learning with a unified text-to-text transformer. JMLR 2020. arXiv:1910.10683    T5's buckets
//	I. Beltagy, M. Peters, A. Cohan. Longformer. 2020. arXiv:2004.05150                                                                global and local keys
//	M. Zaheer et al. Big Bird: transformers for longer sequences. NeurIPS 2020. arXiv:2007.14062                                       and random ones
//	M. Milakov, N. Gimelshein. Online normalizer calculation for softmax. 2018. arXiv:1805.02867                                       online softmax
//	A. Katharopoulos et al. Transformers are RNNs. ICML 2020. arXiv:2006.16236                                                         elu+1 (E-09)
//	K. Choromanski et al. Rethinking attention with Performers. ICLR 2021. arXiv:2009.14794                                            positive random features
//	A. Rahimi, B. Recht. Random features for large-scale kernel machines. NIPS 2007                                                    and those of waves
//	E. Nadaraya. On estimating regression. 1964; G. Watson. Smooth regression analysis. 1964                                           kernel regression
//	J. Hopfield. Neural networks and physical systems with emergent collective computational abilities. PNAS 79, 1982                  classical memories
//	D. Amit, H. Gutfreund, H. Sompolinsky. Storing infinite numbers of patterns. Phys. Rev. Lett. 55, 1985                             their capacity
//	M. Demircigil et al. On a model of associative memory with huge storage capacity. J. Stat. Phys. 168, 2017. arXiv:1702.01929       exponential capacity
//	H. Ramsauer et al. Hopfield networks is all you need. ICLR 2021. arXiv:2008.02217                                                  modern memories (E-27)
//	S. Amari. Natural gradient works efficiently in learning. Neural Computation 10, 1998                                              natural gradient
//	E. Jang, S. Gu, B. Poole. Categorical reparameterization with Gumbel-softmax. ICLR 2017. arXiv:1611.01144                          Gumbel-softmax
package theory
