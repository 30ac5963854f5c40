package decode

import "attnlab/attn"

// A schedule divides a call into tasks. A task takes the queries of one key head over several KV
// splits, or those of several key heads over one split, or a share of the queries of a head.
type schedule struct {
	batch, heads int  // batch entries, and key heads in each
	splits       int  // KV splits of the longest sequence
	set          int  // key heads of a task
	span         int  // splits of a task; set or span is 1
	shares       int  // shares that the queries of a key head are divided into
	interleaved  bool // a task reads some keys of each of its heads, and then those that follow
}

// newSchedule returns the schedule of a call with keys k.
//
// Where key heads are far apart, a task takes several splits of one head. Where the rows of one
// head are stored between those of another, as in pages, it takes one split of several heads, since
// what the CPU fetches beyond the end of a run is then what the next head reads. Where each row is
// stored between those of other heads, it interleaves them, if it can.
func newSchedule(p *attn.Problem, k *attn.Tensor, splits, workers int) schedule {
	s := schedule{batch: p.Batch, heads: p.HeadsKV, splits: splits, set: 1, span: 1}
	apart := p.HeadsKV == 1 || k.SH > splitKeys*k.SS
	s.interleaved = k.SH < k.SS && headLimit(p) > 1
	most := max(p.HeadsKV, 1)
	switch {
	case apart:
		most = min(splits, spanLimit(p))
	case s.interleaved:
		most = headLimit(p)
	}
	if workers > 1 { // enough tasks for all workers to end at about the same time
		most = max(1, min(most, p.Batch*p.HeadsKV*splits/(4*workers)))
	}
	if apart {
		s.span = most
	} else {
		s.set = most
	}
	// Shares read the same keys. Where there are too few tasks for all workers, that is worth it
	// for some multiply-adds with each number.
	const worth = 8
	s.shares = max(1, cover(sharers(p), maxRows))
	if tasks := s.tasks(); workers > 1 && 0 < tasks && tasks < 2*workers {
		s.shares = max(s.shares, min(s.shares*cover(2*workers, tasks), sharers(p)/worth))
	}
	return s
}

// sets returns the number of tasks of a split, and spans that of a head, not counting shares.
func (s *schedule) sets() int  { return cover(s.heads, s.set) }
func (s *schedule) spans() int { return cover(s.splits, s.span) }

// tasks returns the number of tasks.
func (s *schedule) tasks() int { return s.batch * s.sets() * s.spans() * s.shares }

// A task is what one worker does at a time.
type task struct {
	b, kv, heads  int // batch entry; first key head, and number of them
	split, splits int // first split, and number of them
	share         int
}

// task returns task i.
func (s *schedule) task(i int) task {
	t := task{share: i % s.shares}
	i /= s.shares
	t.split, t.kv, t.b = i%s.spans()*s.span, i/s.spans()%s.sets()*s.set, i/s.spans()/s.sets()
	t.heads, t.splits = min(s.set, s.heads-t.kv), min(s.span, s.splits-t.split)
	return t
}

// rows returns the first row of a share of the n queries of a key head, and the number of its rows.
func (s *schedule) rows(share, n int) (first, rows int) {
	first = share * n / s.shares
	return first, (share+1)*n/s.shares - first
}

// keys returns the keys that a task reads, first..end-1, if its queries see keys lo..hi-1 of the
// sequence. It begins with a whole run and a whole vector.
func (t *task) keys(lo, hi, run int) (first, end int) {
	return max(lo-lo%max(run, aligned), t.split*splitKeys), min(hi, (t.split+t.splits)*splitKeys)
}
