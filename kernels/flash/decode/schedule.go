package decode

import "attnlab/attn"

// A schedule divides a call into tasks. A task scans several KV splits of one key head, or one
// split of several key heads, or computes a share of the queries of a head.
type schedule struct {
	batch, heads int  // batch entries, and key heads in each
	splits       int  // KV splits of the longest sequence
	taskHeads    int  // key heads of a task
	taskSplits   int  // splits of a task; taskHeads or taskSplits is 1
	shares       int  // shares that the queries of a key head are divided into
	interleaved  bool // a task reads a run of each of its heads, and then the next run of each
}

// newSchedule returns the schedule of a call with keys k.
//
// Where key heads are far apart in memory, a task scans several splits of one head. Where they are
// near, as in pages, it scans one split of several heads: what the CPU prefetches beyond the end of
// a run is then read for the next head. Where the rows of heads are interleaved in memory, it
// interleaves their runs, if it can.
func newSchedule(p *attn.Problem, k *attn.Tensor, splits, workers int) schedule {
	s := schedule{batch: p.Batch, heads: p.HeadsKV, splits: splits, taskHeads: 1, taskSplits: 1}
	apart := p.HeadsKV == 1 || k.SH > splitKeys*k.SS
	s.interleaved = k.SH < k.SS && headLimit(p) > 1
	most := max(p.HeadsKV, 1)
	switch {
	case apart:
		most = min(splits, splitLimit(p))
	case s.interleaved:
		most = headLimit(p)
	}
	if workers > 1 { // enough tasks for all workers to end at about the same time
		most = max(1, min(most, p.Batch*p.HeadsKV*splits/(4*workers)))
	}
	if apart {
		s.taskSplits = most
	} else {
		s.taskHeads = most
	}
	// All shares read the same keys. Where there are too few tasks for all workers, that pays if
	// each number that is read is multiplied by this many queries.
	// Tuning: docs/tuning.md#decode-rows
	const worth = 8
	s.shares = max(1, cover(sharers(p), maxRows))
	if tasks := s.tasks(); workers > 1 && 0 < tasks && tasks < 2*workers {
		s.shares = max(s.shares, min(s.shares*cover(2*workers, tasks), sharers(p)/worth))
	}
	return s
}

// headTasks returns the number of tasks that the heads of a split make, and splitTasks the number
// that the splits of a head make, not counting shares.
func (s *schedule) headTasks() int  { return cover(s.heads, s.taskHeads) }
func (s *schedule) splitTasks() int { return cover(s.splits, s.taskSplits) }

// tasks returns the number of tasks.
func (s *schedule) tasks() int { return s.batch * s.headTasks() * s.splitTasks() * s.shares }

// A task is the work that a worker is handed at a time.
type task struct {
	b, kv, heads  int // batch entry; first key head, and number of them
	split, splits int // first split, and number of them
	share         int
}

// task returns task i.
func (s *schedule) task(i int) task {
	t := task{share: i % s.shares}
	i /= s.shares
	t.split, t.kv, t.b = i%s.splitTasks()*s.taskSplits, i/s.splitTasks()%s.headTasks()*s.taskHeads, i/s.splitTasks()/s.headTasks()
	t.heads, t.splits = min(s.taskHeads, s.heads-t.kv), min(s.taskSplits, s.splits-t.split)
	return t
}

// rows returns the first row of a share of the n queries of a key head, and the number of its rows.
func (s *schedule) rows(share, n int) (first, rows int) {
	first = share * n / s.shares
	return first, (share+1)*n/s.shares - first
}

// keys returns the keys that a task reads, first..end-1, if its queries see keys lo..hi-1 of the
// sequence. first begins a run and a vector.
func (t *task) keys(lo, hi, run int) (first, end int) {
	return max(lo-lo%max(run, aligned), t.split*splitKeys), min(hi, (t.split+t.splits)*splitKeys)
}
