// Package run is what a run of the lab is: its points, the journal that records what happened to each, and the reduction of that journal
// to rows and samples.
//
// # A run folder
//
//	run.json        Meta: machine, commit, flags, seed, noise
//	journal.jsonl   the truth: one Record a line, appended and fsynced
//	bench.txt       every sample in the Go benchmark format   } projections, rewritten
//	sweep.csv       one Row a point                           } from the two above
//
// A line of the journal is whole when its newline is there. A run that was killed may have left a cut last line, which is dropped with a
// warning; any other line that does not read is damage, and an error that names the file and the line.
package run
