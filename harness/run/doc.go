// Package run defines the run folder: the points of a run, the journal that records what happened
// to each of them, and the files that are derived from the journal.
//
// # Files of a run folder
//
//	run.json        Meta: machine, commit, flags, seed, noise, paths of kernels
//	journal.jsonl   one Record a line, appended and synced to the disk; everything else is derived
//	sweep.csv       one Row a point, derived from the journal
//	bench.txt       every sample in the Go benchmark format, derived from the journal
//
// run.json is on the disk before the first line of the journal is. So a process that is killed
// leaves a folder that can be read. If it is killed before its first record, the journal is empty,
// and the same command begins the run again.
//
// # Points and axes
//
// A Point identifies a cell of a sweep. Each of its fields is an axis. The table of axes (Axes)
// holds all that the lab knows of an axis: its column in sweep.csv, its key in names, its flag, its
// default and its values. Adding an axis takes a field of Point and a row of the table.
//
// # The journal
//
// This is version 2. A line is a JSON object: a record, and a sum that chains it to the line
// before.
//
//	{"end":{"reason":"budget spent","complete":true,"time":"2026-11-28T18:00:00Z"},
//	 "sum":"3c9d2b5e8f01a746"}
//
// (This line, and the one below, are broken here to fit.) The kinds of records, and how many there
// are:
//
//	plan     once a point, before its other records: the point, its work, its kernel's path
//	visit    once a point and round: one sample, between two probes of the machine
//	verify   error of the point's output; the latest counts
//	memory   scratch, peak memory and allocations; the latest counts
//	skip     why the point was not run
//	fail     why the point gave no number; the first counts
//	end      the end of a session; a run that was resumed has several
//
// # Sums
//
// The sum of a line is the first 16 hexadecimal digits of a SHA-256. It hashes the sum of the line
// before (nothing for the first line), followed by this line's bytes up to ,"sum". This computes
// the sum of line 7:
//
//	printf '%s%s' "$sum_of_line_6" \
//	    "$(sed -n 's/,"sum":"[0-9a-f]*"}$//;7p' journal.jsonl)" | sha256sum | head -c 16
//
// So reading finds each line that was changed, lost, doubled or moved, and the error names it. Two
// kinds of damage are no errors:
//
//   - A last line without a newline, as a killed process leaves it, is dropped with a warning.
//   - Lines missing at the end leave the journal of an interrupted run. Its rows are true, and
//     reports mention that it has no end.
//
// # Paths of kernels
//
// The path of a kernel names the choices that change its bits (attn.Tuned). A plan has the path of
// its kernel, and run.json has the paths of all kernels:
//
//	{"plan":{"point":{"kernel":"flash","isa":"avx512",...},"group":"Attention/...",
//	 "path":"exp=reduced,prescaled","flop":4194304,"bytes":65536},"sum":"..."}
//
//	"paths": {"flash/avx512": "exp=reduced,prescaled"}
//
// If two runs have different paths of a kernel, ab, compare, gate and history treat it as two
// kernels. A run is not resumed if a path has changed since it began. A kernel without a path has
// no choices, or its run is older than paths: it is compared with any path.
//
// # Version 1
//
// Version 1 has no sums. It is read, but not resumed. A point with two visits in one round is a
// warning there and an error in version 2: resumed comparisons of version 1 have such points.
package run
