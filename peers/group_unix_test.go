//go:build unix

package peers_test

import (
	"io"
	"syscall"
	"testing"

	"attnlab/attn"
)

// TestApart checks that a peer is not in the process group of the terminal: Ctrl-C reaches every
// process there, and would abort the current call.
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
