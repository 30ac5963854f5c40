// Package nn builds models from attention: layers with parameters that can be trained, and the
// matrix products between them.
//
// A Layer has parameters and a method Plan. Plan returns a Pass for one shape of input, which runs
// forward and backward without allocating. Chain, Residual and Gated combine layers. A transformer
// block with its norms first is
//
//	Chain{Residual{Chain{norm, attention}}, Residual{Chain{norm, Chain{linear, GELU, linear}}}}
//
// Activations are matrices whose rows are sequences one after another. An argument (On) gives what
// a layer runs on: a kernel for attention, and a Multiplier for matrix products. The Multiplier has
// the loops of an instruction set and the team that shares the work. The bits are the same on every
// team.
//
// # Models
//
// An encoder is Config{}. Every row sees all rows of its sequence. NewModel with pool classifies
// sequences.
//
// A language model is Config{Mask: attn.Causal()}. Every row sees itself and those before it.
// Model.Generate continues a text.
//
// A decoder is Config{Mask: attn.Causal(), Cross: true}. Every block also attends to the rows of an
// encoder, On.Memory. That is a Param whose W holds the encoder's output; its Grad receives the
// gradient that goes back through the encoder.
//
// Linear attention is Config{Linear: &attn.Linear{}} on kernel linear. Its time is proportional to
// the length, and it decodes in constant memory.
//
// PostNorm, RMS, Gated, KVHeads, Fused, Experts and positions combine with all of them. Positions
// are learned, or RoPE, ALiBi and relative ones by Score and Terms.
//
// # Examples
//
// The listings of the source documents are examples of this package:
//
//   - multi-head attention with its weights, diversity and entropy (MultiHeadAttention)
//   - splitting and combining heads (Split)
//   - cross-attention (Attention)
//   - a decoder beside an encoder (EncoderDecoder)
//   - decoding with a cache (Model.Generate), and with a state of constant size (LinearAttention)
//   - the gate of a mixture of experts (Experts)
//   - training an encoder block (EncoderBlock)
//   - the natural gradient (Natural)
package nn
