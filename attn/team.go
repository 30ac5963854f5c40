package attn

import (
	"sync"
	"sync/atomic"
)

// A Team is a fixed set of workers that runs tasks without allocating. The nil Team is the caller's goroutine alone. Tasks are handed out
// in order, one at a time, to whichever worker is free, so a result must not depend on which worker ran a task. Runs of one Team wait
// for each other, so a task must not call Run.
type Team struct {
	workers int
	wake    chan struct{}
	run     sync.Mutex // held during a Run
	job     func(worker, task int)
	tasks   int64
	next    atomic.Int64
	done    sync.WaitGroup
	panics  sync.Mutex
	panic   any // the first panic of a task in this Run
	ids     atomic.Int64
	closed  bool
}

// NewTeam starts a team of so many workers, the caller of Run being one of them. Fewer than two workers need no team: the result is nil.
// Close ends its goroutines.
func NewTeam(workers int) *Team {
	if workers < 2 {
		return nil
	}
	t := &Team{workers: workers, wake: make(chan struct{})}
	for range workers - 1 {
		go func() {
			for range t.wake {
				t.work(int(t.ids.Add(1)))
				t.done.Done()
			}
		}()
	}
	return t
}

// Workers is the number of workers: the worker argument of a job is below it.
func (t *Team) Workers() int {
	if t == nil {
		return 1
	}
	return t.workers
}

// Run calls job once for each task from 0 to tasks-1 and returns when all are done. If a job panics, the tasks not yet begun are left
// out, and Run panics with the same value.
func (t *Team) Run(tasks int, job func(worker, task int)) {
	if t == nil || tasks < 2 {
		for i := range tasks {
			job(0, i)
		}
		return
	}
	t.run.Lock()
	defer t.run.Unlock()
	if t.closed {
		panic("attn: Run on a closed Team")
	}
	t.job, t.tasks, t.panic = job, int64(tasks), nil
	t.next.Store(0)
	t.ids.Store(0)
	helpers := min(t.workers, tasks) - 1
	t.done.Add(helpers)
	for range helpers {
		t.wake <- struct{}{}
	}
	t.work(0)
	t.done.Wait()
	t.job = nil
	if t.panic != nil {
		panic(t.panic)
	}
}

func (t *Team) work(worker int) {
	defer func() {
		if r := recover(); r != nil {
			t.next.Store(t.tasks)
			t.panics.Lock()
			if t.panic == nil {
				t.panic = r
			}
			t.panics.Unlock()
		}
	}()
	for {
		i := t.next.Add(1) - 1
		if i >= t.tasks {
			return
		}
		t.job(worker, int(i))
	}
}

// Close ends the team's goroutines. The nil Team may be closed; a second Close does nothing.
func (t *Team) Close() {
	if t == nil {
		return
	}
	t.run.Lock()
	defer t.run.Unlock()
	if !t.closed {
		t.closed = true
		close(t.wake)
	}
}
