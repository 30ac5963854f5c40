// Package harness measures attention kernels and checks their answers. It knows no kernel: kernels,
// probes and workloads are handed to it as values.
//
// # Words
//
//	Point     what is measured: kernel, instruction set, shape, features (package run)
//	Workload  the work at one Point and its bytes; nothing is allocated yet
//	Job       a prepared Workload: the inputs are in place; it plans, runs and checks its answer
//	Sample    calls of a Job, timed between two readings of the Probe
//	Worker    verifies, weighs and samples points; Client is one whose Server runs in processes
//
// A Recorder does one step at a Point through a Worker and appends the result to the journal of a
// run. Sweep takes the points of a grid through these steps; package ab compares pairs of points.
//
// # How a point is measured
//
//	parent: Sweep.Run                      worker: Server.Serve, one process for each request
//	  for every point
//	    make its Workload                    kernel and bytes only; an error skips the point
//	    Worker.Verify         ---------->    inputs, plan, one call, oracle; a wrong answer fails it
//	    Worker.Memory         ---------->    inputs, then the peak of planning and one call
//	  for every round, for every point in random order
//	    Worker.Sample         ---------->    inputs, plan, warm-up, probe, calls for 5 ms, probe
//	  until every interval is narrow, all samples are taken, or the budget is spent
//
// Rounds spread the samples of each point over the whole run. A slow minute of the machine then
// widens every interval a little and moves no ratio much. A process for each sample also spreads
// the samples over the addresses that memory may have, and holds only the point being timed. If the
// process crashes or hangs, the point becomes a failed row and the sweep goes on. Each result is in
// the journal before the next measurement begins.
//
// # Share of the peak
//
// The probe measures what the machine gives at that moment: independent fused multiply-adds, or a
// read of the operands for decoding. If decoding updates a state, the probe updates the state in
// place. It runs just before and just after each sample, on the same
// thread. The sample's share of the peak is its rate over the mean of its two probes, so it does
// not depend on the clock. One thread is judged in thread CPU time, which a neighbour's time slice
// does not lengthen. A team is judged in wall time, with the probe on all its threads at once.
package harness
