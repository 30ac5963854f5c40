package asmgen

import "fmt"

// A move goes in squares of as many columns as lanes, vec of each: load a side, transpose in registers, store the other. What is left over
// at the edges is package asm's to move. Shuffles set the speed, and AVX-512 has no more of them in a cycle than AVX2, so it uses AVX2's.

// moveIn emits Ops.Load for vec lanes.
func (g *gen) moveIn() {
	g.function("Load", "(tile *float32, row int, rows *float32, stride int, scale *float32, squares int)", 0, 48, fmt.Sprintf(`
for c := range %[1]d * squares { // %[1]d at a time
	for lane := range %[1]d {
		tile[c*row+lane] = rows[lane*stride+c] * scale[lane]
	}
}`, g.vec))
	t := g.moves()
	for c := range g.vec {
		row := vec(c)
		g.broadcast(row, mem{base: weightsAt, off: 4 * c})
		g.mul(row, row, t.at(c, 0))
	}
	g.transpose()
	for c := range g.vec {
		g.store(mem{base: out}, vec(c))
		g.offset(out, out, aux, 1)
	}
	g.endMoves(t)
}

// moveOut emits Ops.Store for vec lanes.
func (g *gen) moveOut() {
	g.function("Store", "(tile *float32, row int, rows *float32, stride int, scale *float32, squares int)", 0, 48, fmt.Sprintf(`
for c := range %[1]d * squares { // %[1]d at a time
	for lane := range %[1]d {
		rows[lane*stride+c] = tile[c*row+lane] * scale[lane]
	}
}`, g.vec))
	t := g.moves()
	g.load(vec(g.vec), mem{base: weightsAt})
	for c := range g.vec {
		g.mul(vec(c), vec(g.vec), mem{base: out})
		g.offset(out, out, aux, 1)
	}
	g.transpose()
	for c := range g.vec {
		g.store(t.at(c, 0), vec(c))
	}
	g.endMoves(t)
}

// moves begins the loop over squares; rows are addressed as those of a tile are.
func (g *gen) moves() tile {
	t := tile{gen: g, vecs: 1, rows: g.vec, along: true}
	g.arg(out, "tile", 0)
	g.arg(aux, "row", 8)
	g.arg(elemAt, "rows", 16)
	g.arg(stride, "stride", 24)
	g.arg(weightsAt, "scale", 32)
	g.arg(count, "squares", 40)
	g.scale(aux, 4)
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	if t.far() {
		g.offset(elemAt4, elemAt, stride, 4)
	}
	g.align()
	g.label("square")
	return t
}

func (g *gen) endMoves(t tile) {
	g.increase(elemAt, g.bytes())
	if t.far() {
		g.increase(elemAt4, g.bytes())
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "square")
	g.ret()
}
