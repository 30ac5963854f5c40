// Package sabotage puts a bug into the kernels of a program, to try the commands that must find it:
// verify, ab and gate.
//
// It does so only in programs that are built with the tag sabotage. The environment variable
// BENCHRUN_SABOTAGE names the bug, so one program has them all:
//
//	go build -tags sabotage -o benchrun ./cmd/benchrun
//	BENCHRUN_SABOTAGE=drop_tail ./benchrun verify --core
//
// The bugs are:
//
//	drop_tail, ...  a mutant of package mutants, which answers wrongly, is one more kernel
//	slow3           each flash kernel has a twin, kernel slow3, whose forward pass takes 3 % longer;
//	                any whole percentage from 1 to 99 will do
//	alloc           in one cell, each call of the fastest flash kernel allocates one more object
//	scratch         in one cell, its plan holds 1 MiB more
//	slow            in one cell, its speed is nine tenths
//
// The cell of the last three is one causal head of 256 queries, 256 keys and dimension 64.
package sabotage
