package peers_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/internal/processtest"
)

// TestDiesWithItsParent checks that a peer that hangs in a call does not outlive the process that
// waits for it.
func TestDiesWithItsParent(t *testing.T) {
	const orphan = "ATTNLAB_TEST_ORPHAN"
	if os.Getenv(orphan) != "" {
		p := attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 3, DimV: 4}
		plan, err := peer(t, "hangs-at-run").Plan(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("peer", plan.(attn.Remote).Process())
		_, _, err = plan.(attn.Remote).Run(1)
		t.Fatal(err)
	}
	parent := exec.Command(processtest.Self(t), "-test.run=^TestDiesWithItsParent$")
	parent.Env = append(os.Environ(), orphan+"=1")
	said, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	var id int
	if _, err2 := fmt.Sscanf(strings.TrimSpace(line), "peer %d", &id); err != nil || err2 != nil {
		t.Fatalf("%q: %v, %v", line, err, err2)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = syscall.Kill(id, syscall.SIGKILL)
	t.Error("the peer lives on")
}
