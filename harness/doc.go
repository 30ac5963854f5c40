// Package harness measures attention kernels and says whether they are right. It knows no kernel: kernels, probes and workloads are handed
// to it as values.
//
// # How a point is measured
//
//	parent                               worker child
//	  Sweep.Run                            Worker.Serve
//	    for every point        ask
//	      may it be done?     ------->     Bytes: nothing is allocated yet       too big: a skipped row
//	      verify              ------->     Prepare, one call, judge rows         wrong: a failed row
//	      memory              ------->     (a child of its own) peak of one call
//	    for every round, in a fresh random order, for every point
//	      sample              ------->     Prepare, warm, probe, calls for 5 ms or more, probe
//	    until every interval is narrow, or the budget is spent
//
// Rounds spread the samples of each point over the whole run, so that a slow minute of the machine widens every interval a little and
// moves no ratio much. The child holds only the point being timed. If it crashes or hangs it is replaced, the point becomes a failed row,
// and the sweep goes on. Everything measured goes to the journal before the next measurement begins.
//
// # What a fraction of the peak is
//
// The probe measures what the machine gives at that moment: independent fused multiply-adds, or for decoding a read of the operands. It runs
// just before and just after each sample, on the same thread; the sample's rate over the mean of its two probes does not care whether the
// clock was high or low. One thread is judged in thread CPU time, so that a neighbour's time slice does not count; a team is judged in wall
// time, with the probe on all its threads at once.
package harness
