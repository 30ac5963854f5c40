// Package theory is a map of the mathematics of attention. Each package below it treats one view of
// the subject. This package holds no code: it lists the packages and the references.
//
// All of it computes in float64 on gonum's matrices and is written to be read, not to be fast. No
// package depends on a kernel, with two exceptions. Package bridge carries matrices to a kernel.
// Package equations checks whether each numbered equation of the source documents holds in these
// packages, in the definition (attn/oracle) and in any kernel.
//
// # Map
//
// The reference library of the paper (section 10.1) lists eight modules; two more are missing from
// its list. Their counterparts are:
//
//	module        here
//	attention     scorers: dot products, learned forms and additive scores, and every step from
//	              scores to output; streaming: the same, one block of keys at a time
//	bilinear      bilinear: forms, metrics, upper and lower indices; geometry: metrics that vary
//	              from point to point, and metrics of families of distributions
//	einsum        tensor: index notation, parsed and contracted
//	softmax       gibbs: softmax as the Gibbs distribution, its entropy, free energy and limits
//	gradients     calculus: Jacobians, and the backward pass step by step; streaming: the
//	              backward pass that recomputes the weights
//	hopfield      hopfield: classical and modern associative memories
//	masking       attn: bands, bitmaps, key lengths, Problem.Picture; positions: everything else
//	              that depends on the positions of rows
//	multihead     nn: Attention (learned projections), Decompose, Diversity and HeadEntropies.
//	              Heads are a dimension of attn's tensors, see below
//	backend       kernels: All, ByName and Best. A kernel is a value that is passed, never a
//	              setting
//	utils         figures: pictures and tables
//
// Two packages go beyond the library: regression (attention as kernel regression, feature maps,
// linear attention) and positions (encodings, rotations, biases, tables).
//
// # Heads
//
// A head projects rows of d_model numbers to d_k numbers: Q_h = X W_Q^h. A row x becomes its inner
// products with the d_k columns of W_Q^h. The head therefore sees only the part of x in the space
// that these columns span; it does not see the orthogonal part. So rank Q_h <= d_k, whatever X is.
// Heads with different subspaces compare the same rows by different properties.
//
// The score of a head is a bilinear form on X with the matrix W_Q^h W_K^hT / sqrt(d_k), whose rank
// is at most d_k. Many heads of few dimensions are many forms of low rank. One head of all
// dimensions is a single form of full rank, at the same cost. The output of a head lies in the
// space that the rows of W_V^h W_O^h span, which has at most d_v dimensions. The outputs of the
// heads are added.
//
// No projection is part of attn.Problem. Splitting rows into heads is a view of the same numbers
// (attn.Wrap with BSHD); heads differ by the projections made before.
//
// # References
//
// The references of the lesson:
//
//	A. Vaswani et al. Attention is all you need. NeurIPS 2017. arXiv:1706.03762
//	J. Devlin et al. BERT: pre-training of deep bidirectional transformers. NAACL 2019.
//	    arXiv:1810.04805
//	T. Brown et al. Language models are few-shot learners. NeurIPS 2020. arXiv:2005.14165
//	J. Su et al. RoFormer: enhanced transformer with rotary position embedding. 2021.
//	    arXiv:2104.09864
//	O. Press, N. Smith, M. Lewis. Train short, test long: attention with linear biases.
//	    ICLR 2022. arXiv:2108.12409
//	T. Dao et al. FlashAttention: fast and memory-efficient exact attention with IO-awareness.
//	    NeurIPS 2022. arXiv:2205.14135
//
// Further references, after the subject that they are cited for:
//
//	additive scores            D. Bahdanau, K. Cho, Y. Bengio. Neural machine translation by
//	                           jointly learning to align and translate. ICLR 2015.
//	                           arXiv:1409.0473
//	tables of positions        P. Shaw, J. Uszkoreit, A. Vaswani. Self-attention with relative
//	                           position representations. NAACL 2018. arXiv:1803.02155
//	four terms of a score      Z. Dai et al. Transformer-XL. ACL 2019. arXiv:1901.02860
//	T5's buckets               C. Raffel et al. Exploring the limits of transfer learning with a
//	                           unified text-to-text transformer. JMLR 2020. arXiv:1910.10683
//	global and local keys      I. Beltagy, M. Peters, A. Cohan. Longformer. 2020.
//	                           arXiv:2004.05150
//	random keys                M. Zaheer et al. Big Bird: transformers for longer sequences.
//	                           NeurIPS 2020. arXiv:2007.14062
//	online softmax             M. Milakov, N. Gimelshein. Online normalizer calculation for
//	                           softmax. 2018. arXiv:1805.02867
//	elu+1 (E-09)               A. Katharopoulos et al. Transformers are RNNs. ICML 2020.
//	                           arXiv:2006.16236
//	positive random features   K. Choromanski et al. Rethinking attention with Performers. ICLR
//	                           2021. arXiv:2009.14794
//	random Fourier features    A. Rahimi, B. Recht. Random features for large-scale kernel
//	                           machines. NIPS 2007
//	kernel regression          E. Nadaraya. On estimating regression. 1964
//	kernel regression          G. Watson. Smooth regression analysis. 1964
//	classical memories         J. Hopfield. Neural networks and physical systems with emergent
//	                           collective computational abilities. PNAS 79, 1982
//	their capacity             D. Amit, H. Gutfreund, H. Sompolinsky. Storing infinite numbers of
//	                           patterns. Phys. Rev. Lett. 55, 1985
//	exponential capacity       M. Demircigil et al. On a model of associative memory with huge
//	                           storage capacity. J. Stat. Phys. 168, 2017. arXiv:1702.01929
//	modern memories (E-27)     H. Ramsauer et al. Hopfield networks is all you need. ICLR 2021.
//	                           arXiv:2008.02217
//	natural gradient           S. Amari. Natural gradient works efficiently in learning. Neural
//	                           Computation 10, 1998
//	Gumbel-softmax             E. Jang, S. Gu, B. Poole. Categorical reparameterization with
//	                           Gumbel-softmax. ICLR 2017. arXiv:1611.01144
package theory
