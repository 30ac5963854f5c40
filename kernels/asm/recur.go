package asm

// RecurOps are the loops of a recurrence over the tokens of a chunk. Its state decays by a gate
// alpha at each token. Products of gates are running products: they never divide, nor take the
// exponential of a sum.
type RecurOps struct {
	// Solve computes rows of X in order, each from those before it:
	//
	//	X[i][c] = Beta[i] (V[i][c] - Keep[i] X[i][c] - Σ_{j<i} P[i][j] X[j][c])
	Solve func(*Solve)
	// Step computes Y[c] = Σ_i W[i] X[i][c], and then X[i][c] = Keep[i] X[i][c] + K[i] U[c], in one
	// pass over X.
	Step func(*Step)
	// Fade computes P[i][j] = D_ij From[i][j] for tokens j <= i, or j < i if Strict, where D_ij is
	// the product of Alpha[j+1..i]. Other lanes become 0, if the gates and From are finite.
	Fade func(*Fade)
	// Products computes to[i][c] = from[0][c] ... from[i][c] for n rows of d columns, and returns
	// the number of rows before the first with a product outside of its bounds, or NaN. Later rows
	// of to are undefined. to may be from.
	Products func(to, from Rows, n, d int) (rows int)
}

// Bounds of Products, Least <= product < Most: the rows of a chunk are divided by its products, so
// they must not overflow.
const (
	Least = 0x1p-60
	Most  = 0x1p60
)

// A Solve is a call of Solve. P has N rows, of which row i uses the first i lanes; Width is unused.
type Solve struct {
	Panel
	C       int       // columns
	X       []float32 // [N][XStride]
	XStride int
	V       Rows      // [N][C]; may be X
	Fresh   bool      // the old X counts as 0
	Keep    []float32 // [N]: factor of the old X; nil is 1
	Beta    []float32 // [N]; nil is 1
	// Reverse reads row i of X and V at row N-1-i, so that rows are solved from the last to the
	// first. P, Keep and Beta are in the order of i.
	Reverse bool
}

// A Step is a call of Step, one token of a recurrence whose write does not depend on its state.
type Step struct {
	N, C    int       // rows and columns of X
	X       []float32 // [N][XStride]
	XStride int
	W, K    []float32 // [N]
	Keep    []float32 // [N]: factor of a row of the old X; nil is 1
	U, Y    []float32 // [C]
}

// A Fade is a call of Fade. P has N rows, one for each token, and Width lanes, at least N and a
// multiple of Shape.Vec.
type Fade struct {
	Panel
	From   Rows      // [N][Width]; may be P
	Alpha  []float32 // [N]: gates; nil is 1
	Strict bool      // hides the diagonal too
	Last   []float32 // [Width]: set to D of the last token; nil if it is not wanted
}

func solve(p *Solve) {
	if p.C == 0 {
		return
	}
	for i := range p.N {
		x := p.X[p.at(i)*p.XStride:][:p.C]
		v := p.V.Row(p.at(i), p.C)
		keep, beta := float32(1), float32(1)
		if p.Keep != nil {
			keep = p.Keep[i]
		}
		if p.Beta != nil {
			beta = p.Beta[i]
		}
		if p.Fresh {
			copy(x, v)
		} else {
			for c := range x {
				x[c] = v[c] - float32(keep*x[c])
			}
		}
		for j, w := range p.P[i*p.Lanes:][:i] {
			for c, y := range p.X[p.at(j)*p.XStride:][:len(x)] {
				x[c] -= float32(w * y)
			}
		}
		for c := range x {
			x[c] *= beta
		}
	}
}

// at returns where row i of X and V is.
func (p *Solve) at(i int) int {
	if p.Reverse {
		return p.N - 1 - i
	}
	return i
}

func fade(p *Fade) {
	var own [64]float32
	d := p.Last
	if d == nil {
		d = own[:]
	}
	d = d[:p.Width]
	clear(d)
	for i := range p.N {
		if p.Alpha != nil {
			for j := range d[:i] {
				d[j] *= p.Alpha[i]
			}
		}
		d[i] = 1
		from, to := p.From.Row(i, p.Width), p.P[i*p.Lanes:][:p.Width]
		seen := i
		if !p.Strict {
			seen++
		}
		for j := range seen {
			to[j] = float32(d[j] * from[j])
		}
		clear(to[seen:])
	}
}

func runningProducts(to, from Rows, n, d int) int {
	for i := range n {
		x, y := from.Row(i, d), to.Row(i, d)
		for c := range y {
			p := x[c]
			if i > 0 {
				p *= to.Data[(i-1)*to.Stride+c]
			}
			if !(p >= Least && p < Most) {
				return i
			}
			y[c] = p
		}
	}
	return n
}

func scaleRows(to, x Rows, by []float32, d int) {
	for i, f := range by {
		out := to.Row(i, d)
		for c, x := range x.Row(i, len(out)) {
			out[c] = f * x
		}
	}
}

func times(to, x, y Rows, n, d int) {
	for i := range n {
		out, y := to.Row(i, d), y.Row(i, d)
		for c, x := range x.Row(i, len(out)) {
			out[c] = x * y[c]
		}
	}
}

func over(to, x, y Rows, n, d int) {
	for i := range n {
		out, y := to.Row(i, d), y.Row(i, d)
		for c, x := range x.Row(i, len(out)) {
			out[c] = x / y[c]
		}
	}
}

func step(p *Step) {
	clear(p.Y[:p.C])
	for i := 0; i < p.N && p.C > 0; i++ {
		x, y := p.X[i*p.XStride:][:p.C], p.Y[:p.C]
		for c, u := range p.U[:p.C] {
			old := x[c]
			y[c] += float32(p.W[i] * old)
			if p.Keep != nil {
				old *= p.Keep[i]
			}
			x[c] = old + float32(p.K[i]*u)
		}
	}
}
