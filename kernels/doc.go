// Package kernels lists the attention kernels of attnlab: All, ByName and Best return them.
//
// A kernel is an algorithm (naive, tiled, flash, linear) on the loops of one instruction set
// (package asm). Kernels never import each other.
//
// # Glossary
//
// Each word has one meaning in the packages below this one and in the pages about them.
//
//   - tile: up to Shape.Lanes queries of one key head that are computed together.
//   - lane: the place of one query in a tile, and its column in a panel.
//   - panel: the scores, later the weights, of one block and one tile; a row per key.
//   - block: consecutive keys that a tile takes in one step; starts at a multiple of its size.
//   - group: the Shape.Keys rows of a panel that the loops turn into weights together.
//   - micro-tile: the sums of a product that its innermost loop holds in registers.
//   - AMX tile: one of the eight registers of AMX, 16 rows of 64 bytes.
//   - score: the product of a query and a key after all edits; a base-2 logarithm in a panel.
//   - edit: a change of a score before it becomes a weight: softcap, bias, slope, hiding.
//   - weight: 2^(score - reference); divided by the row's sum, the attention weight.
//   - reference (M): the number near a row's maximum that is subtracted from its scores.
//   - raise: to lift a reference and scale what was summed below the old one.
//   - LSE: the natural logarithm of the sum of exp(score) over the keys of a row.
//   - far row: a row whose |LSE| is above 2^10, so that one float32 cannot hold its fraction.
//   - band: the keys lo <= key < hi that a causal mask or a window shows to a query.
//   - stairs: the rows of a block that each vector of lanes uses where a band's edges cross it.
//   - pack: to copy operands into the form that a product reads fastest.
//   - term: one of the up to three bf16 numbers whose sum is a packed float32.
//   - prefill: attention of many queries, which are in the lanes of tiles.
//   - decode: attention of a few queries, which are in rows; the keys are divided into splits.
//   - split (KV split): consecutive keys that one task of decode scans.
//   - partial state: reference, sums and output of a query over one split, to be merged.
//   - run: consecutive keys of a split whose rows are evenly spaced, in at most one page.
//   - backward pass: the computation of gradients; it computes the weights a second time.
//   - bundle: tiles of one key head that go over the same blocks together, as one task.
//   - chunk: rows of linear attention between two updates of its state.
//   - state: the matrix that linear attention updates with each token, and carries from one chunk,
//     and from one call, to the next.
//   - set: the loops of one instruction set, an asm.Ops.
//   - path: the choices of a tuning that change bits; other paths count as other kernels.
//   - plan: what Kernel.Plan returns for a problem: its sizes, scratch and schedule.
//   - scratch: the memory that a plan allocates, one part for each worker of its team.
//   - call: one Forward or Backward of a plan, or the argument struct of a loop of asm.
package kernels
