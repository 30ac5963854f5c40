// Package harness measures attention kernels and says whether they are right. It knows no kernel:
// kernels, probes and workloads are handed to it as values.
//
// # How a point is measured
//
//	parent: Sweep.Run                                   child: Lab.Serve, a process for each request
//	  for every point
//	    may it be done?  Lab.Workload: kernel, bytes      nothing is allocated for it    no: a skipped row
//	    Worker.Verify                       ---------->   inputs, plan, a call, oracle   wrong: a failed row
//	    Worker.Weigh                        ---------->   inputs, the peak of planning and one call
//	  for every round, in a fresh random order, for every point
//	    Worker.Sample                       ---------->   inputs, plan, a call to warm, probe, calls for 5 ms or more, probe
//	  until every interval is narrow, all samples are taken, or the budget is spent
//
// Rounds spread the samples of each point over the whole run, so that a slow minute of the machine
// widens every interval a little and moves no ratio much. A process for each sample spreads them
// over the places that memory may have, too, and holds nothing but the point being timed. If it
// crashes or hangs the point becomes a failed row, and the sweep goes on. Everything measured goes
// to the journal before the next measurement begins.
//
// # What a fraction of the peak is
//
// The probe measures what the machine gives at that moment: independent fused multiply-adds, or for
// decoding a read of the operands. It runs just before and just after each sample, on the same
// thread; the sample's rate over the mean of its two probes does not care whether the clock was
// high or low. One thread is judged in thread CPU time, so that a neighbour's time slice does not
// count; a team is judged in wall time, with the probe on all its threads at once.
package harness
