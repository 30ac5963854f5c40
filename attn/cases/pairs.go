package cases

import (
	"fmt"
	"math"
	"strings"

	"attnlab/attn"
)

// A choice is one value of a parameter: how it changes a problem, and then its operands.
type choice struct {
	name         string // "" is the plain value
	set          func(p *attn.Problem)
	edit         func(p *attn.Problem, a *attn.Args, r rnd)
	data, layout string
}

// differentiated returns the parameters of problems with gradients.
func differentiated() [][]choice {
	return append(parameters(), []choice{{name: "grad", set: func(p *attn.Problem) { p.Want |= attn.WantGrad }}})
}

// parameters returns the features that vary. The plain value of each comes first. Edits are made in
// this order.
func parameters() [][]choice {
	set := func(name string, f func(p *attn.Problem)) choice { return choice{name: name, set: f} }
	term := func(name string, t attn.Terms) choice {
		return set(name, func(p *attn.Problem) { p.Score.Terms |= t })
	}
	size := func(n int) choice { return set(fmt.Sprintf("q%d", n), func(p *attn.Problem) { p.SeqQ = n }) }
	group := func(n int) choice {
		return set(fmt.Sprintf("group%d", n), func(p *attn.Problem) { p.HeadsKV = p.HeadsQ / n })
	}
	mask := func(m attn.Mask) choice { return set(m.String(), func(p *attn.Problem) { p.Mask = m }) }
	blocks := func(side int) choice {
		return choice{
			name: fmt.Sprintf("block%d", side),
			set:  func(p *attn.Problem) { p.Mask = p.Mask.WithBlocks(side) },
			edit: func(p *attn.Problem, a *attn.Args, r rnd) {
				a.Allowed = attn.BlockSparse(p.SeqQ, p.SeqKV, side, func(_, _ int) bool { return r.IntN(3) > 0 })
			},
		}
	}
	typ := func(of string, t attn.DType, at func(p *attn.Problem) *attn.DType) choice {
		return set(fmt.Sprintf("%s:%v", of, t), func(p *attn.Problem) { *at(p) = t })
	}
	q := func(p *attn.Problem) *attn.DType { return &p.Q }
	kv := func(p *attn.Problem) *attn.DType { return &p.KV }
	out := func(p *attn.Problem) *attn.DType { return &p.Out }
	return [][]choice{
		{size(37), size(3), size(100)},
		{{}, mask(attn.Causal()), mask(attn.CausalTopLeft()), mask(attn.Window(20, 3))},
		{
			{}, {
				name: "bool",
				set:  func(p *attn.Problem) { p.Mask.Bitmap = attn.BoolBitmap },
				edit: func(p *attn.Problem, a *attn.Args, r rnd) {
					a.Allowed = randomMask(r, 0.7, p.Batch, p.HeadsQ, p.SeqQ, p.SeqKV)
				},
			}, {
				name: "packed",
				set:  func(p *attn.Problem) { p.Mask.Bitmap = attn.PackedBitmap },
				edit: func(p *attn.Problem, a *attn.Args, r rnd) {
					a.Allowed = attn.Pack(p.SeqQ, p.SeqKV, func(_, _ int) bool { return r.IntN(3) > 0 })
				},
			}, blocks(16), blocks(64),
		},
		{
			{},
			set("temp0.7", func(p *attn.Problem) { p.Score.Temp = 0.7 }),
			set("uniform", func(p *attn.Problem) { p.Score.Temp = math.Inf(1) }),
		},
		{{}, set("softcap", func(p *attn.Problem) { p.Score.Softcap = 2 })},
		{{}, term("bias", attn.TermBias)},
		{{}, term("alibi", attn.TermALiBi)},
		{{}, term("sinks", attn.TermSinks)},
		{{}, term("relative", attn.TermRelative), {
			name: "clipped",
			set:  func(p *attn.Problem) { p.Score.Terms |= attn.TermRelative },
			edit: func(_ *attn.Problem, a *attn.Args, _ rnd) { a.Terms.RelativeClip, a.Terms.Relative.S = 9, 19 },
		}},
		{{}, term("metric", attn.TermMetric), set("rectangular", func(p *attn.Problem) {
			p.Score.Terms |= attn.TermMetric
			p.DimQ = 11
		})},
		{
			{},
			set("rope", func(p *attn.Problem) { p.Score.Rope = attn.RopeInterleaved }),
			set("rope-halves", func(p *attn.Problem) { p.Score.Rope = attn.RopeHalves }),
		},
		{{}, typ("q", attn.F16, q), typ("q", attn.BF16, q)},
		{{}, typ("kv", attn.F16, kv), typ("kv", attn.BF16, kv), typ("kv", attn.I8, kv)},
		{{}, typ("out", attn.F16, out), typ("out", attn.BF16, out)},
		{{}, group(2), group(4)},
		{{}, {
			name: "lengths",
			set:  func(p *attn.Problem) { p.Lengths = true },
			edit: func(_ *attn.Problem, a *attn.Args, _ rnd) { a.KLen, a.QPos = []int32{117, 130}, []int32{17, 0} },
		}, {
			name: "ragged",
			set:  func(p *attn.Problem) { p.Ragged = true },
			edit: uneven,
		}, {
			name: "ragged-lengths",
			set:  func(p *attn.Problem) { p.Ragged, p.Lengths = true, true },
			edit: func(p *attn.Problem, a *attn.Args, r rnd) {
				uneven(p, a, r)
				a.KLen, a.QPos = []int32{101, 90}, []int32{68, 9}
			},
		}},
		{{}, {
			name: "page16",
			set:  func(p *attn.Problem) { p.Page = 16 },
			edit: func(p *attn.Problem, a *attn.Args, _ rnd) {
				for b := range p.Batch {
					mine := a.Pages[b*p.PagesEach():][:p.PagesEach()]
					for i := (a.Keys(p, b) + p.Page - 1) / p.Page; i < len(mine); i++ {
						mine[i] = -1 // not in use
					}
				}
			},
		}},
		{
			{},
			set("stats", func(p *attn.Problem) { p.Want = everyRowStat }),
			set("everything", func(p *attn.Problem) { p.Want = everyRowStat | attn.WantWeights | attn.WantScores }),
		},
		{{}, {layout: "padded", name: "padded"}, {layout: "bshd", name: "bshd"}},
		{{}, {data: "std30", name: "std30"}, {data: "rising", name: "rising"}, {data: "sparse", name: "sparse"}},
	}
}

// uneven makes two sequences of different lengths, neither with more queries than keys.
func uneven(p *attn.Problem, a *attn.Args, _ rnd) {
	split(a, []int{p.SeqQ / 3, p.SeqQ}, []int{101, 130})
}

// A combination is a choice for each parameter, by index, or -1 where it is undecided.
type combination []int

// problem returns the combination's problem. Undecided parameters have their plain values.
func (c combination) problem(of [][]choice) attn.Problem {
	p := problem(2, 37, 130, 4, 4, 16, 10)
	for at, i := range c {
		if i >= 0 && of[at][i].set != nil {
			of[at][i].set(&p)
		}
	}
	return p
}

// valid reports whether the combination is a valid problem.
func (c combination) valid(of [][]choice) bool {
	p := c.problem(of)
	return p.Validate() == nil
}

// A pair is a choice of each of two parameters: [parameter, choice, parameter, choice].
type pair [4]int

// allPairs returns the pairs that do not contradict each other.
func allPairs(of [][]choice) []pair {
	var all []pair
	for x := range of {
		for y := range x {
			for i := range of[x] {
				for j := range of[y] {
					c := undecided(of)
					if c[x], c[y] = i, j; c.valid(of) {
						all = append(all, pair{y, j, x, i})
					}
				}
			}
		}
	}
	return all
}

func undecided(of [][]choice) combination {
	c := make(combination, len(of))
	for at := range c {
		if c[at] = -1; len(of[at]) == 1 {
			c[at] = 0
		}
	}
	return c
}

// covering returns a small set of combinations that contains every pair. It is greedy: each
// combination begins with the first missing pair. It then takes, for one parameter after the other,
// the choice that adds the most missing pairs.
func covering(of [][]choice) []combination {
	var found []combination
	all := allPairs(of)
	missing := map[pair]bool{}
	for _, p := range all {
		missing[p] = true
	}
	for _, first := range all {
		if !missing[first] {
			continue
		}
		c := undecided(of)
		c[first[0]], c[first[2]] = first[1], first[3]
		for at := range c {
			if c[at] < 0 {
				c[at] = c.best(of, at, missing)
			}
		}
		for x := range c {
			for y := range x {
				delete(missing, pair{y, c[y], x, c[x]})
			}
		}
		found = append(found, c)
	}
	return found
}

// best returns the choice of parameter at that adds the most missing pairs to the decided choices.
func (c combination) best(of [][]choice, at int, missing map[pair]bool) int {
	best, most := 0, -1
	for i := range of[at] {
		if c[at] = i; !c.valid(of) {
			continue
		}
		n := 0
		for y, j := range c {
			if y < at && missing[pair{y, j, at, i}] || y > at && missing[pair{at, i, y, j}] {
				n++
			}
		}
		if n > most {
			best, most = i, n
		}
	}
	c[at] = -1
	return best
}

// The numbers of combinations in the core. They are the first ones, which have the most pairs.
const (
	corePairs = 12
	coreGrads = 6
)

// pairs has every pair of features together, and again every pair that a backward pass can have.
func pairs(l *list) {
	combine(l, parameters(), corePairs)
	combine(l, differentiated(), coreGrads)
}

func combine(l *list, of [][]choice, core int) {
	for n, c := range covering(of) {
		var names []string
		var edits []func(p *attn.Problem, a *attn.Args, r rnd)
		data, layout := "normal", "bhsd"
		for at, i := range c {
			v := of[at][i]
			if v.name != "" {
				names = append(names, v.name)
			}
			if v.edit != nil {
				edits = append(edits, v.edit)
			}
			if v.data != "" {
				data = v.data
			}
			if v.layout != "" {
				layout = v.layout
			}
		}
		l.add(strings.Join(names, "-"), c.problem(of)).data(data).in(layout).core(n < core).with(func(p *attn.Problem, a *attn.Args, r rnd) {
			for _, edit := range edits {
				edit(p, a, r)
			}
		})
	}
}
