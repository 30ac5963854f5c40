package run

import (
	"fmt"
	"strings"

	"attnlab/attn"
	"attnlab/harness/stats"
)

// A Cost is the speed of a point over that of a plainer one in the same run: one that differs from
// it in one respect, and does without it in that.
type Cost struct {
	What          string // the respect, as in "alibi" or "store int8"
	Point, Plain  Point
	Speed, Lo, Hi float64 // median of the ratios, one a round that visited both, and its interval
	Rounds        int
}

// Costs compares each measured point with the plainer ones of the run. A ratio is of floating-point
// operations in visible pairs a second, each over what its own probes reached, so that a round
// which the machine slowed down counts for no less; decode points, whose operands in memory are of
// different sizes, are compared by time alone.
func (r *Run) Costs() []Cost {
	var list []Cost
	for _, c := range r.Cells {
		for _, way := range c.Point.plainer() {
			plain := r.Cell(way.point)
			if plain == nil || c.Row().Status != OK || plain.Row().Status != OK {
				continue
			}
			if s := stats.Summarise(speeds(c, plain)); s.N > 0 {
				list = append(list, Cost{way.without, c.Point, way.point, s.Median, finite(s.Lo), finite(s.Hi), s.N})
			}
		}
	}
	return list
}

// speeds are the speeds of a cell over those of another, round by round.
func speeds(c, plain *Cell) []float64 {
	rounds := map[int]float64{}
	for i := range plain.Visits {
		rounds[plain.Visits[i].Round] = plain.speed(&plain.Visits[i])
	}
	var ratios []float64
	for i := range c.Visits {
		v := &c.Visits[i]
		if s, base := c.speed(v), rounds[v.Round]; s > 0 && base > 0 {
			ratios = append(ratios, s/base)
		}
	}
	return ratios
}

// speed is the rate of one sample in floating-point operations, over that of its probes where these
// count the same. It is 0 where it is not known.
func (c *Cell) speed(v *Visit) float64 {
	if v.Unit == ProbeFlop {
		if s, ok := c.sample(v); ok {
			return s.Share()
		}
		return 0
	}
	return float64(c.Flop) * float64(v.Calls) / c.judged(v)
}

// A plainerPoint is a point and what it is without.
type plainerPoint struct {
	point   Point
	without string
}

// plainer lists the points that a point is measured against: without features, without a type,
// without pages, without groups of heads, without a window. A ragged batch is measured against its
// sequences one by one.
func (p Point) plainer() []plainerPoint {
	var list []plainerPoint
	add := func(without string, change func(q *Point)) {
		q := p
		change(&q)
		if q = q.WithDefaults(); q != p {
			list = append(list, plainerPoint{q, without})
		}
	}
	switch features := "+" + p.Features; {
	case p.Alone() != nil: // the plain form of a ragged batch
	case strings.Contains(features, "+ragged"):
		add(p.Features, func(q *Point) {
			q.Features = strings.TrimPrefix(strings.Replace(features, "+ragged", "+"+alone, 1), "+")
		})
	default:
		add(p.Features, func(q *Point) { q.Features = "" })
	}
	add("store "+p.Store, func(q *Point) { q.Store = attn.F32.String() })
	add(fmt.Sprintf("page %d", p.Page), func(q *Point) { q.Page = 0 })
	add(fmt.Sprintf("kv-heads %d", p.HeadsKV), func(q *Point) { q.HeadsKV = q.HeadsQ })
	if strings.HasPrefix(p.Mask, "window") {
		add(p.Mask, func(q *Point) { q.Mask = attn.Full().String() })
	}
	return list
}
