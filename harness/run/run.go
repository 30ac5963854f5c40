package run

import "fmt"

// A Run is the content of a run folder.
type Run struct {
	Dir      string
	Meta     Meta
	Cells    []*Cell // in the order planned
	Ends     []End
	Warnings []string // what reading the folder had to put up with
	index    map[string]*Cell
	slots    map[probed]float64 // the most instructions that were begun in a cycle
	open     bool               // something was written since the last End, or nothing was ever ended
}

// A Cell is all that a journal says of one point.
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

// Done reports whether the point is settled without a number: skipped or failed.
func (c *Cell) Done() bool { return c.Skipped != "" || c.Failed != "" }

func newRun(dir string, m Meta) *Run {
	r := &Run{Dir: dir, Meta: m, index: map[string]*Cell{}, slots: map[probed]float64{}, open: true}
	for _, p := range m.Peaks {
		r.slots[probed{p.ISA, 1}] = p.Slots
	}
	return r
}

// Cell returns what is known of a point, nil if it was not planned.
func (r *Run) Cell(p Point) *Cell { return r.index[p.Name()] }

// Complete reports whether the last session of the run came to its end and left nothing to resume.
func (r *Run) Complete() bool { return !r.open && r.Ends[len(r.Ends)-1].Complete }

// accept says why a record cannot follow the ones before it.
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

// probed is what decides how many instructions a probe finds begun in a cycle: threads may share a
// core, or be on cores of two kinds.
type probed struct {
	isa     string
	threads int
}

// visited drops a visit that had fewer instructions begun for it than others like it before, or
// than the probes at the run's beginning, which have one thread.
func (r *Run) visited(v Visit, at Point) Visit {
	by := probed{at.ISA, at.Threads}
	r.slots[by] = max(r.slots[by], v.Slots)
	if v.Slots > 0 && v.Slots < r.LeastSlots(at) {
		v.Dropped, v.Shared = true, true
	}
	return v
}

// LeastSlots is how many instructions must be begun in a cycle for a sample of the point not to be
// dropped; 0 while nobody knows.
func (r *Run) LeastSlots(at Point) float64 { return MinSlots * r.slots[probed{at.ISA, at.Threads}] }
