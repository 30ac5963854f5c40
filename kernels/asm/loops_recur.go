//go:build (amd64 || arm64) && !purego

package asm

import (
	"fmt"
	"unsafe"
)

// recurLoops are the assembly loops of a recurrence over tokens.
type recurLoops struct {
	solve    func(x, v *float32, xStride, vStride int, p *float32, lanes int, keep, beta *float32, n, c int)
	step     func(x *float32, xStride int, w, k, keep, u, y *float32, n, c, ahead int)
	fade     func(p, from *float32, pStride, fromStride, n, vectors int, alpha, unit, last *float32, strict int)
	products func(to, from *float32, toStride, fromStride, n, d int) (rows int)
}

// setRecur replaces the portable loops by the set's own, with checks before them.
func (l *loops) setRecur(o *Ops) {
	if l.recur.solve != nil {
		o.Recur.Solve = l.solve
	}
	if l.recur.step != nil {
		ahead := o.Tuning.Ahead
		o.Recur.Step = func(p *Step) { l.step(p, ahead) }
	}
	if l.recur.fade != nil {
		o.Recur.Fade = l.fade
	}
	if l.recur.products != nil {
		o.Recur.Products = l.products
	}
}

// mostTokens is the largest number of tokens, and of lanes, of a chunk in assembly.
const mostTokens = len(ones)

// unit has a 1 at mostTokens: as seen from mostTokens-i, its element i is 1.
var unit = func() (x [2 * mostTokens]float32) {
	x[mostTokens] = 1
	return x
}()

// solve computes some columns in each call. Its loop takes the address of the first row in order,
// and has no flags.
func (l *loops) solve(p *Solve) {
	checkSolve(p)
	if p.N <= 0 || p.C <= 0 {
		return
	}
	if p.N > mostTokens {
		solve(p)
		return
	}
	x, v, xStride, vStride, keep, beta := p.X, p.V.Data, p.XStride, p.V.Stride, &ones[0], &ones[0]
	switch {
	case p.Fresh:
		keep = nil
	case p.Keep != nil:
		keep = &p.Keep[0]
	}
	if p.Beta != nil {
		beta = &p.Beta[0]
	}
	if p.Reverse {
		x, v = x[(p.N-1)*xStride:], v[(p.N-1)*vStride:]
		xStride, vStride = -xStride, -vStride
	}
	step := max(most(l.vec, cover(p.N*p.N, 2), 4*3*p.N, 4*p.N*p.N), l.vec)
	for c := 0; c < p.C; c += step {
		l.recur.solve(&x[c], &v[c], xStride, vStride, unsafe.SliceData(p.P), p.Lanes, keep, beta, p.N, min(step, p.C-c))
	}
}

// step computes some columns in each call.
func (l *loops) step(p *Step, ahead int) {
	checkStep(p)
	if p.N <= 0 || p.C <= 0 {
		clear(p.Y[:max(p.C, 0)])
		return
	}
	keep := (*float32)(nil)
	if p.Keep != nil {
		keep = &p.Keep[0]
	}
	step := max(most(l.vec, 2*p.N, 4*(p.N+2), 4*3*p.N), l.vec)
	for c := 0; c < p.C; c += step {
		l.recur.step(&p.X[c], p.XStride, &p.W[0], &p.K[0], keep, &p.U[c], &p.Y[c], p.N, min(step, p.C-c), ahead)
	}
}

func (l *loops) fade(p *Fade) {
	l.checkFade(p)
	if p.N <= 0 {
		return
	}
	alpha, last := &ones[0], (*float32)(nil)
	if p.Alpha != nil {
		alpha = &p.Alpha[0]
	}
	if p.Last != nil {
		last = &p.Last[0]
	}
	l.recur.fade(&p.P[0], &p.From.Data[0], p.Lanes, p.From.Stride, p.N, l.vectors(p.Width), alpha, &unit[mostTokens], last, indicator(p.Strict))
}

func (l *loops) products(to, from Rows, n, d int) int {
	checkRows(to, from, from, n, d)
	if n <= 0 || d <= 0 {
		return max(n, 0)
	}
	if n*d > mostBytes/8 { // far more than a chunk
		return runningProducts(to, from, n, d)
	}
	return l.recur.products(&to.Data[0], &from.Data[0], to.Stride, from.Stride, n, d)
}

// checkSolve panics if slices are too short for what Solve touches.
func checkSolve(p *Solve) {
	reach("P", len(p.P), p.N, max(p.N-1, 0), p.Lanes)
	reach("X", len(p.X), p.N, p.C, p.XStride)
	reach("V", len(p.V.Data), p.N, p.C, p.V.Stride)
	if p.Keep != nil {
		reach("Keep", len(p.Keep), 1, p.N, 0)
	}
	if p.Beta != nil {
		reach("Beta", len(p.Beta), 1, p.N, 0)
	}
}

// checkStep panics if slices are too short for what Step touches.
func checkStep(p *Step) {
	reach("X", len(p.X), p.N, p.C, p.XStride)
	reach("W", len(p.W), 1, p.N, 0)
	reach("K", len(p.K), 1, p.N, 0)
	reach("U", len(p.U), 1, p.C, 0)
	reach("Y", len(p.Y), 1, p.C, 0)
	if p.Keep != nil {
		reach("Keep", len(p.Keep), 1, p.N, 0)
	}
}

// checkFade panics if slices are too short for what Fade touches.
func (l *loops) checkFade(p *Fade) {
	if p.Width < p.N || p.Width > min(p.Lanes, mostTokens) || p.Width&(l.vec-1) != 0 {
		panic(fmt.Errorf("asm/%s: Fade: %d tokens in %d of %d lanes: want a multiple of %d lanes, at least one for each token and at most %d", l.isa, p.N, p.Width, p.Lanes, l.vec, mostTokens))
	}
	reach("P", len(p.P), p.N, p.Width, p.Lanes)
	reach("From", len(p.From.Data), p.N, p.Width, p.From.Stride)
	if p.Alpha != nil {
		reach("Alpha", len(p.Alpha), 1, p.N, 0)
	}
	if p.Last != nil {
		reach("Last", len(p.Last), 1, p.Width, 0)
	}
}

// checkRows panics if any of the operands of Scale, Times, Over or Products has less than n rows of
// d columns.
func checkRows(to, x, y Rows, n, d int) {
	reach("to", len(to.Data), n, d, to.Stride)
	reach("x", len(x.Data), n, d, x.Stride)
	reach("y", len(y.Data), n, d, y.Stride)
}
