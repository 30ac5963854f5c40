// Package run is what a run of the lab is: its points, the journal that records what happened to
// each, and the reduction of that journal to rows and samples.
//
// # A run folder
//
//	run.json        Meta: machine, commit, flags, seed, noise, paths of kernels
//	journal.jsonl   the truth: one Record a line, appended and fsynced
//	bench.txt       every sample in the Go benchmark format   } projections, rewritten
//	sweep.csv       one Row a point                           } from the two above
//
// run.json is on the disk before the journal has its first line, so that whatever ends a run leaves
// one that can be read. A run that was ended before that left an empty journal, and the same
// command begins it again.
//
// # The journal, version 2
//
// A line is a JSON object: a record, and a sum that chains it to the line before.
//
//	{"end":{"reason":"all samples are taken","complete":true,"time":"2026-11-28T18:00:00Z"},"sum":"3c9d2b5e8f01a746"}
//
// The sum is the first 16 hexadecimal digits of the SHA-256 of two strings, one after the other:
// the sum of the line before, which is empty for the first line, and this line's bytes up to
// ,"sum". So a line that was changed, lost, doubled or moved is found, and the error names it:
//
//	printf '%s%s' "$sum_of_line_6" "$(sed -n 's/,"sum":"[0-9a-f]*"}$//;7p' journal.jsonl)" | sha256sum | head -c 16
//
// A line is whole when its newline is there. A run that was killed may have left a cut last line,
// which is dropped with a warning; every other damage is an error. Lines that are missing at the
// end leave what an interrupted run leaves: true rows, and no End that says Complete, which every
// report of it mentions.
//
// A point is planned once, and visited once a round. Its plan has the path of its kernel, which
// names the choices that change the kernel's bits (attn.Tuned):
//
//	{"plan":{"point":{"kernel":"flash","isa":"avx512",...},"group":"Attention/...","path":"exp=reduced,prescaled","flop":4194304,"bytes":65536},"sum":"..."}
//
// run.json has the paths of all kernels of the run:
//
//	"paths": {"flash/avx512": "exp=reduced,prescaled"}
//
// A kernel without an entry has no choices, or the run is older than paths: it is compared with any
// path. Where two runs name different paths of a kernel, ab, compare, gate and history treat it as
// two kernels. A run whose kernels name other paths than when it was begun is not resumed.
//
// Version 1 has no sums. It is read, but not resumed; a second visit of one point in one round is a
// warning there, because comparisons that were resumed have such.
package run
