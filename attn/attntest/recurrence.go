package attntest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
)

// recurrences runs f on calls that carry a state, of every kind that the claims cover.
func (s *Subject) recurrences(f func(c cases.Case, a *attn.Args) error) error {
	p := attn.Problem{Op: attn.OpLinear, Batch: 2, HeadsQ: 4, HeadsKV: 2, Dim: 8, DimV: 12, Mask: attn.Causal()}
	plain := func(l attn.Linear) attn.Problem { p := p; p.Linear = l; return p }
	values := p
	values.HeadsQ, values.HeadsKV, values.Linear.HeadsV = 2, 2, 4
	for i, p := range []attn.Problem{
		plain(attn.Linear{Feature: attn.EluPlusOne}),
		plain(attn.Linear{Feature: attn.ReluPlusOne, Eps: 0.25}),
		plain(attn.Linear{Feature: attn.Identity, Unnormalised: true}),
		plain(attn.Linear{Feature: attn.EluPlusOne, Gate: attn.HeadGate}),
		attn.GatedDelta(values), attn.KDA(p), attn.SSD(values), attn.GLA(p), attn.DeltaNet(p),
	} {
		if p.Needs()&^s.Claims != 0 {
			continue
		}
		for _, n := range some(s, 40, 131, 1) {
			p.SeqQ, p.SeqKV = n, n
			c := cases.Case{Family: "recurrence", Name: fmt.Sprintf("%d-%d", i, n), Problem: p, Layout: "bshd", Data: "normal"}
			err := guarded(c, func(c cases.Case) error {
				a, _, err := c.Args()
				if err != nil {
					return err
				}
				if a.StateIn == nil {
					a.StateIn, a.StateOut = make([]float32, p.StateLen()), make([]float32, p.StateLen())
				}
				poison(a)
				return f(c, a)
			})
			if err != nil {
				return fmt.Errorf("%v, %d tokens: %w", p.Linear, n, err)
			}
		}
	}
	return nil
}

// span returns rows lo to hi of a call as a call.
func span(a *attn.Args, lo, hi int) *attn.Args {
	part := *a
	for _, t := range []*attn.Tensor{&part.Q, &part.K, &part.V, &part.Out, &part.Terms.Decay, &part.Terms.Beta} {
		if t.Size() > 0 {
			t.Data, t.S = t.Data[lo*t.SS:], hi-lo
		}
	}
	return &part
}

// inParts runs a call as calls of the given lengths, which carry the state in place.
func inParts(plan attn.Plan, a *attn.Args, lengths ...int) {
	state := slices.Clone(a.StateIn)
	for lo, i := 0, 0; lo < a.Q.S; i++ {
		hi := min(a.Q.S, lo+lengths[i%len(lengths)])
		part := span(a, lo, hi)
		part.StateIn, part.StateOut = state, state
		plan.Forward(part)
		lo = hi
	}
	copy(a.StateOut, state)
}

// steps checks that a call equals its parts: any division, through the same plan or a one-row plan,
// has outputs and a state within the tolerance of the whole. Single rows have the same bits through
// both plans. A state in place has the bits of a state of its own.
func steps(s *Subject) error {
	return s.recurrences(func(c cases.Case, whole *attn.Args) error {
		p, n := c.Problem, c.Problem.SeqQ
		plan, err := s.plan(p, nil)
		if err != nil {
			return err
		}
		defer done(plan)
		plan.Forward(whole)
		first := collect(whole, nil)
		one := p
		one.SeqQ, one.SeqKV = 1, 1
		row, err := s.plan(one, nil)
		if err != nil {
			return err
		}
		defer done(row)
		var rows []float32
		for _, d := range []struct {
			name    string
			plan    attn.Plan
			lengths []int
		}{
			{"all at once", plan, []int{n}},
			{"in uneven parts", plan, []int{7, 1, 31, 1, 2, 64}},
			{"row by row through the wide plan", plan, []int{1}},
			{"row by row", row, []int{1}},
		} {
			a := clone(whole)
			inParts(d.plan, a, d.lengths...)
			v, err := compared(p, a, 1<<20, 0)
			if err != nil {
				return err
			}
			if !(v.Worst <= 1) {
				return fmt.Errorf("%s: error is %.3g of the tolerance; %s", d.name, v.Worst, v.Where)
			}
			switch got := collect(a, nil); {
			case d.lengths[0] == n:
				err = same(first, got)
			case len(d.lengths) == 1 && rows == nil:
				rows = got
			case len(d.lengths) == 1:
				err = same(rows, got)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
		poison(whole)
		plan.Forward(whole)
		if err := same(first, collect(whole, nil)); err != nil {
			return fmt.Errorf("again, after the parts: %w", err)
		}
		return nil
	})
}

// snapshots checks that each snapshot is the state of a call without the last tokens, and that
// outputs stay within the tolerance.
func snapshots(s *Subject) error {
	if s.Claims&attn.NeedSnapshots == 0 {
		return nil
	}
	return s.recurrences(func(c cases.Case, whole *attn.Args) error {
		p := c.Problem
		p.Linear.Snapshots = 4
		a := clone(whole)
		a.StateOut = make([]float32, p.SnapshotLen())
		poison(a)
		if err := s.forward(p, a, nil); err != nil {
			return err
		}
		v, err := compared(p, a, 1<<20, 0)
		if err != nil {
			return err
		}
		if !(v.Worst <= 1) {
			return fmt.Errorf("error is %.3g of the tolerance; %s", v.Worst, v.Where)
		}
		if n := p.StateLen(); p.SeqQ < p.Linear.Snapshots-1 {
			return same(a.StateIn, a.StateOut[len(a.StateOut)-n:])
		}
		return nil
	})
}

// A recurrenceLaw holds exactly, whatever the numbers are.
//
// These are the checks that have an exact answer. Some known checks are not here:
//   - Spiking and wide gates, orthogonal keys, value heads, norms of short rows, padding between
//     tokens and constant decay are cases, which the oracle judges.
//   - Any division into calls is laws/steps.
//   - SSD, and the names of rules, are constructors. Tests of package attn check them.
//   - A rotation of Q and K rounds, so it has no exact answer. A signed permutation of key
//     channels takes its place.
type recurrenceLaw struct {
	name string
	p    func(p attn.Problem) attn.Problem
	edit func(a *attn.Args) // changes the operands
	want answerOf
	bits bool // the answer is exact to the bit
}

// An answerOf returns the numbers of Out and StateOut that a law wants. A nil one is not compared.
type answerOf = func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(i int) float64, err error)

// raw is a rule without a norm and with scale 1, so that a query reads the state itself.
func raw(of func(attn.Problem) attn.Problem) func(attn.Problem) attn.Problem {
	return func(p attn.Problem) attn.Problem {
		p = of(p)
		p.Linear.Norm, p.Linear.NormEps, p.Score.Scale = attn.NoNorm, 0, 1
		return p
	}
}

func each(t *attn.Tensor, f func(s int, row []float32)) {
	cases.Rows(t, func(_, s, _ int, row []float32) { f(s, row) })
}

// askKeys makes every query its key.
func askKeys(a *attn.Args) {
	each(&a.Terms.Beta, func(_ int, row []float32) { row[0] = 1 })
	cases.Rows(&a.Q, func(b, s, h int, row []float32) { copy(row, a.K.Row(b, s, h)) })
}

func setAll(t *attn.Tensor, by float32) { each(t, func(_ int, row []float32) { fillWith(row, by) }) }

// values returns the numbers of V in the order of Out.
func values(a *attn.Args) func(i int) float64 {
	var all []float32
	cases.Rows(&a.V, func(_, _, _ int, row []float32) { all = append(all, row...) })
	return func(i int) float64 { return float64(all[i]) }
}

func list(x []float32) func(i int) float64 { return func(i int) float64 { return float64(x[i]) } }

// storedValues is the answer of queries that read back what their tokens stored.
func storedValues(_ *Subject, _ attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
	return values(a), nil, nil
}

// sameState is the answer of calls that change no state.
func sameState(_ *Subject, _ attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
	return nil, list(a.StateIn), nil
}

// other returns the answer of another call.
func other(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
	b := clone(a)
	if err := s.forward(p, b, nil); err != nil {
		return nil, nil, err
	}
	var all []float32
	cases.Rows(&b.Out, func(_, _, _ int, row []float32) { all = append(all, row...) })
	return list(all), list(b.StateOut), nil
}

var recurrenceLaws = []recurrenceLaw{
	{name: "a key with beta 1 stores its value", p: raw(attn.GatedDelta), edit: askKeys, want: storedValues},
	{name: "the same key again replaces the value", p: raw(attn.DeltaNet), edit: func(a *attn.Args) {
		cases.Rows(&a.K, func(b, s, h int, row []float32) { copy(row, a.K.Row(b, 0, h)) })
		askKeys(a)
	}, want: storedValues},
	{name: "beta 0 and gates of 1 leave the state", bits: true, p: raw(attn.GatedDelta), edit: func(a *attn.Args) {
		setAll(&a.Terms.Beta, 0)
		setAll(&a.Terms.Decay, 0)
	}, want: sameState},
	{name: "padding leaves the state", bits: true, p: attn.KDA, edit: func(a *attn.Args) {
		for _, t := range []*attn.Tensor{&a.K, &a.V, &a.Terms.Decay, &a.Terms.Beta} {
			setAll(t, 0)
		}
	}, want: sameState},
	{name: "a reset forgets", p: attn.GatedDelta, edit: func(a *attn.Args) {
		each(&a.Terms.Decay, func(s int, row []float32) {
			if s == 0 {
				row[0] = float32(math.Inf(-1))
			}
		})
	}, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		b.StateIn = nil
		return other(s, p, b)
	}},
	{name: "-200 forgets as a reset does", p: attn.KDA, edit: func(a *attn.Args) {
		each(&a.Terms.Decay, func(s int, row []float32) {
			if s%9 == 4 {
				fillWith(row, -200)
			}
		})
	}, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		each(&b.Terms.Decay, func(t int, row []float32) {
			if t%9 == 4 {
				fillWith(row, float32(math.Inf(-1)))
			}
		})
		return other(s, p, b)
	}},
	{name: "beta 2 with value 0 reflects: twice is nothing", p: raw(attn.DeltaNet), edit: func(a *attn.Args) {
		setAll(&a.V, 0)
		setAll(&a.Terms.Beta, 2)
		cases.Rows(&a.K, func(b, s, h int, row []float32) { copy(row, a.K.Row(b, s/2*2, h)) })
	}, want: sameState},
	{name: "equal gates of all key channels are a gate per head", p: attn.KDA, edit: func(a *attn.Args) {
		each(&a.Terms.Decay, func(_ int, row []float32) { fillWith(row, row[0]) })
	}, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		b.Terms.Decay.D = 1
		return other(s, attn.GatedDelta(p), b)
	}},
	{name: "gates of 1 are no gates", p: attn.GatedDelta, edit: func(a *attn.Args) { setAll(&a.Terms.Decay, 0) }, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		b.Terms.Decay = attn.Tensor{}
		return other(s, attn.DeltaNet(p), b)
	}},
	{name: "gates of 1 are plain linear attention", p: attn.RetNet, edit: func(a *attn.Args) { setAll(&a.Terms.Decay, 0) }, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		b.Terms.Decay = attn.Tensor{}
		p.Linear.Gate = attn.NoGate
		return other(s, p, b)
	}},
	{name: "twice the values and the state are twice the outputs", bits: true, p: attn.GatedDelta, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		each(&b.V, func(_ int, row []float32) { scale(row, 2) })
		scale(b.StateIn, 2)
		out, state, err = other(s, p, b)
		half := func(f func(int) float64) func(int) float64 { return func(i int) float64 { return f(i) / 2 } }
		return half(out), half(state), err
	}},
	{name: "a signed permutation of key channels changes no output", p: attn.KDA, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		b.StateIn = slices.Clone(a.StateIn)
		order := rand.New(rand.NewPCG(1, 2)).Perm(p.Dim)
		sign := func(i int) float32 { return float32(1 - 2*(i%2)) }
		for _, t := range [][2]*attn.Tensor{{&b.Q, &a.Q}, {&b.K, &a.K}, {&b.Terms.Decay, &a.Terms.Decay}} {
			cases.Rows(t[0], func(x, y, z int, row []float32) {
				from := t[1].Row(x, y, z)
				for i, j := range order {
					if row[i] = from[j]; t[1] != &a.Terms.Decay {
						row[i] *= sign(i)
					}
				}
			})
		}
		for at := 0; at < len(a.StateIn); at += p.Dim * p.DimV {
			for i, j := range order {
				for c := range p.DimV {
					b.StateIn[at+i*p.DimV+c] = sign(i) * a.StateIn[at+j*p.DimV+c]
				}
			}
		}
		out, _, err = other(s, p, b)
		return out, nil, err
	}},
	{name: "constant operands settle", p: raw(attn.GatedDelta), edit: func(a *attn.Args) {
		cases.Rows(&a.K, func(b, s, h int, row []float32) { copy(row, a.K.Row(b, 0, h)) })
		cases.Rows(&a.V, func(b, s, h int, row []float32) { copy(row, a.V.Row(b, 0, h)) })
		askKeys(a)
		setAll(&a.Terms.Beta, 0.75)
		setAll(&a.Terms.Decay, -0.5)
		fillWith(a.StateIn, 0)
	}, want: func(_ *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		v := values(a)
		row := p.DimV * p.ValueHeads()
		alpha := math.Exp(-0.5) * 0.25
		return func(i int) float64 { // a geometric series
			t := i / row % p.SeqQ
			return 0.75 * v(i) * (1 - math.Pow(alpha, float64(t+1))) / (1 - alpha)
		}, nil, nil
	}},
	{name: "a column of values is a problem of its own", bits: true, p: attn.GatedDelta, want: func(s *Subject, p attn.Problem, a *attn.Args) (out, state func(int) float64, err error) {
		b := clone(a)
		width := p.DimV
		p.DimV = 5
		for _, t := range []*attn.Tensor{&b.V, &b.Out} {
			t.D = p.DimV
		}
		b.StateIn = nil
		for at := 0; at < len(a.StateIn); at += width {
			b.StateIn = append(b.StateIn, a.StateIn[at:][:p.DimV]...)
		}
		b.StateOut = make([]float32, len(b.StateIn))
		x, y, err := other(s, p, b)
		first := func(f func(int) float64) func(int) float64 {
			return func(i int) float64 {
				if i%width >= p.DimV {
					return math.NaN() // not compared
				}
				return f(i/width*p.DimV + i%width)
			}
		}
		return first(x), first(y), err
	}},
}

// exactRecurrences checks the laws above, on calls that are longer than a chunk.
func exactRecurrences(s *Subject) error {
	for i, law := range recurrenceLaws {
		p := law.p(attn.Problem{Batch: 2, SeqQ: 70, SeqKV: 70, HeadsQ: 2, HeadsKV: 2, Dim: 8, DimV: 12})
		if p.Needs()&^s.Claims != 0 {
			continue
		}
		c := cases.Case{Family: "recurrence", Name: fmt.Sprintf("law-%d", i), Problem: p, Layout: "bshd", Data: "normal"}
		if err := guarded(c, func(c cases.Case) error { return law.check(s, &c) }); err != nil {
			return fmt.Errorf("%s: %w", law.name, err)
		}
	}
	return nil
}

func (law *recurrenceLaw) check(s *Subject, c *cases.Case) error {
	p := c.Problem
	a, _, err := c.Args()
	if err != nil {
		return err
	}
	if law.edit != nil {
		law.edit(a)
	}
	poison(a)
	if err := s.forward(p, a, nil); err != nil {
		return err
	}
	out, state, err := law.want(s, p, a)
	if err != nil {
		return err
	}
	// A closed form has one rounding of float64; another call has a tolerance of its own, much like
	// that of this one.
	rows, err := margins(p, a)
	if err != nil {
		return err
	}
	var tol []float64
	for _, m := range rows {
		tol = append(tol, m.out...)
	}
	o, err := oracle.New(p, a)
	if err != nil {
		return err
	}
	stateTol := o.StateTolerances()
	compare := func(name string, got []float32, want func(int) float64, tol []float64) error {
		for i, x := range got {
			w := want(i)
			if math.IsNaN(w) && x == x {
				continue
			}
			if law.bits && math.Float32bits(x) != math.Float32bits(float32(w)) && (x != 0 || w != 0) || !law.bits && !(math.Abs(float64(x)-w) <= 2*tol[i]) {
				return fmt.Errorf("%s[%d] is %v, want %v, tolerance %.3g", name, i, x, w, 2*tol[i])
			}
		}
		return nil
	}
	if out != nil {
		var got []float32
		cases.Rows(&a.Out, func(_, _, _ int, row []float32) { got = append(got, row...) })
		if err := compare("Out", got, out, tol); err != nil {
			return err
		}
	}
	if state != nil {
		return compare("StateOut", a.StateOut, state, stateTol)
	}
	return nil
}
