// Package cases holds the problems worth trying: families of named cases from plain sizes to the
// nastiest numbers, the distributions that fill operands, and the reader of outside cases (ONNX
// node tests).
//
// A case is a name, a problem and a way to build operands. Building is lazy and deterministic: the
// seed is a hash of the name, so a new case changes no other, and hundreds of cases are not
// hundreds of sets of tensors in memory.
//
// # Operands in a slab
//
// NewArgs carves everything that a problem asks for out of one slab of floats, in one of these
// layouts:
//
//	bhsd       contiguous, a head's rows together
//	bshd       contiguous, a token's heads together
//	packed     rows of [q heads | k heads | v heads] in one slab, as a fused projection leaves them; SeqQ = SeqKV
//	padded     bshd with gaps between heads, rows and batches, at an odd offset: nothing is aligned and no two strides are alike
//	broadcast  bhsd, but one batch entry and one head of K and V, with stride 0, serve them all
//
//	slab: gap | Q | gap | K | gap | V | gap | Out | gap | LSE | gap ...
//
// The gaps (a cache line) and the padding keep what the slab held before, which a test makes NaN to
// find reads and writes that stray. A large operand begins at a multiple of 8 KiB, as what make
// returns does.
package cases
