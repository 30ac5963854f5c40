package run

import (
	"fmt"
	"strings"

	"attnlab/attn"
	"attnlab/harness/stats"
)

// A Cost is the speed of a point over that of a plainer point of the same run, which lacks one
// thing that the point has.
type Cost struct {
	What         string // what the plainer point lacks, as in "alibi" or "store int8"
	Point, Plain Point
	Rounds       int // that visited both points

	// Speed is the median of the ratios, one for each round. Its interval is from Lo to Hi.
	Speed, Lo, Hi float64
}

// Costs compares each measured point with the plainer points of the run.
//
// A speed is floating-point operations in visible pairs per second, over what the sample's own
// probes reached. So a round that the machine slowed down counts no less. Decode points are
// compared by time alone, because their operands in memory have different sizes.
func (r *Run) Costs() []Cost {
	var list []Cost
	for _, c := range r.Cells {
		for _, way := range c.Point.plainer() {
			plain := r.Cell(way.point)
			if plain == nil || c.Row().Status != OK || plain.Row().Status != OK {
				continue
			}
			if s := stats.Summarise(speeds(c, plain)); s.N > 0 {
				list = append(list, Cost{
					What: way.without, Point: c.Point, Plain: way.point, Rounds: s.N, Speed: s.Median, Lo: finite(s.Lo), Hi: finite(s.Hi),
				})
			}
		}
	}
	return list
}

// speeds returns the speeds of a cell over those of a plainer one, round by round.
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

// speed returns the rate of one sample in floating-point operations, over the rate of its probes if
// they count the same. It is 0 if that is unknown.
func (c *Cell) speed(v *Visit) float64 {
	if v.Unit == ProbeFlop {
		if s, ok := c.sample(v); ok {
			return s.Share()
		}
		return 0
	}
	return float64(c.Flop) * float64(v.Calls) / c.judged(v)
}

// A plainerPoint is a point that another one is measured against, and what it lacks.
type plainerPoint struct {
	point   Point
	without string
}

// plainer lists the points that a point is measured against: without features, with float32 keys
// and values, without pages, with as many key heads as query heads, without a window, and, if it
// has several tokens, without a rule. A ragged batch is measured against its sequences one by one.
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
	if p.Rule != "" && p.SeqQ > 1 {
		add("rule "+p.Rule, func(q *Point) {
			if q.Rule = ""; p.Features == axis("features").Plain(p) {
				q.Features = ""
			}
		})
	}
	if strings.HasPrefix(p.Mask, "window") {
		add(p.Mask, func(q *Point) { q.Mask = attn.Full().String() })
	}
	return list
}
