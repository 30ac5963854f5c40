// Package nn is what is built from attention: layers with parameters that are trained, and the
// products between them.
//
// A Layer is parameters and a Plan: planned for one shape of input it gives a Pass, which runs
// forward and backward without allocating. Layers are put together by Chain, Residual and Gated; a
// block of a transformer, its norms first, is
//
//	Chain{Residual{Chain{norm, attention}}, Residual{Chain{norm, Chain{linear, GELU, linear}}}}
//
// Activations are matrices whose rows are sequences one after another. Matrix products run on the
// loops of an instruction set (Multiplier), attention through any kernel: both are arguments (On),
// as is the team that shares the work. Whatever that team, the bits are the same.
//
// # Models
//
//	encoder              Config{}: every row sees all rows of its sequence; NewModel with pool classifies sequences
//	language model       Config{Mask: attn.Causal()}: every row sees those before it; Model.Generate goes on from a beginning
//	decoder              Config{Mask: attn.Causal(), Cross: true}: every block also looks at the rows of an encoder, which are On.Memory: a Param
//	                     whose W is what the encoder has made, and whose Grad is what goes back through it
//	linear attention     Config{Linear: &attn.Linear{}}, on kernel linear: time that grows with the length, and decoding in constant memory
//
// PostNorm, RMS, Gated, KVHeads, Fused, Experts and positions (learned, or RoPE, ALiBi and relative
// ones by Score and Terms) go with each of them.
//
// # What the documents list
//
// Their listings are done with this API in the examples: multi-head attention with its weights,
// diversity and entropy (MultiHeadAttention), heads split and combined (Split), cross-attention
// (Attention), a decoder beside an encoder (EncoderDecoder), decoding with a cache (Model.Generate)
// and without one that grows (LinearAttention), the gate of a mixture of experts (Experts), an
// encoder block that is trained (EncoderBlock), and the natural gradient (Natural).
package nn
