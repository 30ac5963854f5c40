package equations

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/num/dual"

	"attnlab/attn"
	"attnlab/theory/bilinear"
	"attnlab/theory/bridge"
	"attnlab/theory/geometry"
	"attnlab/theory/gibbs"
)

// geometryOfScores returns the rows on metrics that vary over space, and on information geometry.
func geometryOfScores() []Row {
	return []Row{
		{
			ID:        "T-riem",
			Statement: "ds^2 = g_ab dx^a dx^b; cos = u^a g_ab v^b / (|u| |v|); dV = sqrt(det g) d^n x",
			Check:     riemannianMetric,
			Kernel:    anglesFromScores,
		},
		{ID: "T-17", Statement: "G^c_ab = 1/2 g^cd (d_a g_bd + d_b g_ad - d_d g_ab)", Check: christoffelSymbols},
		{ID: "T-18", Statement: "D_a v^b = d_a v^b + G^b_ac v^c", Check: vectorDerivative},
		{ID: "T-19", Statement: "D_a u_b = d_a u_b - G^c_ab u_c, and D_c g_ab = 0", Check: covectorDerivative},
		{ID: "T-const", Statement: "a constant metric has G^c_ab = 0: attention's own metric delta_ab/sqrt(d_k) is flat", Check: constantMetric},
		{
			ID:        "T-20",
			Statement: "F_ij = E[d_i log p d_j log p]: (diag p - p p^T)/T^2 for softmax(logits/T), diag(1/sigma^2, 2/sigma^2) for a Gaussian",
			Check:     fisherInformation,
			Kernel:    backwardIsFisher,
		},
		{
			ID:        "T-21",
			Statement: "d theta = -eta F^-1 dL/d theta, the same step in all coordinates",
			Check:     naturalGradient,
			Kernel:    naturalGradientOfQueries,
		},
		{
			ID:        "N-riem,N-info",
			Statement: "scores by a metric that may change from place to place; attention as a family of Gibbs distributions with beta = 1/T",
			Is:        Alias,
			Of:        []string{"T-riem", "T-13"},
		},
	}
}

// someMetric returns W^T W + 1 for a random W: a metric that is well conditioned.
func someMetric(c *Check, n int) *mat.SymDense {
	var g mat.SymDense
	g.SymOuterK(1, c.Normal(n, n))
	for a := range n {
		g.SetSym(a, a, g.At(a, a)+1)
	}
	return &g
}

func riemannianMetric(c *Check) {
	// Length, distance and angle, summed over both indices.
	const n = 3
	g, u, v := someMetric(c, n), c.Vector(n), c.Vector(n)
	metric, err := bilinear.New(g)
	c.Must(err)
	inner := func(u, v []float64) (sum float64) {
		for a := range n {
			for b := range n {
				sum += u[a] * g.At(a, c.Index("b", b, n)) * v[b]
			}
		}
		return sum
	}
	c.Near("|u|^2 = u^a g_ab u^b", math.Pow(metric.Norm(u), 2), inner(u, u), 1e-13*inner(u, u))
	step := floats.SubTo(make([]float64, n), u, v)
	c.Near("the distance of u and v", metric.Distance(u, v), math.Sqrt(inner(step, step)), 1e-12)
	other := inner(v, v)
	if c.Flip("|v|") {
		other = inner(u, u)
	}
	cos := inner(u, v) / math.Sqrt(inner(u, u)*other)
	c.Near("the cosine", metric.Cosine(u, v), cos, 1e-14)
	c.Near("the angle", metric.Angle(u, v), math.Acos(cos), 1e-13)
	var times mat.SymDense
	times.ScaleSym(7.5, g)
	scaled, err := bilinear.New(&times)
	c.Must(err)
	c.Near("a metric 7.5 times as large has the same cosine", scaled.Cosine(u, v), cos, 1e-14)

	// Volume, by the explicit determinant of a 3 by 3 matrix.
	root := c.Factor("root", 0.5)
	det := 0.0
	for a := range n {
		b, d := (a+1)%n, (a+2)%n
		det += g.At(0, a) * (g.At(1, b)*g.At(2, d) - g.At(1, d)*g.At(2, b))
	}
	volume, err := geometry.Volume(g)
	c.Must(err)
	c.Near("sqrt(det g)", volume, math.Pow(det, root), 1e-12*volume)
	for _, d := range []int{1, 2, 4, 8, 16, 32, 64} {
		_, volume := euclidean(c, d)
		product := 1.0
		for range d {
			product *= math.Pow(1/math.Sqrt(float64(d)), root)
		}
		c.Near("sqrt(det g) of delta/sqrt(d)", volume/product, 1, 1e-12)
		c.Near("it is d^(-d/4)", volume/math.Pow(float64(d), -float64(d)/4), 1, 1e-12)
		if d == 64 {
			c.Printed("sqrt(det g) at d = 64", "1.26218e-29", volume)
		}
	}

	// Integrals of ds and dV that are known.
	circle := func(t float64) []float64 { return []float64{1, t} }
	c.Near("the unit circle, in polar coordinates", geometry.ArcLength(geometry.Polar(), circle, 0, 2*math.Pi, 8), 2*math.Pi, 1e-10)
	upward := func(t float64) []float64 { return []float64{0, t} }
	c.Near("from y = 1 up to e in the half-plane", geometry.ArcLength(geometry.HalfPlane(), upward, 1, math.E, 16), 1, 1e-10)
	disc := quad.Fixed(func(r float64) float64 {
		v, err := geometry.Volume(geometry.Polar().At([]float64{r, 0}))
		c.Must(err)
		return 2 * math.Pi * v
	}, 0, 1, 4, quad.Legendre{}, 0)
	c.Near("the unit disc, in polar coordinates", disc, math.Pi, 1e-14)
}

// euclidean returns the metric delta/sqrt(d), and its volume.
func euclidean(c *Check, d int) (*mat.SymDense, float64) {
	g := mat.NewSymDense(d, nil)
	for a := range d {
		g.SetSym(a, a, 1/math.Sqrt(float64(d)))
	}
	v, err := geometry.Volume(g)
	c.Must(err)
	return g, v
}

// anglesFromScores checks angles computed from a kernel's scores. The score of two vectors is their
// inner product. With a single key, it is the row's largest score, which kernels return.
func anglesFromScores(c *Check, a bridge.Attention) {
	const n, d = 5, 3
	g, x := someMetric(c, d), bridge.Float32(c.Normal(n, d))
	angles := mat.NewDense(n, n, nil)
	for _, times := range []float64{1, 0.25} { // exactly so in float32
		metric := bridge.Float32(g)
		metric.Scale(times, metric)
		s, tol := mat.NewDense(n, n, nil), mat.NewDense(n, n, nil)
		for j := range n {
			key := Rows(mat.Row(nil, j, x))
			ans := c.Attend(a, bridge.Call{
				Q: x, K: key, V: key,
				Problem: attn.Problem{Score: attn.Score{Scale: 1, Terms: attn.TermMetric}, Want: attn.WantMax},
				Args:    attn.Args{Terms: attn.Operands{Metric: bridge.Tensor(metric)}},
			})
			s.SetCol(j, Flat(ans.Max.X))
			tol.SetCol(j, Flat(ans.Max.Tol))
		}
		got := bridge.Values{X: mat.NewDense(n, n, nil), Tol: mat.NewDense(n, n, nil)}
		for i := range n {
			for j := range n {
				ii, jj := s.At(i, i), s.At(j, j)
				cos := s.At(i, j) / math.Sqrt(ii*jj)
				got.X.Set(i, j, cos)
				got.Tol.Set(i, j, tol.At(i, j)/math.Sqrt(ii*jj)+math.Abs(cos)/2*(tol.At(i, i)/ii+tol.At(j, j)/jj))
			}
		}
		exact := bridge.Float32(g)
		for i := range n {
			for j := range n {
				inner := func(i, j int) (sum float64) {
					for a := range d {
						for b := range d {
							sum += x.At(i, a) * exact.At(a, b) * x.At(j, b)
						}
					}
					return sum
				}
				angles.Set(i, j, inner(i, j)/math.Pow(inner(i, i)*inner(j, j), c.Factor("root", 0.5)))
			}
		}
		c.Tolerable(fmt.Sprintf("cosines of %v times the metric, from scores", times), got, angles, 1e-12)
	}
}

// A place is a point with its metric, its inverse, and derivatives computed by hand.
type place struct {
	name    string
	field   geometry.Dual
	at      []float64
	inverse [][]float64
	slopes  [][][]float64 // [c][a][b] is d_c g_ab
}

// places returns points in polar coordinates, in the half-plane, and on the paraboloid z = |x|^2/2,
// whose metric delta_ab + x_a x_b is not diagonal.
func places(c *Check) []place {
	r, y := 2.0, 2.0
	p, q := c.Rand.NormFloat64(), c.Rand.NormFloat64()
	s := 1 + p*p + q*q
	return []place{
		{
			name: "polar, r = 2", field: geometry.Polar(), at: []float64{r, 0.7},
			inverse: [][]float64{{1, 0}, {0, 1 / (r * r)}},
			slopes:  [][][]float64{{{0, 0}, {0, 2 * r}}, {{0, 0}, {0, 0}}},
		},
		{
			name: "half-plane, y = 2", field: geometry.HalfPlane(), at: []float64{-0.3, y},
			inverse: [][]float64{{y * y, 0}, {0, y * y}},
			slopes:  [][][]float64{{{0, 0}, {0, 0}}, {{-2 / (y * y * y), 0}, {0, -2 / (y * y * y)}}},
		},
		{
			name: "paraboloid", field: paraboloid, at: []float64{p, q},
			inverse: [][]float64{{1 - p*p/s, -p * q / s}, {-p * q / s, 1 - q*q/s}},
			slopes:  [][][]float64{{{2 * p, q}, {q, 0}}, {{0, p}, {p, 2 * q}}},
		},
	}
}

var paraboloid = geometry.Dual(func(x []dual.Number) [][]dual.Number {
	one := dual.Number{Real: 1}
	cross := dual.Mul(x[0], x[1])
	return [][]dual.Number{
		{dual.Add(one, dual.Mul(x[0], x[0])), cross},
		{cross, dual.Add(one, dual.Mul(x[1], x[1]))},
	}
})

func christoffelSymbols(c *Check) {
	half, minus := c.Factor("half", 0.5), c.Sign("minus", -1)
	found := map[string]geometry.Symbols{}
	for _, p := range places(c) {
		n := len(p.at)
		raised := p.inverse
		if c.Flip("inverse") {
			raised = nil
			for a := range n {
				raised = append(raised, mat.Row(nil, a, p.field.At(p.at)))
			}
		}
		symbols := func(upper, a, b int) (sum float64) {
			for d := range n {
				sum += half * raised[upper][d] * (p.slopes[a][b][d] + p.slopes[b][a][d] + minus*p.slopes[d][a][b])
			}
			return sum
		}
		byHand := geometry.Analytic{G: p.field.At, DG: func([]float64) []*mat.SymDense {
			to := make([]*mat.SymDense, n)
			for d := range to {
				to[d] = mat.NewSymDense(n, append(append([]float64(nil), p.slopes[d][0]...), p.slopes[d][1]...))
			}
			return to
		}}
		for _, f := range []struct {
			name  string
			field geometry.Field
			bound float64
		}{{"analytic", byHand, 1e-14}, {"dual numbers", p.field, 1e-14}, {"finite differences", geometry.Differences{G: p.field.At}, 1e-9}} {
			s, err := geometry.Christoffel(f.field, p.at)
			c.Must(err)
			found[p.name] = s
			off, skew := 0.0, 0.0
			for upper := range n {
				for a := range n {
					for b := range n {
						want := symbols(upper, a, b)
						off = larger(off, math.Abs(s[upper].At(a, b)-want)/(1+math.Abs(want)))
						skew = larger(skew, math.Abs(want-symbols(upper, b, a)))
					}
				}
			}
			c.Within(p.name+", "+f.name, off, f.bound)
			c.Within(p.name+": symmetric in a and b", skew, 1e-14)
		}
	}
	polar, plane := found["polar, r = 2"], found["half-plane, y = 2"]
	c.Printed("polar, r = 2: G^r_tt, G^t_rt", "-2.000 .500", polar[0].At(1, 1), polar[1].At(0, 1))
	c.Printed("half-plane, y = 2: G^x_xy, G^y_xx, G^y_yy", "-.500 .500 -.500", plane[0].At(0, 1), plane[1].At(0, 0), plane[1].At(1, 1))
	straightLines(c)
}

// straightLines checks geodesics whose course is known.
func straightLines(c *Check) {
	for _, g := range []struct {
		name   string
		field  geometry.Field
		start  geometry.Motion
		course func(t float64) []float64
	}{
		{
			"a straight line past the origin, in polar coordinates", geometry.Polar(),
			geometry.Motion{X: []float64{1, 0}, U: []float64{0, 1}},
			func(t float64) []float64 { return []float64{math.Hypot(1, t), math.Atan(t)} },
		},
		{
			"the unit circle, in the half-plane", geometry.HalfPlane(),
			geometry.Motion{X: []float64{0, 1}, U: []float64{1, 0}},
			func(t float64) []float64 { return []float64{math.Tanh(t), 1 / math.Cosh(t)} },
		},
	} {
		path, err := geometry.Geodesic(g.field, g.start, 2, 200)
		c.Must(err)
		off, speed := 0.0, 0.0
		for i, m := range path {
			off = larger(off, floats.Distance(m.X, g.course(2*float64(i)/200), math.Inf(1)))
			speed = larger(speed, math.Abs(m.Speed(g.field)-1))
		}
		c.Within(g.name, off, 1e-8)
		c.Within(g.name+": its speed stays", speed, 1e-8)
	}
}

// A frame is the directions of polar coordinates in the plane: along[a][i] is dx^i/dp^a and
// across[b][j] is dp^b/dx^j, for p = (r, theta).
type frame struct{ along, across [2][2]dual.Number }

func polarFrame(p []dual.Number) frame {
	r, cos, sin := p[0], dual.Cos(p[1]), dual.Sin(p[1])
	minus := dual.Scale(-1, sin)
	return frame{
		along:  [2][2]dual.Number{{cos, sin}, {dual.Mul(r, minus), dual.Mul(r, cos)}},
		across: [2][2]dual.Number{{cos, sin}, {dual.Mul(dual.Inv(r), minus), dual.Mul(dual.Inv(r), cos)}},
	}
}

// inPlane returns the vector field v_j = m_j + M_ji x_i of the plane, linear in x and y, as dual
// numbers of polar coordinates.
func inPlane(m []float64, slope *mat.Dense, p []dual.Number) [2]dual.Number {
	f := polarFrame(p)
	x := [2]dual.Number{dual.Mul(p[0], f.along[0][0]), dual.Mul(p[0], f.along[0][1])}
	var to [2]dual.Number
	for j := range to {
		to[j].Real = m[j]
		for i := range x {
			to[j] = dual.Add(to[j], dual.Scale(slope.At(j, i), x[i]))
		}
	}
	return to
}

func vectorDerivative(c *Check) {
	plus := c.Sign("plus", 1)
	upper := c.Flip("upper index")
	for _, f := range []struct {
		name  string
		m     []float64
		slope *mat.Dense
	}{
		{"the constant field d/dx, in polar coordinates", []float64{1, 0}, mat.NewDense(2, 2, nil)},
		{"a linear field, in polar coordinates", c.Vector(2), c.Normal(2, 2)},
	} {
		field := func(p []dual.Number) []dual.Number { // v^b = dp^b/dx^j v^j
			v, e := inPlane(f.m, f.slope, p), polarFrame(p)
			to := make([]dual.Number, 2)
			for b := range to {
				to[b] = dual.Add(dual.Mul(e.across[b][0], v[0]), dual.Mul(e.across[b][1], v[1]))
			}
			return to
		}
		at := []float64{1.7, 0.6}
		s, err := geometry.Christoffel(geometry.Polar(), at)
		c.Must(err)
		v, dv := geometry.DualPartials(field, at)
		e := polarFrame([]dual.Number{{Real: at[0]}, {Real: at[1]}})
		summed, want := mat.NewDense(2, 2, nil), mat.NewDense(2, 2, nil)
		for a := range 2 {
			for b := range 2 {
				sum := dv.At(a, b)
				for k := range 2 {
					symbol := s[b].At(a, k)
					if upper {
						symbol = s[k].At(a, b)
					}
					sum += plus * symbol * v[k]
				}
				summed.Set(a, b, sum)
				flat := 0.0 // the plain derivative in the plane, turned to polar coordinates
				for i := range 2 {
					for j := range 2 {
						flat += e.along[a][i].Real * f.slope.At(j, i) * e.across[b][j].Real
					}
				}
				want.Set(a, b, flat)
			}
		}
		c.NearMat("D v of "+f.name, summed, want, 1e-14)
		c.NearMat("D v as computed, of "+f.name, geometry.VectorDerivative(s, v, dv), summed, 1e-14)
		partials := geometry.Partials(func(x []float64) []float64 {
			v, _ := geometry.DualPartials(field, x)
			return v
		}, at)
		c.NearMat("by finite differences, "+f.name, geometry.VectorDerivative(s, v, partials), want, 1e-9)
	}
}

func covectorDerivative(c *Check) {
	minus := c.Sign("minus", -1)
	for _, f := range []struct {
		name  string
		m     []float64
		slope *mat.Dense
	}{
		{"the constant field dx, in polar coordinates", []float64{1, 0}, mat.NewDense(2, 2, nil)},
		{"a linear field, in polar coordinates", c.Vector(2), c.Normal(2, 2)},
	} {
		field := func(p []dual.Number) []dual.Number { // u_b = dx^j/dp^b u_j
			u, e := inPlane(f.m, f.slope, p), polarFrame(p)
			to := make([]dual.Number, 2)
			for b := range to {
				to[b] = dual.Add(dual.Mul(e.along[b][0], u[0]), dual.Mul(e.along[b][1], u[1]))
			}
			return to
		}
		at := []float64{1.7, 0.6}
		s, err := geometry.Christoffel(geometry.Polar(), at)
		c.Must(err)
		u, du := geometry.DualPartials(field, at)
		e := polarFrame([]dual.Number{{Real: at[0]}, {Real: at[1]}})
		summed, want := mat.NewDense(2, 2, nil), mat.NewDense(2, 2, nil)
		for a := range 2 {
			for b := range 2 {
				sum := du.At(a, b)
				for k := range 2 {
					sum += minus * s[k].At(a, b) * u[k]
				}
				summed.Set(a, b, sum)
				flat := 0.0
				for i := range 2 {
					for j := range 2 {
						flat += e.along[a][i].Real * f.slope.At(j, i) * e.along[b][j].Real
					}
				}
				want.Set(a, b, flat)
			}
		}
		c.NearMat("D u of "+f.name, summed, want, 1e-14)
		c.NearMat("D u as computed, of "+f.name, geometry.CovectorDerivative(s, u, du), summed, 1e-14)
	}

	// D g = 0, with symbols by finite differences and derivatives by hand.
	second := c.Sign("second index", -1)
	for _, p := range places(c) {
		n, g := len(p.at), p.field.At(p.at)
		s, err := geometry.Christoffel(geometry.Differences{G: p.field.At}, p.at)
		c.Must(err)
		computed := geometry.MetricDerivative(s, g, p.field.Partials(p.at))
		zero, off := 0.0, 0.0
		for k := range n {
			for a := range n {
				for b := range n {
					sum := p.slopes[k][a][b]
					for d := range n {
						sum += minus*s[d].At(k, a)*g.At(d, b) + second*s[d].At(k, b)*g.At(a, d)
					}
					zero = larger(zero, math.Abs(sum))
					off = larger(off, math.Abs(computed[k].At(a, b)-sum))
				}
			}
		}
		c.Within("D g = 0: "+p.name, zero, 1e-8)
		c.Within("D g as computed: "+p.name, off, 1e-13)
	}
}

func constantMetric(c *Check) {
	bend := 0.0
	if c.Flip("the metric is constant") {
		bend = 1
	}
	for _, d := range []int{1, 2, 3, 8, 16} {
		field := geometry.Dual(func(x []dual.Number) [][]dual.Number {
			g := make([][]dual.Number, d)
			for a := range g {
				g[a] = make([]dual.Number, d)
				g[a][a] = dual.Add(dual.Number{Real: 1 / math.Sqrt(float64(d))}, dual.Scale(bend, dual.Mul(x[0], x[0])))
			}
			return g
		})
		x := c.Vector(d)
		for _, f := range []struct {
			name  string
			field geometry.Field
			bound float64
		}{
			{"dual numbers", field, 0},
			{"by hand", geometry.Constant(field.At(x)), 0},
			{"finite differences", geometry.Differences{G: field.At}, 1e-12},
		} {
			s, err := geometry.Christoffel(f.field, x)
			c.Must(err)
			largest := 0.0
			for _, upper := range s {
				largest = larger(largest, mat.Norm(upper, math.Inf(1)))
			}
			c.Within(fmt.Sprintf("all G of delta/sqrt(%d), %s", d, f.name), largest, f.bound)
		}
		u := c.Vector(d)
		path, err := geometry.Geodesic(field, geometry.Motion{X: x, U: u}, 1, 4)
		c.Must(err)
		c.NearAll("its geodesics are straight", path[4].X, floats.AddTo(make([]float64, d), x, u), 1e-14*(1+floats.Norm(x, 2)+floats.Norm(u, 2)))
	}
}

func fisherInformation(c *Check) {
	// Softmax: d_i log p_y = (delta_yi - p_i)/T.
	minus := c.Sign("minus", -1)
	for _, t := range []float64{0.5, 1, 2} {
		p := gibbs.Softmax(tt(), t)
		n := len(p)
		byOutcome, closed, scores := mat.NewDense(n, n, nil), mat.NewDense(n, n, nil), mat.NewDense(n, n, nil)
		for i := range n {
			for j := range n {
				sum := 0.0
				for y := range n {
					sum += p[y] * (delta(y, i) + minus*p[i]) / t * (delta(y, j) + minus*p[j]) / t
				}
				byOutcome.Set(i, j, sum)
				closed.Set(i, j, (delta(i, j)*p[i]-p[i]*p[j])/math.Pow(t, c.Factor("power of T", 2)))
				scores.Set(i, j, (delta(i, j)-p[j])/t)
			}
		}
		f := geometry.Categorical(tt(), t)
		c.NearMat("E[d_i log p d_j log p] = (diag p - p p^T)/T^2", byOutcome, closed, 1e-15)
		c.NearMat("Categorical", f, byOutcome, 1e-15)
		c.NearMat("Expected", geometry.Expected(p, scores), byOutcome, 1e-15)
		var shift mat.VecDense
		shift.MulVec(f, mat.NewVecDense(n, []float64{1, 1, 1}))
		c.NearAll("F 1 = 0", shift.RawVector().Data, make([]float64, n), 1e-15)
		// F measures how well nearby logits can be distinguished.
		d := []float64{3e-4, -5e-4, 1e-4}
		q := gibbs.LogSoftmax(floats.AddTo(make([]float64, n), tt(), d), t)
		divergence := 0.0
		for y, lp := range gibbs.LogSoftmax(tt(), t) {
			divergence += p[y] * (lp - q[y])
		}
		c.Near("KL(theta || theta+d) = 1/2 d F d", divergence/(bilinear.Quadratic(d, f)/2), 1, 5e-3)
		if t == 1 {
			var e mat.EigenSym
			c.True("F has eigenvalues", e.Factorize(f, false))
			c.Printed("eigenvalues of F, s = [2,1,0]", "0.0000000 .1185533 .3709036", e.Values(nil)...)
			c.Near("the least of them", e.Values(nil)[0], 0, 1e-15)
			c.Erratum("E-10", "F of softmax about its logits", "singular, F 1 = 0: eigenvalues 0, .1185533, .3709036", "F^-1")
		}
	}

	// The Gaussian, by an integral over outcomes: d_mu log p = z/sigma, d_sigma log p =
	// (z^2-1)/sigma, z = (y-mu)/sigma.
	mu, sigma := 0.4, 1.7
	x, w := make([]float64, 8), make([]float64, 8)
	quad.Hermite{}.FixedLocations(x, w, math.Inf(-1), math.Inf(1))
	scores := mat.NewDense(len(x), 2, nil)
	for y := range x {
		z := math.Sqrt2 * x[y]
		w[y] /= math.Sqrt(math.Pi)
		scores.SetRow(y, []float64{z / sigma, (z*z - 1) / sigma})
	}
	want := Rows([]float64{1 / (sigma * sigma), 0}, []float64{0, c.Factor("two", 2) / (sigma * sigma)})
	c.NearMat("N(mu, sigma), by its definition", geometry.Expected(w, scores), want, 1e-14)
	c.NearMat("Gaussians", geometry.Gaussians().At([]float64{mu, sigma}), want, 1e-15)

	// In the coordinates a = mu/sqrt(2) and sigma, F is twice the metric of the half-plane.
	var twice mat.SymDense
	twice.ScaleSym(2, geometry.HalfPlane().At([]float64{mu / math.Sqrt2, sigma}))
	pulled := geometry.Pull(geometry.Gaussians().At([]float64{mu, sigma}), Rows([]float64{math.Sqrt2, 0}, []float64{0, 1}))
	c.NearMat("Gaussians are a half-plane", pulled, &twice, 1e-15)
}

func delta(i, j int) float64 {
	if i == j {
		return 1
	}
	return 0
}

// backwardIsFisher checks that the backward pass multiplies the gradient by the output with diag p
// - p p^T. With the identity for V the output is the weights.
func backwardIsFisher(c *Check, a bridge.Attention) {
	const nq, nk, d, t = 3, 5, 4, 2.0
	q, k, do := bridge.Float32(c.Normal(nq, d)), bridge.Float32(c.Normal(nk, d)), bridge.Float32(c.Normal(nq, nk))
	ans := c.Attend(a, bridge.Call{Q: q, K: k, V: identity(nk), DO: do, Problem: attn.Problem{Score: attn.Score{Temp: t}}})
	weights, dq := mat.NewDense(nq, nk, nil), mat.NewDense(nq, d, nil)
	minus, once := c.Sign("minus", -1), c.Factor("1/T", 1/t)
	scale := 1 / math.Sqrt(d)
	for i := range nq {
		s := make([]float64, nk)
		for j := range nk {
			for b := range d {
				s[j] += scale * q.At(i, b) * k.At(j, b)
			}
		}
		p := gibbs.Softmax(s, t)
		weights.SetRow(i, p)
		for b := range d {
			sum := 0.0
			for j := range nk {
				for l := range nk {
					fisher := delta(j, l)*p[j] + minus*p[j]*p[l]
					sum += scale * k.At(j, b) * once * fisher * do.At(i, l)
				}
			}
			dq.Set(i, b, sum)
		}
	}
	c.Tolerable("with V = 1 the output is the weights", ans.O, weights, 1e-14)
	c.Tolerable("dQ = K^T (diag p - p p^T) dO / (T sqrt(d))", ans.DQ, dq, 1e-14)
}

func identity(n int) *mat.Dense {
	m := mat.NewDense(n, n, nil)
	for i := range n {
		m.Set(i, i, 1)
	}
	return m
}

func naturalGradient(c *Check) {
	// The logits [2, 1, 0] learn to choose the first: F is singular, and F+ g is g/p minus its
	// mean.
	p := gibbs.Softmax(tt(), 1)
	g, ratio := make([]float64, 3), make([]float64, 3)
	for i := range p {
		g[i] = p[i] - delta(i, 0)
		ratio[i] = g[i] / p[i]
	}
	f := geometry.Categorical(tt(), 1)
	natural, err := geometry.Natural(f, g, 0)
	c.Must(err)
	c.Printed("F+ g, L = -log p_0", "-1.00214315 .50107157 .50107157", natural...)
	centre := floats.Sum(ratio) / 3
	if c.Flip("centre") {
		centre = 0
	}
	floats.AddConst(-centre, ratio)
	c.NearAll("F+ g = centred(g/p)", natural, ratio, 1e-14)
	c.True("E-10: F of softmax has no inverse", mat.Cond(f, 2) > 1e14)
	c.Erratum("E-10", "the step -eta F^-1 dL", "F^+, or (F + damping)^-1: F of softmax is singular", "F^-1")
	damped, err := geometry.Natural(f, g, 1e-8)
	c.Must(err)
	c.NearAll("a small damping does the same", damped, natural, 1e-6)

	leastSquares(c)
	otherCoordinates(c)
	taughtAttention(c)
}

// leastSquares checks that for y ~ N(X theta, 1) the information is X^T X, and that one natural
// step of rate 1 finds the solution.
func leastSquares(c *Check) {
	const rows, n = 8, 3
	x, y, theta := c.Normal(rows, n), c.Vector(rows), c.Vector(n)
	var f mat.SymDense
	f.SymOuterK(1, x.T())
	gradient := func(theta []float64) []float64 { // sum_r x_ri (x_r.theta - y_r)
		to := make([]float64, n)
		for r := range rows {
			off := -y[r]
			for j := range n {
				off += x.At(r, j) * theta[j]
			}
			for i := range n {
				to[i] += x.At(r, i) * off
			}
		}
		return to
	}
	step, err := geometry.Natural(&f, gradient(theta), 0)
	c.Must(err)
	floats.AddScaled(theta, c.Sign("downhill", -1)*c.Factor("eta", 1), step)
	c.NearAll("one step of rate 1 solves least squares: dL = 0 there", gradient(theta), make([]float64, n), 1e-10)
}

// otherCoordinates checks that theta = B phi does not change the natural step, and that replacing
// sigma by log sigma changes it to second order only.
func otherCoordinates(c *Check) {
	const n = 4
	f, g, b := someMetric(c, n), c.Vector(n), c.Normal(n, n)
	for i := range n {
		b.Set(i, i, b.At(i, i)+3)
	}
	through := func(f mat.Symmetric, g []float64) []float64 { // B times the natural gradient in phi
		var gradient, step mat.VecDense
		gradient.MulVec(b.T(), mat.NewVecDense(n, g))
		if c.Flip("B^T g") {
			gradient.MulVec(b, mat.NewVecDense(n, g))
		}
		phi, err := geometry.Natural(geometry.Pull(f, b), gradient.RawVector().Data, 0)
		c.Must(err)
		step.MulVec(b, mat.NewVecDense(n, phi))
		return step.RawVector().Data
	}
	direct, err := geometry.Natural(f, g, 0)
	c.Must(err)
	c.NearAll("theta = B phi: the same step", through(f, g), direct, 1e-10)

	// For a singular F, only F times the step is the same.
	logits := c.Vector(n)
	f, g = geometry.Categorical(logits, 1), gibbs.Softmax(logits, 1)
	g[0]--
	direct, err = geometry.Natural(f, g, 0)
	c.Must(err)
	var seen mat.VecDense
	seen.MulVec(f, mat.NewVecDense(n, floats.SubTo(make([]float64, n), through(f, g), direct)))
	c.NearAll("with a singular F: the same change of the weights", seen.RawVector().Data, make([]float64, n), 1e-10)

	// Descent of the loss sigma, by sigma and by log sigma.
	sigma := 2.0
	f = geometry.Gaussians().At([]float64{0, sigma})
	bySigma, err := geometry.Natural(f, []float64{0, 1}, 0)
	c.Must(err)
	byLog, err := geometry.Natural(geometry.Pull(f, Rows([]float64{1, 0}, []float64{0, sigma})), []float64{0, sigma}, 0)
	c.Must(err)
	apart := func(eta float64) float64 { return sigma*math.Exp(-eta*byLog[1]) - (sigma - eta*bySigma[1]) }
	c.Near("sigma = exp phi: the same direction", apart(1e-6)/1e-6, 0, 1e-5)
	c.Near("but steps differ in the square of their size", apart(0.02)/apart(0.01), 4, 0.04)
	c.Erratum("E-10", "invariance under reparametrisation", "of infinitesimal steps; exact where parameters change linearly", "invariant")
}

// taughtAttention learns a pattern of attention by gradients and by natural gradients. It uses two
// parametrisations of the form between queries and keys.
func taughtAttention(c *Check) {
	const nq, nk, d, steps = 6, 5, 2, 60
	q, k := c.Normal(nq, d), c.Normal(nk, d)
	m := geometry.OfMetric(q, k, 1/math.Sqrt(d))
	pattern := m.Weights(c.Vector(d * d))
	start := make([]float64, d*d)

	// F is the second derivative of the loss.
	f := m.Fisher(start)
	second := geometry.Partials(func(theta []float64) []float64 { return m.Gradient(theta, pattern) }, start)
	c.NearMat("attention's parameters: F is the second derivative of the loss", f, second, 1e-9)
	first := geometry.Partials(func(theta []float64) []float64 { return []float64{m.Loss(theta, pattern)} }, start)
	c.NearAll("and the gradient is the first", m.Gradient(start, pattern), Flat(first), 1e-9)

	var e mat.EigenSym
	c.True("F has eigenvalues", e.Factorize(f, false))
	largest := floats.Max(e.Values(nil))
	b := Rows([]float64{3, 1, 0, 0}, []float64{0, .2, 0, 1}, []float64{0, 0, 1, -1}, []float64{1, 0, 0, 2})
	other := m.Through(b)
	for _, way := range []geometry.Descent{{Natural: true, Rate: 1, Steps: steps}, {Rate: 1 / largest, Steps: steps}} {
		path, err := m.Descend(start, pattern, way)
		c.Must(err)
		elsewhere, err := other.Descend(start, pattern, way)
		c.Must(err)
		needs := steps
		for i, s := range path {
			if m.Loss(s.Theta, pattern) < 1e-8 {
				needs = i
				break
			}
		}
		apart := 0.0
		for i := range path {
			var off mat.Dense
			off.Sub(m.Weights(path[i].Theta), other.Weights(elsewhere[i].Theta))
			apart = max(apart, mat.Norm(&off, math.Inf(1)))
		}
		if way.Natural {
			c.Within("natural gradient: steps to a loss of 1e-8", float64(needs), 12)
			c.Within("natural gradient: the same weights at every step for theta = B phi", apart, 1e-10)
		} else {
			c.True("plain gradient: it takes more than 12 steps", needs > 12)
			c.True("plain gradient: other weights for theta = B phi", apart > 1e-3)
		}
		c.Note("natural gradient %v: %d steps to a loss of 1e-8; weights by other parameters, theta = B phi, are up to %.2g away in %d steps",
			way.Natural, needs, apart, steps)
	}
}

// naturalGradientOfQueries checks the natural gradient by Q. It takes the gradient from a kernel's
// backward pass and raises its index. The loss is -log of the weight of one key in each row.
func naturalGradientOfQueries(c *Check, a bridge.Attention) {
	const nq, nk, d = 3, 6, 3
	q, k := bridge.Float32(c.Normal(nq, d)), bridge.Float32(c.Normal(nk, d))
	m := geometry.OfQueries(k, nq, 1/math.Sqrt(d))
	p := m.Weights(Flat(q))
	do := mat.NewDense(nq, nk, nil) // dL/dA_ij = -t_ij/A_ij
	for i := range nq {
		do.Set(i, i, -1/p.At(i, i))
	}
	do = bridge.Float32(do)
	ans := c.Attend(a, bridge.Call{Q: q, K: k, V: identity(nk), DO: do})

	scale, minus := c.Factor("scale", 1/math.Sqrt(d)), c.Sign("minus", -1)
	got := bridge.Values{X: mat.NewDense(nq, d, nil), Tol: mat.NewDense(nq, d, nil)}
	want := mat.NewDense(nq, d, nil)
	f := m.Fisher(Flat(q))
	for i := range nq {
		// The step of row i uses the information of its own query only.
		own := mat.NewSymDense(d, nil)
		for x := range d {
			for y := x; y < d; y++ {
				own.SetSym(x, y, f.At(i*d+x, i*d+y))
			}
		}
		step, err := geometry.Natural(own, ans.DQ.X.RawRowView(i), 0)
		c.Must(err)
		got.X.SetRow(i, step)
		metric, err := bilinear.New(own)
		c.Must(err)
		inverse := metric.Inverse()
		for x := range d {
			tol := 0.0
			for y := range d {
				tol += math.Abs(inverse.At(x, y)) * ans.DQ.Tol.At(i, y)
			}
			got.Tol.Set(i, x, tol)
		}
		// As explicit sums: (s^2 K^T (diag p - p p^T) K) step = s K^T (diag p - p p^T) dO.
		information, gradient := mat.NewDense(d, d, nil), mat.NewVecDense(d, nil)
		for j := range nk {
			for l := range nk {
				jl := delta(j, l)*p.At(i, j) + minus*p.At(i, j)*p.At(i, l)
				for x := range d {
					gradient.SetVec(x, gradient.AtVec(x)+scale*k.At(j, x)*jl*do.At(i, l))
					for y := range d {
						information.Set(x, y, information.At(x, y)+scale*scale*k.At(j, x)*jl*k.At(l, y))
					}
				}
			}
		}
		var exact mat.VecDense
		c.Must(exact.SolveVec(information, gradient))
		want.SetRow(i, exact.RawVector().Data)
	}
	c.Tolerable("F^-1 dL/dQ", got, want, 1e-12)
}
