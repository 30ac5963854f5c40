package prefill

import (
	"attnlab/attn"
	"attnlab/kernels/asm"
	"attnlab/kernels/tile"
)

// sizes returns the number of keys in a block and of tiles in a bundle, for the sizes in bytes of
// the first two caches.
//
// In a long block more exponentials overlap with products, and fewer sums are added up. But the
// block's rows of K and V should take at most half of the second cache. The tiles share three
// quarters of the rest, so that each finds rows of K and V where the one before left them. Blocks
// have 512 keys where these take a quarter of the second cache, unless the weights of 256 keys
// leave room in the first cache.
//
// A sum over a whole block is also where most of the rounding error comes from. The shortest rows,
// whose tolerance is the tightest, have shorter blocks.
// Tuning: docs/tuning.md#flash-blocks
func sizes(p *attn.Problem, ops *asm.Ops, pack *asm.Pack, l1, l2 int) (block, tiles int) {
	lanes, columns := ops.Shape.Lanes, max(p.Dim+p.DimV, 1)
	longest, most, row, query := 256, 16, 4*columns, 4*columns // row, query: bytes of each
	number, packs := packedBytes(pack)
	if packs {
		row, query, most = number*columns, 4*columns+number*p.Dim, 11
	}
	if 512*row <= min(l2, 2<<20)/4 && (packs || 4*longest*lanes >= l1) {
		longest = 512
	}
	if p.Dim+p.DimV <= 16 {
		longest = 32
	}
	longest = wholeBlocks(p, ops, longest)
	for block = longest; block > ops.Shape.Group && block*row > l2/2; {
		block /= 2
	}
	tiles = (l2*3/4 - block*(row+4*lanes)) / (lanes * query)
	return block, min(max(tiles, 1), most)
}

// packedBytes returns the bytes of a number in packed rows, padding aside, and whether rows are
// packed at all.
func packedBytes(pack *asm.Pack) (bytes int, packs bool) {
	const n, d = 512, 64 // whole blocks of every packing
	size := pack.Size(asm.Keys, n, d)
	return 4 * size / (n * d), size > 0
}

// wholeBlocks returns the side of a block of the mask's bitmap, if it is shorter than longest and
// not too short; else longest. All or nothing of such a block is visible.
func wholeBlocks(p *attn.Problem, ops *asm.Ops, longest int) int {
	if side := p.Mask.Block; side >= 64 && side < longest && side%ops.Shape.Group == 0 {
		return side
	}
	return longest
}

// Blocking returns the sizes of the backward pass. A key has four rows (K, V, dK, dV), for which
// blocks take three eighths of the second cache. A query has five rows, for which tiles take a
// quarter. 192 keys are whole groups for Outer too, whose micro-tiles have six rows.
//
// Where operands are packed, a key has rows of dK and dV, K packed twice and V once. A query has
// its row and its gradient, each packed as lanes and as lines. Keys and queries take half of the
// cache each.
// Tuning: docs/tuning.md#backward-blocks
func (k Kernel) Blocking(p *attn.Problem) tile.Blocking {
	group, lanes := k.Ops.Shape.Group, k.Ops.Shape.Lanes
	pack := tile.Packing(p, k.Ops, asm.Backward)
	longest, row, query, keys, queries := 192, 8*(p.Dim+p.DimV), 4*(3*p.Dim+2*p.DimV), k.L2*3/8, k.L2/4
	if number, packs := packedBytes(&pack); packs {
		longest, keys, queries = 256, k.L2/2, k.L2/2
		row, query = 4*(p.Dim+p.DimV)+number*(2*p.Dim+p.DimV), 3*number*(p.Dim+p.DimV)
	}
	longest = wholeBlocks(p, k.Ops, longest)
	block := longest
	for block > group && block*row > keys {
		block = max(group, block/2/group*group)
	}
	const most = 8
	tiles := queries / (lanes * max(query, 4))
	return tile.Blocking{Block: block, Tiles: min(max(tiles, 1), most), Pack: pack}
}

// A layout holds the scratch sizes of a worker: the number of its tiles, and what they share.
type layout struct {
	tile.Config
	tiles int
}

// layout returns the layout of a worker, without tiles that no call can fill.
func (k Kernel) layout(p *attn.Problem) layout {
	pack := tile.Packing(p, k.Ops, asm.Forward)
	block, tiles := sizes(p, k.Ops, &pack, k.L1, k.L2)
	tiles = max(1, min(tiles, p.Group()*tile.Count(p, k.Ops, p.SeqQ)))
	l := layout{tile.Config{Block: block, Pack: pack, Joined: true}, tiles}
	l.Copies = l.copies(tiles)
	return l
}

// copiedTiles is the least number of tiles for which V is copied into contiguous rows: a copy pays
// when enough tiles read it.
// Tuning: docs/tuning.md#copy-values
const copiedTiles = 4

// copies reports whether rows may be copied for a bundle of n tiles. Packing copies them anyway.
func (l *layout) copies(n int) bool {
	_, packs := packedBytes(&l.Pack)
	return n >= copiedTiles && !packs
}

// copiesValues reports whether V, whose rows are stride numbers apart, is worth copying into
// contiguous rows. Mix re-reads each block Dim/Cols times from the second cache. When other heads'
// rows lie in between, those rows map to few of its sets and evict each other; copying pays once
// the block exceeds what those sets hold.
// Tuning: docs/tuning.md#copy-values
func (k Kernel) copiesValues(p *attn.Problem, stride, block int) bool {
	const columns = 8 // with as many columns at once, a loop loses as much as the copy costs
	row, next := 4*p.DimV, min(4*stride, memoryPage)
	return row < next && (k.Ops.Tuning.CopiesRows || k.L2/next*row*k.Ops.Shape.Cols < columns*4*(p.Dim+p.DimV)*block)
}

// memoryPage is the size of a page of memory: the set of a cache that a row maps to depends on its
// place in the page.
const memoryPage = 4 << 10

// cover returns the number of pieces of a size that cover n.
func cover(n, size int) int { return (n + size - 1) / size }
