// Package cases provides problems to test kernels with. It has families of named cases, from plain
// sizes to extreme numbers; the distributions that fill operands; and a reader of outside cases
// (ONNX node tests).
//
// A case is a name, a problem and a way to build operands. Operands are built when a test asks for
// them, from a seed that is a hash of the name. A new case therefore changes no other, and hundreds
// of cases need no memory for tensors.
//
// # Operands in a slab
//
// NewArgs cuts all operands of a problem from one slab of floats, in one of these layouts:
//
//	bhsd       contiguous; the rows of a head are together
//	bshd       contiguous; the heads of a token are together
//	packed     rows of [q heads | k heads | v heads], the output of a fused projection;
//	           SeqQ = SeqKV
//	padded     bshd with gaps between heads, rows and batch entries, at an odd offset:
//	           nothing is aligned, and all strides differ
//	broadcast  bhsd, with one batch entry and one head of K and V for all, by stride 0
//
//	slab: gap | Q | gap | K | gap | V | gap | Out | gap | LSE | gap ...
//
// A gap is a cache line. Gaps and padding keep the previous contents of the slab. A test fills the
// slab with NaN to find reads and writes outside the operands. A large operand begins at a multiple
// of 8 KiB, as a slice from make does.
package cases
