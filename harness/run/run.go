package run

import "fmt"

// A Run is the content of a run folder.
type Run struct {
	Dir      string
	Meta     Meta
	Cells    []*Cell // in the order planned
	Ends     []End
	Warnings []string // doubts about the folder, such as a last line that was cut
	index    map[string]*Cell
	slots    map[probed]float64 // the most instructions begun in a cycle
	open     bool               // records follow the last End, or there is no End
}

// A Cell is everything that a journal says about one point.
type Cell struct {
	Plan
	Visits   []Visit
	Verified *Verify // the latest
	Memory   *Memory // the latest
	Skipped  string  // reason, or empty
	Failed   string  // the first reason, or empty
	rounds   map[int]bool
}

// Visited reports whether the point has a visit of this round.
func (c *Cell) Visited(round int) bool { return c.rounds[round] }

// Done reports whether the point was skipped or failed, so that no sample of it will follow.
func (c *Cell) Done() bool { return c.Skipped != "" || c.Failed != "" }

func newRun(dir string, m Meta) *Run {
	r := &Run{Dir: dir, Meta: m, index: map[string]*Cell{}, slots: map[probed]float64{}, open: true}
	for _, p := range m.Peaks {
		r.slots[probed{p.ISA, 1}] = p.Slots
	}
	return r
}

// Cell returns the cell of a point, nil if it was not planned.
func (r *Run) Cell(p Point) *Cell { return r.index[p.Name()] }

// Complete reports whether the last session of the run ended and left nothing to resume.
func (r *Run) Complete() bool { return !r.open && r.Ends[len(r.Ends)-1].Complete }

// accept reports why a record cannot follow the ones before it.
func (r *Run) accept(rec *Record) error {
	if rec.End != nil {
		return nil
	}
	name := rec.point()
	c := r.index[name]
	switch {
	case rec.Plan != nil && c != nil:
		return fmt.Errorf("%s is planned twice", name)
	case rec.Plan == nil && c == nil:
		return fmt.Errorf("%s was never planned", name)
	case rec.Visit != nil && c.Visited(rec.Visit.Round) && r.Meta.Version != withoutSums:
		return fmt.Errorf("%s is visited twice in round %d", name, rec.Visit.Round)
	}
	return nil
}

func (r *Run) add(rec *Record) {
	c := r.index[rec.point()]
	r.open = rec.End == nil
	switch {
	case rec.Plan != nil:
		c = &Cell{Plan: *rec.Plan, rounds: map[int]bool{}}
		r.Cells = append(r.Cells, c)
		r.index[c.Point.Name()] = c
	case rec.Visit != nil:
		c.Visits = append(c.Visits, r.visited(*rec.Visit, c.Point))
		c.rounds[rec.Visit.Round] = true
	case rec.Verify != nil:
		c.Verified = rec.Verify
	case rec.Memory != nil:
		c.Memory = rec.Memory
	case rec.Skip != nil:
		c.Skipped = rec.Skip.Reason
	case rec.Fail != nil && c.Failed == "":
		c.Failed = rec.Fail.Reason
	case rec.End != nil:
		r.Ends = append(r.Ends, *rec.End)
	}
}

// probed is what the greatest number of instructions begun in a cycle depends on. Threads matter
// because they may share a core, or run on cores of two kinds.
type probed struct {
	isa     string
	threads int
}

// visited marks a visit as dropped if the CPU began fewer instructions in a cycle than during
// earlier visits like it, or than in the probes at the run's beginning, which have one thread.
func (r *Run) visited(v Visit, at Point) Visit {
	by := probed{at.ISA, at.Threads}
	r.slots[by] = max(r.slots[by], v.Slots)
	if v.Slots > 0 && v.Slots < r.LeastSlots(at) {
		v.Dropped, v.Shared = true, true
	}
	return v
}

// LeastSlots returns the number of instructions begun in a cycle below which a sample of the point
// is dropped. It is 0 while that is unknown.
func (r *Run) LeastSlots(at Point) float64 { return MinSlots * r.slots[probed{at.ISA, at.Threads}] }
