// Package attn is the vocabulary of attnlab: what an attention problem is, what its operands look
// like, and what a kernel promises. No kernel lives here.
//
// # The problem
//
// For every batch b, query head h and query row i, with kv = h / (HeadsQ/HeadsKV) the key head that
// h shares,
//
//	a_j = scale * (R q_i) g (R k_j)         the product; R turns a row to its position (RoPE), g is a metric
//	s_j = softcap(a_j + scale * q_i . r)    r is the row of a table by how far key and query are apart; softcap(x) = cap tanh(x / cap)
//	      - slope |pos_i - j|               ALiBi
//	      + bias_j                          the score of every visible key j
//	z_j = s_j / T                           T is the temperature
//	p_j = exp(z_j) / (sum_j exp(z_j) + exp(sink))
//	o_i = sum_j p_j v_j                     the output row
//
// What a problem does not ask for is not there: R and g are the identity, there is no softcap, and
// exp(sink) and the other terms are 0. The order is fixed: a softcap bends products and relative
// positions, never a bias or a mask. The by-products of a row are
//
//	LSE     = log (sum_j exp(z_j) + exp(sink))   natural logarithm, as one number or as two: see far scores
//	Mean    = sum_j p_j s_j                 the expected score
//	Entropy = LSE - sum_j p_j z_j           of the weights, in nats, at least 0
//	Max     = max_j s_j                     and ArgMax, the first key that has it
//	Weights, Scores                         p_j, and s_j with -Inf for hidden keys
//	F       = -T LSE                        the free energy: FreeEnergy
//	n_eff   = exp(Entropy)                  EffectiveKeys
//
// the last two derived and not stored. A linear problem replaces exp(z) by a product of features
// (type Linear).
//
// # Layout
//
// A Tensor is a strided view of a [batch, sequence, head, dim] array. Only the last dimension must
// be contiguous, so the layouts that real programs use are views of one another, and no kernel
// copies to change layout:
//
//	BSHD     b0 [ s0 [ h0 d.... | h1 d.... ] s1 [ h0 d.... | h1 d.... ] ... ]       SS = H*D   SH = D
//	BHSD     b0 [ h0 [ s0 d.... | s1 d.... ] h1 [ s0 d.... | s1 d.... ] ... ]       SS = D     SH = S*D
//	packed   b0 [ s0 [ q0 q1 q2 q3 | k0 k1 | v0 v1 ] s1 [ q0 q1 ... ] ... ]          three views of one slab, one SS
//	broadcast    a zero stride: the same row for every index of that dimension
//	ragged   b0 [ s0 s1 s2 | s0 | s0 s1 ... ]                                       one batch of rows; QStart and KStart say where each sequence begins
//	pages    b7 [ s0 ... s7 ] b2 [ s0 ... s7 ] ...                                  K and V are pools of pages; Pages says which one is next
//
// New and NewTyped allocate tensors, and Alloc what tensors are views of, in large pages of memory
// where there are some: long caches are read faster.
//
// Stats, bias and mask follow the same order: a row value is [batch, query, head, 1], LSE may be
// [batch, query, head, 2], weights and bias are [batch, query, head, key]. Every operand has a
// shape, and extents of bias and mask that are 1 broadcast:
//
//	Q, Out            [batch, query, query head, dim]       ragged: [1, all rows, head, dim], and so are Stats
//	K, V              [batch, key, key head, dim]           pages: [page, row of a page, key head, dim]
//	Allowed           [batch, query, query head, key]       in blocks of queries and keys for a block bitmap; ragged, pages: up to the capacities
//	Terms.Bias        [batch, query, query head, key]       ragged, pages: up to the capacities
//	Terms.Slopes      [query head]                          and so are Sinks
//	Terms.Relative    [1, row, query head or 1, dim of Q]   row j-i+n_q-1 of n_q+n_k-1, or clip(j-pos)+c of 2c+1 with RelativeClip c
//	Terms.Metric      [1, dim of Q, query head or 1, dim of K]     g_ab of sum_ab q_a g_ab k_b
//	Terms.Cos, Sin    [batch or 1, position, 1, angle]
//
// # Conventions
//
// Positions and masks:
//
//	position      query row i of batch b stands at QPos[b]+i if positions are given; otherwise bottom-right alignment puts the last query on
//	              the last key in use (n_k-n_q+i), and top-left puts query i on key i. It may be negative. Key j stands at j
//	band          shows keys pos-Left <= j <= pos+Right: Causal is Left unbounded, Right 0, and Window(0, 0) the query's own key alone.
//	              Constructors elsewhere that count the query itself subtract one. Mask.Keys turns a position into an interval of keys
//	bitmap        true shows. It is indexed by rows i and j, not by positions. Band, bitmap and key lengths combine: all must show a key
//	selection     masks select, they never multiply: NaN or Inf behind a mask does not leak. NaN in a visible operand propagates to its row alone
//	no keys       a query with no visible key has a zero output row, LSE -Inf, Mean and Entropy 0, Max -Inf, ArgMax -1 and zero weights
//
// Scores:
//
//	scale         0 means 1/sqrt(Dim)
//	infinities    a score of -Inf has weight 0, and a row whose visible scores are all -Inf is one with no visible key. A single +Inf takes all
//	              the weight: the output is that key's value row, LSE and Mean are +Inf, Entropy 0. Two or more +Inf, or a NaN, make every
//	              number of the row NaN, and ArgMax -1; weights and scores of hidden keys stay 0 and -Inf
//	far scores    a score is rounded to a float32, as it is or as a base-2 logarithm. At 1e9 float32
//	              numbers are 64 apart: keys whose scores differ by less may count as equal, or not.
//	              Weights are taken from the rounded scores, so they sum to 1 at any distance from 0.
//	              A row whose scores are all one number has the Out and the gradients of scores 0
//	far LSE       one float32 for the LSE loses the log of the sum there. An LSE tensor with D = 2 holds
//	              a reference near the largest z, and the log of the sum of exp(z - reference), up to
//	              64 of which makes up for rounding the reference; without a visible key -Inf and 0.
//	              Forward writes either, Backward and Merge read either. Gradients do not suffer from
//	              one number, but Merge refuses it beyond 2^12
//	lowest score  a finite bias leaves no score below -2.36e38 T (Problem.Lowest): such scores count as
//	              equal to it, because z as a base-2 logarithm is then -MaxFloat32. A row filled with
//	              the lowest float32, as masks often are, sees its keys: its answer is the mean of
//	              their values. A bias of -Inf hides its key
//	temperature   0 means 1. Frozen is the limit T -> 0: the largest score takes all the weight, ties share it evenly. +Inf is the limit
//	              of high temperature: visible keys share the weight evenly, -Inf scores excepted. In both limits Mean and Entropy are the
//	              limits of their finite values; LSE diverges as T -> 0 and is refused there
//	sinks         a sink is one more key of its query head, always visible, with z = sink, hence the score T sink, and no value. It counts in LSE, Mean
//	              and Entropy and takes its part of the weight, so Weights sum to less than 1; it is not in Max, ArgMax or Scores. -Inf is no sink.
//	              A row that sees no key but has a sink has LSE = sink. Neither limit of the temperature has sinks
//	ALiBi         slopes are positive and make far keys weigh less, on both sides: ALiBiSlopes
//	relative      the table is met by the query before its rotation
//	T5 buckets    are a bias: T5Bias, whose distances are j-pos
//	RoPE          pair c turns by the angle whose Cos and Sin are in row pos (query) or j (key) of the tables, (x, y) to (x cos - y sin, x sin + y cos).
//	              A pair is elements 2c and 2c+1 (RopeInterleaved) or c and c+n (RopeHalves); n angles turn the first 2n elements. Keys are
//	              stored unturned, unless Rotate turned them and the problem has no Rope
//
// Sequences, caches and types:
//
//	capacity      sizes in a Problem are capacities. A call may bring fewer query rows (Q.S <= SeqQ) or keys (K.S <= SeqKV, or KLen), so decoding
//	              never replans. Zero-size problems are valid and do nothing
//	ragged        sequence b is rows QStart[b] to QStart[b+1] of Q, Out and Stats, and KStart[b] to KStart[b+1] of K and V; Batch counts sequences
//	pages         key j of entry b is row j % Page of page Pages[b*PagesEach+j/Page]. A contiguous cache is one page, a ring a table that repeats
//	append        Problem.Append stores new keys behind KLen[b], and counts them; it changes nothing if they do not fit
//	types         Q and Out are f32, f16 or bf16, K and V also int8 with a scale a row; all else is f32. Arithmetic is float32. Stores round to nearest,
//	              to even of two. An answer is held to the definition on the numbers as stored: what storing K and V lost is not the kernel's error,
//	              rounding Out adds half of its last place to the tolerance (package oracle), which is 2^-11 of the number for f16, up to 2^-8 for bf16
//	parts         Out and LSE (D = 2) over a part of the keys are a Partial; Merge joins two, in any order. Sinks are in one part
//
// Gradients: type Grads says what comes in, what goes out, and how.
//
//	asked for     a problem with WantGrad has a plan with a Backward, which comes after a Forward on the same operands
//	numbers       all float32, operands and gradients; a plan never changes what Forward left
//	shapes        a gradient has the shape of what it is by: dBias is summed over the axes that the bias is broadcast along, dK and dV over the query heads
//	              that share a key head
//
// Promises:
//
//	bad input     is an error from Check and Plan, or one checked panic from Forward whose text names the operand; it is never a wrong answer. Out and
//	              Stats must not overlap an operand, nor one another
//	support       a kernel says which abilities (Needs) it has, and refuses every other problem with ErrUnsupported, naming them
//	same bits     for one kernel, instruction set and Problem.SeqQ path, an output row is a function of its query, its visible keys and their absolute
//	              index only: not of the thread count, batch mates, layout or neighbouring rows. Gradients are sums over queries, in an order that
//	              their indices alone fix: thread count, batch mates and layout do not change them either
//
// # What there is not
//
//	dropout of weights       none; training without it, or kernels elsewhere
//	callbacks for scores     the terms above: what depends on batch, head and positions alone is a Bias, an inner product of another kind is a Metric
//	callbacks for masks      a band, key lengths, or what Pack and BlockSparse make of a func
//	any other score at all   packages naive and scalar are short, and made to be copied
//	gradients of caches, 16-bit operands, limits of temperature      refused: a backward pass is of numbers that are trained
package attn
