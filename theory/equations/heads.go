package equations

import (
	"fmt"
	"io"

	"gonum.org/v1/gonum/mat"

	"attnlab/attn"
	"attnlab/attn/oracle"
	"attnlab/theory/bridge"
	"attnlab/theory/scorers"
)

// sharing lists the numbers of key heads for four query heads: one each, one for every two, one for
// all.
var sharing = []int{4, 2, 1}

const queryHeads = 4

// keyHead returns the key head of query head h.
func keyHead(c *Check, h, keyHeads int) int {
	return c.Index("key head", h/(queryHeads/keyHeads), keyHeads)
}

func heads(c *Check) {
	for _, keyHeads := range sharing {
		var q, k, v []*mat.Dense
		for range queryHeads {
			q = append(q, c.Normal(3, 4))
		}
		for range keyHeads {
			k, v = append(k, c.Normal(5, 4)), append(v, c.Normal(5, 2))
		}
		var shownK, shownV []*mat.Dense
		for h := range queryHeads {
			shownK, shownV = append(shownK, k[h*keyHeads/queryHeads]), append(shownV, v[h*keyHeads/queryHeads])
		}
		for h, d := range scorers.AttendBatch(scorers.Dot{}, q, shownK, shownV, nil) {
			g := keyHead(c, h, keyHeads)
			s, a, o := written(c, q[h], k[g], v[g], nil)
			what := fmt.Sprintf("head %d of %d over %d key heads: ", h, queryHeads, keyHeads)
			c.NearMat(what+"S", d.Scores, s, 1e-14)
			c.NearMat(what+"A", d.Weights, a, 1e-14)
			c.NearMat(what+"O", d.Output, o, 1e-14)
		}
	}
}

// headsAsked checks that a head computed with others has the same bits as that head computed alone.
func headsAsked(c *Check, a bridge.Attention) {
	const nq, nk, d, dv = 6, 11, 8, 5
	for _, keyHeads := range sharing {
		args := attn.Args{
			Q: filled(c, nq, queryHeads, d), K: filled(c, nk, keyHeads, d), V: filled(c, nk, keyHeads, dv),
			Out: attn.New(attn.BSHD, 1, nq, queryHeads, dv),
		}
		p := attn.Problem{Batch: 1, SeqQ: nq, SeqKV: nk, HeadsQ: queryHeads, HeadsKV: keyHeads, Dim: d, DimV: dv}
		together := manyHeads(c, a, p, &args)
		for h := range queryHeads {
			g := keyHead(c, h, keyHeads)
			q, k, v := oneHead(&args.Q, h), oneHead(&args.K, g), oneHead(&args.V, g)
			alone := c.Attend(a, bridge.Call{Q: q, K: k, V: v})
			what := fmt.Sprintf("head %d of %d over %d key heads", h, queryHeads, keyHeads)
			c.NearMat(what+" is that head alone", together[h], alone.O.X, 0)
			_, _, o := written(c, q, k, v, nil)
			c.Tolerable(what, alone.O, o, 0)
		}
	}
}

// filled returns a random operand of several heads, which are interleaved in each row.
func filled(c *Check, rows, heads, cols int) attn.Tensor {
	t := attn.New(attn.BSHD, 1, rows, heads, cols)
	for i := range t.Data {
		t.Data[i] = float32(c.Rand.NormFloat64())
	}
	return t
}

// oneHead returns the rows of one head as a matrix.
func oneHead(t *attn.Tensor, h int) *mat.Dense {
	m := mat.NewDense(t.S, t.D, nil)
	m.Apply(func(i, b int, _ float64) float64 { return float64(t.Row(0, i, h)[b]) }, m)
	return m
}

// manyHeads returns the output of each head of a problem with several heads.
func manyHeads(c *Check, a bridge.Attention, p attn.Problem, args *attn.Args) []*mat.Dense {
	outs := make([]*mat.Dense, p.HeadsQ)
	if a.Kernel() == nil {
		o, err := oracle.New(p, args)
		c.Must(err)
		for h := range outs {
			outs[h] = mat.NewDense(p.SeqQ, p.DimV, nil)
			for i := range p.SeqQ {
				outs[h].SetRow(i, o.Row(oracle.Index{H: h, I: i}).Out)
			}
		}
		return outs
	}
	plan, err := a.Kernel().Plan(p, nil)
	c.Must(err)
	if held, ok := plan.(io.Closer); ok {
		defer held.Close()
	}
	plan.Forward(args)
	for h := range outs {
		outs[h] = oneHead(&args.Out, h)
	}
	return outs
}
