package peers_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/attn/attntest"
	"attnlab/attn/cases"
	"attnlab/harness"
	"attnlab/harness/run"
	"attnlab/harness/verify"
	"attnlab/internal/processtest"
	"attnlab/peers"
	"attnlab/peers/peertest"
)

// TestMain also runs as a peer, whose kind is its argument, and without an argument as a worker.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" && len(os.Args) == 1 {
		work()
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		peertest.Main()
	}
	// Otherwise the race detector makes every process sleep for a second before it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

func peer(t *testing.T, like string) *peers.Kernel {
	k := peers.New("me", processtest.Self(t), like)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("the peer ends with %v", err)
		}
	})
	return k
}

// TestPeer runs the suite on naive/go at the other end of two pipes.
func TestPeer(t *testing.T) {
	attntest.Run(t, peer(t, "honest"), attn.NeedSoftmax|attn.NeedWindow, attntest.Options{Peer: true})
}

// TestPlain checks that the plain peer, which uses the common code of peers in C++, agrees with the
// definition.
func TestPlain(t *testing.T) {
	processtest.Needed(t)
	compiler, err := exec.LookPath("c++")
	if err != nil {
		t.Skip("SKIPPED: there is no C++ compiler")
	}
	program := filepath.Join(t.TempDir(), "peer")
	if out, err := exec.Command(compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "plain/peer.cpp").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	k := peers.New("plain", program)
	defer k.Close()
	done := answersAll(t, k, func(c cases.Case) (cases.Case, bool) {
		return c, c.Family != "extremes" // doubles hold what float32 does not
	})
	for _, family := range []string{"linear", "gates", "delta", "heads", "norms", "states"} {
		if done[family] == 0 {
			t.Errorf("no case of family %s; cases by family: %v", family, done)
		}
	}
}

// answersAll judges a peer on the core cases that form accepts and that the peer does not refuse.
func answersAll(t *testing.T, k attn.Kernel, form func(cases.Case) (cases.Case, bool)) (done map[string]int) {
	t.Helper()
	done = map[string]int{}
	for _, c := range cases.Core() {
		c, ok := form(c)
		if !ok {
			continue
		}
		switch f := verify.Try(k, c); {
		case f.Refused:
		case !f.Right():
			t.Error(f)
		default:
			done[f.Family]++
		}
	}
	if done["sizes"] < 5 || done["masks"] < 2 || done["gqa"] < 1 || done["empty"] < 2 {
		t.Errorf("cases by family: %v", done)
	}
	return done
}

// TestGradients checks the backward pass of a peer that has one against the oracle's gradients.
func TestGradients(t *testing.T) {
	answersAll(t, peer(t, "learns"), func(c cases.Case) (cases.Case, bool) { return c.Differentiated(attn.WantEntropy) })
	if have := verify.Powers(peer(t, "honest")); have&attn.NeedGrad != 0 {
		t.Errorf("a peer without a backward pass does %v", have)
	}
}

// TestBadGradients checks that unsupported gradients are refused before anything is sent.
func TestBadGradients(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 3, DimV: 4, Want: attn.WantGrad}
	plan, err := peer(t, "learns").Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plan.(io.Closer).Close()
	r := plan.(attn.RemoteBackward)
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := cases.NewGrads(p, a, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.LoadGrads(a, g); !errors.Is(err, attn.ErrUnsupported) || !strings.Contains(err.Error(), "dLSE") {
		t.Errorf("a gradient of LSE: %v", err)
	}
	g.LSE, g.K = attn.Tensor{}, attn.Tensor{}
	if err := r.LoadGrads(a, g); !errors.Is(err, attn.ErrUnsupported) || !strings.Contains(err.Error(), "all together") {
		t.Errorf("some gradients: %v", err)
	}
	a.Stats.LSE = attn.Tensor{}
	if err := r.Load(a); err == nil || !strings.Contains(err.Error(), "Stats.LSE: not given") {
		t.Errorf("no room for LSE: %v", err)
	}
}

// TestBadOperands checks that operands whose shape is not the plan's are not sent.
func TestBadOperands(t *testing.T) {
	p := attn.Problem{Batch: 1, SeqQ: 2, SeqKV: 2, HeadsQ: 1, HeadsKV: 1, Dim: 3, DimV: 4}
	plan, err := peer(t, "honest").Plan(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plan.(io.Closer).Close()
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	a.K = attn.New(attn.BHSD, 1, 3, 1, 3)
	if err := plan.(attn.Remote).Load(a); err == nil || !strings.Contains(err.Error(), "K") {
		t.Errorf("error is %v, want one about K", err)
	}
}

// TestWeighed checks that the memory of a peer is what its process takes for a call, where the
// system reports it: here the size of a matrix of scores.
func TestWeighed(t *testing.T) {
	const n = 1024
	w, err := harness.Attention(peer(t, "honest"), run.Point{Kernel: "me", ISA: attn.Native, SeqKV: n, Dim: 8}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	m, err := harness.MeasureMemory(w)
	if err != nil {
		t.Fatal(err)
	}
	if m.Scratch != nil || m.Bytes != nil || m.Allocs != nil || (m.PeakRSS == nil) == (runtime.GOOS == "linux") {
		t.Errorf("memory is %+v", m)
	}
	// the race detector takes three times as much
	if m.PeakRSS != nil && (*m.PeakRSS < 4*n*n || *m.PeakRSS > 4*4*n*n) {
		t.Errorf("a call takes %d bytes, a matrix of scores %d", *m.PeakRSS, 4*n*n)
	}
}

// TestMeasured checks that a peer is measured by its own clock, in each pass.
func TestMeasured(t *testing.T) {
	for pass, call := range map[string]time.Duration{"forward": time.Microsecond, "backward": 3 * time.Microsecond, "both": 4 * time.Microsecond} {
		at := run.Point{Kernel: "me", ISA: attn.Native, Mask: "causal", HeadsQ: 2, SeqKV: 40, Dim: 8, Pass: pass}.WithDefaults()
		w, err := harness.Attention(peer(t, "learns"), at)
		if err != nil {
			t.Fatal(err)
		}
		j, err := w.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if err := j.Plan(); err != nil {
			t.Fatal(err)
		}
		if took, err := j.Run(7); err != nil || took != (harness.Elapsed{Wall: 7 * call}) {
			t.Errorf("%s: seven calls took %+v, %v", pass, took, err)
		}
		if v, err := j.Check(8, 1); err != nil || !(v.Worst <= 1) || v.Rows == 0 {
			t.Errorf("%s: verdict is %+v, %v", pass, v, err)
		}
	}
}

func TestParse(t *testing.T) {
	for spec, name := range map[string]string{
		"torch=python3 -u  peer.py --fast": "torch",
		"me=TOKEN=abc node peer.mjs --k=v": "me",
	} {
		k, err := peers.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		if algo, isa := k.Name(); algo != name || isa != "native" {
			t.Errorf("name is %s/%s", algo, isa)
		}
	}
	for _, spec := range []string{"", "torch", "torch=", "torch= ", "=python3", "a b=c", "a/b=c", "torch=TOKEN=abc", "b --key=abc"} {
		if _, err := peers.Parse(spec); err == nil || !strings.Contains(err.Error(), "want NAME=COMMAND") || strings.Contains(err.Error(), "abc") {
			t.Errorf("%q: %v", spec, err)
		}
	}
}
