//go:build unix

package peers_test

import (
	"io"
	"syscall"
	"testing"

	"attnlab/attn"
)

// Ctrl-C reaches every process in the group of a terminal: a peer is not in it, or the call in hand
// would be lost.
func TestApart(t *testing.T) {
	plan, err := peer(t, "honest").Plan(attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 3, DimV: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plan.(io.Closer).Close()
	process := plan.(attn.Remote).Process()
	if group, err := syscall.Getpgid(process); err != nil || group != process {
		t.Errorf("process %d is in group %d (%v), and this one in %d", process, group, err, syscall.Getpgrp())
	}
}
