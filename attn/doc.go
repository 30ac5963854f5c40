// Package attn defines what an attention problem is, what its operands look like, and what a kernel
// promises. It contains no kernel: package kernels has them.
//
// A [Problem] holds everything that determines the answer except the numbers. [Args] are the
// operands of one call. A [Kernel] makes a [Plan] for a problem, and the plan runs any number of
// calls.
//
// # The problem
//
// For every batch entry b, query head h and query row i, softmax attention is
//
//	a_j = scale * (R q_i) g (R k_j)         R rotates a row by its position (RoPE), g is a metric
//	s_j = softcap(a_j + scale * q_i . r)    r is the table row of a relative position
//	      - slope |pos_i - j|               ALiBi
//	      + bias_j                          s_j is the score of the visible key j
//	z_j = s_j / T                           T is the temperature
//	p_j = exp(z_j) / (sum_j exp(z_j) + exp(sink))
//	o_i = sum_j p_j v_j                     the output row
//
// Query head h uses key head h / (HeadsQ/HeadsKV), and softcap(x) is cap tanh(x/cap). A term that
// the problem leaves out has no effect: R, g and softcap are the identity; r, slope, bias and
// exp(sink) are 0. The order is fixed: a softcap applies to products and relative positions, never
// to a bias or a mask.
//
// A linear problem replaces exp(z) by a product of features: see "Linear attention" below.
//
// A row also has by-products, which a call stores in [Stats]:
//
//	LSE       log (sum_j exp(z_j) + exp(sink))   natural logarithm, stored as one number or two
//	Mean      sum_j p_j s_j                      the expected score
//	Entropy   LSE - sum_j p_j z_j                entropy of the weights in nats, at least 0
//	Max       max_j s_j
//	ArgMax    the first key whose score is Max
//	Weights   p_j
//	Scores    s_j, and -Inf for hidden keys
//
// [FreeEnergy] and [EffectiveKeys] are computed from these: -T LSE and exp(Entropy).
//
// # Layouts
//
// A [Tensor] is a strided view of a [batch, sequence, head, dim] array. Only the last dimension
// must be contiguous. The layouts that programs use are therefore views of one another, and no
// kernel copies to change the layout:
//
//	BSHD      b0 [ s0 [ h0 d.. | h1 d.. ] s1 [ h0 d.. | h1 d.. ] ... ]      SS = H*D   SH = D
//	BHSD      b0 [ h0 [ s0 d.. | s1 d.. ] h1 [ s0 d.. | s1 d.. ] ... ]      SS = D     SH = S*D
//	packed    b0 [ s0 [ q0 q1 q2 q3 | k0 k1 | v0 v1 ] s1 [ q0 ... ] ... ]   Q, K, V: one SS
//	broadcast a stride of 0: the same row for every index of that dimension
//	ragged    b0 [ s0 s1 s2 | s0 | s0 s1 ... ]      QStart and KStart delimit the sequences
//	pages     b7 [ s0 ... s7 ] b2 [ s0 ... s7 ]     K and V are pools; Pages gives the order
//
// [New] and [NewTyped] allocate tensors and [Alloc] allocates slabs. All three use large memory
// pages where the system grants them, which makes long caches faster to read.
//
// # Shapes
//
// Every operand has one shape. An extent of 1 in a bias or a mask broadcasts:
//
//	Q, Out            [batch, query, query head, dim]
//	K, V              [batch, key, key head, dim]
//	LSE               [batch, query, query head, 1 or 2]
//	other row values  [batch, query, query head, 1]
//	Weights, Scores   [batch, query, query head, key]
//	Allowed, Bias     [batch, query, query head, key]
//	Slopes, Sinks     [query head]
//	Relative          [1, row, query head or 1, dim of Q]
//	Metric            [1, dim of Q, query head or 1, dim of K]
//	Cos, Sin          [batch or 1, position, 1, angle]
//	Decay             [batch, token, value head, 1 or dim of K]
//	Beta              [batch, token, value head or 1, 1]
//	StateIn           [batch][state head][dim of K][dim of V], and, if outputs are normalised,
//	                  [batch][state head][dim of K] after it
//	StateOut          max(1, Snapshots) states, the newest first
//
// With Linear.HeadsV, V has value heads and Out has output heads: see "Linear attention".
//
// Some problems change a shape:
//
//	ragged            Q, Out and Stats are [1, all rows, head, dim], and so are K, V, Decay, Beta;
//	                  queries of Allowed and Bias extend to SeqQ, their keys to SeqKV
//	pages             K and V are [page, row of a page, key head, dim];
//	                  keys of Allowed and Bias extend to SeqKV
//	block bitmap      Allowed counts blocks of queries and blocks of keys
//
// Relative has n_q+n_k-1 rows, and query i and key j use row j-i+n_q-1. With RelativeClip c it has
// 2c+1 rows, and they use row clip(j-pos)+c. A metric g replaces q . k by sum_ab q_a g_ab k_b.
//
// # Conventions
//
// The conventions at a glance; the sections below give the details:
//
//	scale            0 means 1/sqrt(Dim)
//	temperature      0 means 1; Frozen is the limit T -> 0; +Inf gives visible keys equal weights
//	softcap          0 means none
//	position         of query i: QPos[b]+i; else n_k-n_q+i (BottomRight) or i (TopLeft); of key j: j
//	band             shows keys pos-Left <= j <= pos+Right; Causal is Left unbounded, Right 0
//	bitmap           true shows the key; indexed by rows i and j, never by positions
//	no visible key   output 0, LSE and Max -Inf, Mean and Entropy 0, ArgMax -1, weights 0
//	hidden NaN, Inf  has no effect
//	visible NaN      makes its row NaN, and no other row
//	LSE              natural logarithm, of z and not of s
//	ALiBi slope      positive; far keys weigh less on both sides
//	T5 distance      j-pos
//	sizes            a Problem holds capacities; a call may bring fewer rows
//	arithmetic       float32, whatever the operands' types are
//	rounding         to nearest, ties to even
//
// # Positions and masks
//
//   - A position may be negative.
//   - Window(0, 0) shows the query's own key alone. A window elsewhere may count the query itself:
//     subtract one. [Mask.Keys] turns a position into an interval of keys.
//   - Band, bitmap and key lengths combine: a key is visible when all of them show it.
//   - A mask selects; it never multiplies. A NaN or Inf behind a mask therefore cannot leak.
//
// # Scores
//
//   - Infinities: a score of -Inf has weight 0. A row whose visible scores are all -Inf counts as a
//     row with no visible key. A single +Inf takes all the weight: the output is the value row of
//     that key, LSE and Mean are +Inf, and Entropy is 0. Two or more +Inf, or a NaN, make every
//     number of the row NaN and ArgMax -1. Hidden keys keep weight 0 and score -Inf even then.
//   - Far scores: a score is rounded to float32, as it is or as a base-2 logarithm. At 1e9 float32
//     numbers are 64 apart, so keys whose scores differ by less may count as equal. Weights are
//     computed from the rounded scores, so they sum to 1 at any distance from 0. A row whose scores
//     are all one number has the Out, and the gradients, of scores 0.
//   - Far LSE: one float32 loses the log of the sum when scores are far from 0. An LSE tensor with
//     D = 2 holds a reference near the largest z, and the log of the sum of exp(z - reference). The
//     second number includes a correction of up to 64 for rounding the reference. Without a visible
//     key the two are -Inf and 0. Forward writes either form; Backward and [Merge] read either.
//     Gradients lose nothing with D = 1, but Merge refuses it beyond 2^12.
//   - Lowest score: a finite bias never lowers a score below -2.36e38 T ([Problem.Lowest]). Lower
//     scores count as equal to that, because z as a base-2 logarithm is then -MaxFloat32. A row
//     masked with the lowest float32 therefore sees its keys, and its output is the mean of their
//     values. To hide a key, use a bias of -Inf.
//   - Temperature: in the limit [Frozen] the largest score takes all the weight, and ties share it
//     evenly. At +Inf visible keys share the weight evenly, except keys of score -Inf. Mean and
//     Entropy are the limits of their finite values. LSE diverges as T -> 0 and is refused there.
//   - Sinks: a sink is one more key of its query head. It is always visible, has z = sink, hence
//     the score T sink, and has no value. It counts in LSE, Mean and Entropy, not in Max, ArgMax or
//     Scores. It takes its share of the weight, so Weights sum to less than 1. A sink of -Inf is no
//     sink. A row that sees only the sink has LSE = sink. Neither limit of the temperature has
//     sinks.
//   - Relative positions: the table row multiplies the query before its rotation.
//   - T5 buckets are a bias: see [T5Bias].
//   - RoPE: row pos (query) or j (key) of Cos and Sin has one angle for each pair of elements. A
//     pair (x, y) becomes (x cos - y sin, x sin + y cos). Pair c is elements 2c and 2c+1
//     ([RopeInterleaved]), or c and c+n ([RopeHalves]). n angles turn the first 2n elements. Keys
//     are stored unrotated; if [Rotate] rotated them beforehand, leave Rope out of the problem.
//
// # Linear attention
//
// A linear problem has weights w_ij = f(q_i) . f(k_j), where f is Feature after Norm:
//
//	o_i = sum_j w_ij v_j / (sum_j w_ij + Eps)   over the visible keys j
//	o_i = scale * sum_j w_ij v_j                if Unnormalised
//
// Under a causal mask this is a recurrence over a state S of dim rows and dim_v columns. A gate and
// the delta rule extend it. Token t of a state head computes, in this order:
//
//	S~ = alpha S             alpha = e^Decay, one number, or one for each row of S
//	u  = v                   or beta (v - S~^T f(k)) with Delta
//	S  = S~ + f(k) u^T       z = alpha z + f(k) if outputs are normalised
//	o  = scale S^T f(q)      or S^T f(q) / (z . f(q) + Eps)
//
// The delta rule retrieves from the decayed state, and the output reads the state after the write.
// [GatedDelta], [KDA], [DeltaNet], [GLA], [SSD], [RetNet] and [Lightning] return the problems of
// published models.
//
// The switches combine as follows. Everything else about them is free:
//
//	              mask                     output            gradients   ability
//	none          any                      either            yes         linear
//	HeadGate      causal, in order         either            yes         gate per head
//	KeyGate       causal, in order         Unnormalised      yes         gate per key channel
//	Delta         causal, in order         Unnormalised      yes         delta rule
//	Snapshots>1   causal, in order         either            no          snapshots
//	Norm          any                      either            yes         norm of Q and K
//	HeadsV        any                      either            yes         value heads
//	a state       causal, in order         either            yes         none of its own
//
// "Causal, in order" is a band with Left unbounded and Right 0, without a bitmap, Lengths or pages:
// [Problem.Carries]. Such a call with a rule or a state has one query for each key in every
// sequence. Ragged batches are allowed.
//
//   - Heads: HeadsV is the number of heads of V and Decay, and of Beta unless it is shared. 0 means
//     HeadsKV. Out has max(HeadsQ, HeadsV) heads and the state has max(HeadsKV, HeadsV). All
//     numbers of heads divide that of Out, and of HeadsKV and HeadsV one divides the other.
//     Consecutive heads share: output head h reads head h / (output heads / H) of an operand with H
//     heads ([Problem.HeadOf], [Problem.StateHeadOf]). For an operand whose head h mod H belongs to
//     output head h, reorder its heads first.
//   - State: StateIn is the state before the first token, nil for zeros. StateOut receives the
//     state after the last one, and may be StateIn itself in a forward pass. A sequence may be
//     divided into calls anywhere; the result stays within the tolerance, not the same bits.
//   - Snapshots: with Snapshots n, StateOut holds n states. State i is the one before the last i
//     tokens of each sequence, so a decoder can take back up to n-1 tokens. A sequence with fewer
//     tokens has the incoming state there.
//   - Gates: Decay is a natural logarithm. Any finite number is computed as defined, also a
//     positive one. -Inf resets the state, but what is NaN or infinite in it becomes NaN. +Inf and
//     NaN make their head NaN from that token on. A stride of 0 along tokens is a constant gate:
//     [ConstantDecay].
//   - Beta: a number for each token and value head, or one shared by all heads. Models have 0 to 1,
//     or to 2. Features of keys whose squared length times beta exceeds 2 make the state grow.
//   - Norm: rows of Q and K are divided by sqrt(x.x + NormEps) ([NormSum]) or by max(|x|, NormEps)
//     ([NormMax]). A row of zeros is 0/0 if NormEps is 0.
//   - NaN and Inf: no operand is checked for them. One in Q affects its output row. One in K, Decay
//     or Beta affects its state head, and one in V its column, both from its token on.
//   - Padding: a token with k, v, beta and Decay of 0 leaves the state as it is. A Decay other than
//     0 does not.
//
// # Sequences and caches
//
//   - Capacities: a call may bring fewer query rows (Q.S <= SeqQ) or keys (K.S <= SeqKV, or KLen),
//     so a decoder plans once. A problem of size zero is valid and does nothing.
//   - Ragged batches: sequence b is rows QStart[b] to QStart[b+1] of Q, Out and Stats, and rows
//     KStart[b] to KStart[b+1] of K and V. Batch counts the sequences.
//   - Pages: key j of entry b is row j % Page of page Pages[b*PagesEach+j/Page]. A contiguous cache
//     is one page. A ring is a page table that repeats.
//   - Append: [Problem.Append] stores new keys after the KLen[b] keys in use and raises KLen[b]. It
//     changes nothing if they do not fit.
//   - KV splits: Out and LSE over a subset of the keys are a [Partial]. Merge joins two, in any
//     order. Give the sinks to one of them only.
//
// # Types
//
// Q and Out are f32, f16 or bf16. K and V may also be int8 with a scale for each row. Everything
// else is f32.
//
// An answer is compared with the definition applied to the numbers as stored: what rounding K and V
// lost is not the kernel's error. Rounding Out adds half a unit in the last place to the tolerance
// (package oracle): 2^-11 of the number for f16, up to 2^-8 for bf16.
//
// # Gradients
//
// [Grads] defines the gradients that come in and go out. A problem with WantGrad has a plan with a
// Backward. Call it after a Forward on the same operands, which it leaves as they are. Operands and
// gradients are float32. A gradient has the shape of its operand: dBias is summed over the axes
// along which the bias is broadcast, dK and dV over the query heads that share a key head. A
// constant Decay has a gradient for each token. A gradient of the state comes in as Grads.StateOut
// and goes out as Grads.StateIn.
//
// # Promises of a kernel
//
//   - Bad input is an error from Check and Plan, or a panic from Forward whose text names the
//     operand. It is never a wrong answer. Out and Stats must not overlap an operand or each other.
//   - A kernel states its abilities ([Needs]). It refuses every other problem with [ErrUnsupported]
//     and names the abilities that it lacks.
//   - Same bits: fix a kernel, an instruction set and the path that Problem.SeqQ selects. An output
//     row then depends on its query, its visible keys and their absolute indices only. The thread
//     count, other batch entries, the layout and neighbouring rows change no bit. Gradients are
//     sums over queries in an order that indices alone fix; thread count, other batch entries and
//     layout do not change them either.
//
// # What the package leaves out
//
//   - Dropout of weights. Train without it, or use other kernels.
//   - Callbacks for scores. A score that depends on batch, head and positions alone is a Bias;
//     another inner product is a Metric. For anything else copy package naive or scalar, which are
//     short and made for it.
//   - Callbacks for masks. Use a band, key lengths, or [Pack] and [BlockSparse], which make a
//     bitmap from a func.
//   - Gradients of caches, of 16-bit operands and at the limits of temperature. Such problems are
//     refused: train with float32 operands outside a cache.
package attn
