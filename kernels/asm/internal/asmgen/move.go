package asmgen

import "fmt"

// A move goes in squares of as many columns as lanes, vec of each: load a side, transpose in registers, store the other. What is left over
// at the edges is package asm's to move.

// moveIn emits Ops.Load for vec lanes.
func (g *gen) moveIn() {
	g.function("Load", "(tile *float32, row int, rows *float32, stride, squares int)", 0, 40, fmt.Sprintf(`
for c := range %[1]d * squares { // %[1]d at a time
	for lane := range %[1]d {
		tile[c*row+lane] = rows[lane*stride+c]
	}
}`, g.vec))
	t := g.moves()
	for c := range g.vec {
		g.load(vec(c), t.at(c, 0))
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
	g.function("Store", "(tile *float32, row int, rows *float32, stride, squares int, scale *float32)", 0, 48, fmt.Sprintf(`
for c := range %[1]d * squares { // %[1]d at a time
	for lane := range %[1]d {
		rows[lane*stride+c] = tile[c*row+lane] * scale[lane]
	}
}`, g.vec))
	g.arg(weightsAt, "scale", 40)
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
	g.arg(count, "squares", 32)
	g.scale(aux, 4)
	g.scale(stride, 4)
	g.offset(stride3, stride, stride, 2)
	for i := 4; i < t.rows; i += 4 {
		g.offset(cursors[i/4], cursors[i/4-1], stride, 4)
	}
	g.align()
	g.label("square")
	return t
}

func (g *gen) endMoves(t tile) {
	for i := 0; i < t.rows; i += 4 {
		g.increase(cursors[i/4], g.bytes())
	}
	g.increase(count, -1)
	g.jumpAtLeast(count, 1, "square")
	g.ret()
}
