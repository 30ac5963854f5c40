package attn_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"attnlab/attn"
)

func TestTeamRunsEachTaskOnce(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 3, 8} {
		team := attn.NewTeam(workers)
		if got := team.Workers(); got != max(workers, 1) {
			t.Errorf("a team of %d has %d workers", workers, got)
		}
		for _, tasks := range []int{0, 1, 2, 7, 1000} {
			ran := make([]atomic.Int32, tasks)
			busy := make([]atomic.Bool, team.Workers())
			team.Run(tasks, func(worker, task int) {
				if !busy[worker].CompareAndSwap(false, true) {
					t.Errorf("worker %d runs two tasks at once", worker)
				}
				ran[task].Add(1)
				busy[worker].Store(false)
			})
			for task := range ran {
				if n := ran[task].Load(); n != 1 {
					t.Errorf("%d workers: task %d of %d ran %d times", workers, task, tasks, n)
				}
			}
		}
		team.Close()
	}
}

// TestTeamPanics checks that Run panics with the value of a task's panic, on whichever worker the
// task ran, and that the team works afterwards.
func TestTeamPanics(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		team := attn.NewTeam(workers)
		for bad := range 6 {
			func() {
				defer func() {
					if r := recover(); r != bad {
						t.Errorf("%d workers: recovered %v, want %d", workers, r, bad)
					}
				}()
				team.Run(6, func(_, task int) {
					if task == bad {
						panic(bad)
					}
				})
			}()
			var n atomic.Int32
			team.Run(50, func(_, _ int) { n.Add(1) })
			if n.Load() != 50 {
				t.Errorf("%d workers: after a panic %d of 50 tasks ran", workers, n.Load())
			}
		}
		team.Close()
	}
}

func TestTeamDoesNotAllocate(t *testing.T) {
	for _, workers := range []int{1, 2, 4} {
		team := attn.NewTeam(workers)
		var n atomic.Int64
		job := func(_, task int) { n.Add(int64(task)) }
		if got := testing.AllocsPerRun(50, func() { team.Run(9, job) }); got != 0 {
			t.Errorf("%d workers: %v allocations a run", workers, got)
		}
		team.Close()
	}
}

// TestTeamShared checks that goroutines may share a team: their runs wait for each other.
func TestTeamShared(t *testing.T) {
	team := attn.NewTeam(3)
	defer team.Close()
	var running, n atomic.Int32
	done := make(chan bool)
	for range 4 {
		go func() {
			for range 20 {
				var mine atomic.Int32
				team.Run(10, func(_, _ int) { mine.Add(1); n.Add(1) })
				if mine.Load() != 10 {
					running.Add(1)
				}
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	if running.Load() != 0 || n.Load() != 800 {
		t.Errorf("%d of 800 tasks ran; %d runs returned early", n.Load(), running.Load())
	}
}

// TestTeamInAHurry checks that every task runs once although helpers start late, sleep, or are
// woken when no task is left.
func TestTeamInAHurry(t *testing.T) {
	for _, procs := range []int{1, 2, 5} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		synctest.Test(t, func(t *testing.T) {
			var teams [4]*attn.Team
			for i := range teams {
				teams[i] = attn.NewTeam(4)
				defer teams[i].Close()
			}
			for range 2 {
				var wg sync.WaitGroup
				for _, team := range teams {
					wg.Go(func() {
						// not atomic: Run must order these writes before it returns
						var ran [6]int
						for i := range 1000 {
							tasks := 2 + i%5
							team.Run(tasks, func(_, task int) { ran[task]++ })
							for task, n := range ran[:tasks] {
								if n != 1 {
									t.Errorf("%d processors: task %d of %d ran %d times in run %d", procs, task, tasks, n, i)
								}
								ran[task] = 0
							}
						}
					})
				}
				wg.Wait()
				synctest.Wait() // until every helper sleeps
			}
		})
	}
}

// TestTeamClose checks that Close ends every goroutine: a synctest bubble does not end while one is
// left.
func TestTeamClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		team := attn.NewTeam(4)
		team.Run(10, func(_, _ int) {})
		team.Close()
		team.Close()
		defer func() {
			if recover() == nil {
				t.Error("Run on a closed team did not panic")
			}
		}()
		team.Run(10, func(_, _ int) {})
	})
	var none *attn.Team
	none.Close()
	none.Run(3, func(worker, _ int) {
		if worker != 0 {
			t.Errorf("worker %d of no team", worker)
		}
	})
}
