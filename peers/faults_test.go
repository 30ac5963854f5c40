package peers_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/internal/processtest"
	"attnlab/peers"
)

var small = attn.Problem{Batch: 1, SeqQ: 9, SeqKV: 5, HeadsQ: 2, HeadsKV: 1, Dim: 3, DimV: 4}

// stages are the requests of a call, in their order.
var stages = []string{"about", "check", "plan", "load", "run", "store"}

// call makes a call stage by stage, and runs before in front of each.
func call(k *peers.Kernel, p attn.Problem, before func(stage string)) error {
	before("about")
	if _, err := k.About(); err != nil {
		return err
	}
	before("check")
	if _, err := k.Check(p, 1); err != nil {
		return err
	}
	before("plan")
	plan, err := k.Plan(p, nil)
	if err != nil {
		return err
	}
	defer plan.(io.Closer).Close()
	a, err := cases.NewArgs(p, "bhsd", nil)
	if err != nil {
		return err
	}
	r := plan.(attn.Remote)
	before("load")
	if err := r.Load(a); err != nil {
		return err
	}
	before("run")
	if _, _, err := r.Run(1); err != nil {
		return err
	}
	before("store")
	return r.Store(a)
}

// A watch records the process groups of a peer.
type watch struct {
	mu      sync.Mutex
	started []int
	ended   []int
}

func (w *watch) heard(group int, runs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if runs {
		w.started = append(w.started, group)
	} else {
		w.ended = append(w.ended, group)
	}
}

// none fails the test unless every process group of the peer was reported and has ended.
func (w *watch) none(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Sort(w.started); len(w.started) == 0 {
		t.Error("no process was started")
	}
	if slices.Sort(w.ended); !slices.Equal(w.started, w.ended) {
		t.Errorf("process groups %v have started, and %v have ended", w.started, w.ended)
	}
	for _, group := range w.started {
		processtest.Gone(t, group)
	}
}

// A trouble is a fault of a peer, and its expected message.
type trouble struct {
	like, stage, want string
	late              bool
}

// troubles returns every fault at every stage where it is possible.
func troubles() []trouble {
	list := []trouble{
		{like: "deaf-at-check", stage: "plan", want: "it closed its standard input"},
		{like: "shortens-at-store", stage: "store", want: "got 144 of 288 bytes of tensors: it ended (exit status 1)"},
		{like: "lengthens-at-store", stage: "store", want: "got 4 bytes more than the answer"},
		{like: "keeps-at-store", stage: "store", want: "no answer within", late: true},
		{like: "timeless", stage: "run", want: "for 1 calls it claims wall_ns 0, want a time above 0"},
		{like: "negative", stage: "run", want: "it claims wall_ns -5, want a time above 0"},
		{like: "boastful", stage: "run", want: "it claims to have taken 1h0m0"},
		{like: "endless", stage: "run", want: "it claims to have taken 2562047h47m16"},
		{like: "nan", stage: "run", want: "want an answer on a line of JSON"},
		{like: "greedy", stage: "run", want: "on more threads than the 1 it was told"},
		{like: "hungry", stage: "run", want: "it claims 1h0m0s of processor time"},
		{like: "owing", stage: "run", want: "it claims cpu_ns -1, want a time, or 0 if it is unknown"},
	}
	for _, stage := range stages {
		for _, f := range []trouble{
			{like: "fails", want: "it says: out of luck"},
			{like: "dies", want: `it ended (exit status 1); its standard error ends in "out of luck []"`},
			{like: "crashes", want: "it ended (signal: killed)"},
			{like: "hangs", want: "no answer within", late: true},
			{like: "stubborn", want: "no answer within", late: true},
			{like: "closes", want: "it closed its standard output"},
			{like: "garbles", want: `got "hello\n", want an answer on a line of JSON`},
			{like: "floods", want: "bytes without an end of line, which begin with \"blah blah"},
			{like: "trails", want: "got 4 bytes more than the answer: its standard output is for answers alone"},
			{like: "repeats", want: "bytes more than the answer"},
			{like: "stale", want: "want that to request"},
			{like: "leaves", want: "it ended (exit status 1)"},
			{like: "breeds", want: "no answer within", late: true},
		} {
			f.like, f.stage = f.like+"-at-"+stage, stage
			list = append(list, f)
		}
	}
	return list
}

// TestFaults checks that every fault is reported with the peer's name, the stage and the fault,
// within the limits, and that no process is left.
func TestFaults(t *testing.T) {
	for _, c := range troubles() {
		if testing.Short() && c.stage != "run" && !strings.HasPrefix(c.like, "dies-") {
			continue
		}
		t.Run(c.like, func(t *testing.T) {
			t.Parallel()
			k := peers.New("me", processtest.Self(t), c.like)
			w := new(watch)
			k.Watch(w.heard)
			err := call(k, small, func(stage string) {
				if k.Timeout = 0; !c.late || stage != c.stage {
					return
				}
				if k.Timeout = 50 * time.Millisecond; stage == "plan" { // a check comes before it
					k.Timeout = 2 * time.Second
				}
			})
			e := new(attn.RemoteError)
			if !errors.As(err, &e) {
				t.Fatalf("error is %v, want a RemoteError", err)
			}
			if e.Kernel != "me" || e.Stage != c.stage || e.Late != c.late || !strings.Contains(e.Fault, c.want) {
				t.Errorf("error is %+v, want one at %s with %q, late: %v", e, c.stage, c.want, c.late)
			}
			if errors.Is(err, attn.ErrUnsupported) || len(err.Error()) > 2000 {
				t.Errorf("error is %v, of %d bytes; want a short one, and no refusal", err, len(err.Error()))
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			w.none(t)
		})
	}
}

// TestRefuses checks that a refusal is not a fault.
func TestRefuses(t *testing.T) {
	err := call(peer(t, "refuses"), small, func(string) {})
	if want := "unsupported: me/native: more than 8 queries"; !errors.Is(err, attn.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %q", err, want)
	}
}

// TestAbout checks that a peer answers about, and that a peer that failed to is not started again.
func TestAbout(t *testing.T) {
	if about, err := peer(t, "cries").About(); err != nil || about != "naive/go, cries" {
		t.Errorf("it is %q, %v", about, err)
	}
	k, w := peer(t, "dies-at-about"), new(watch)
	k.Watch(w.heard)
	_, first := k.About()
	_, second := k.Check(small, 1)
	if w.none(t); first == nil || first != second || len(w.started) != 1 {
		t.Errorf("errors are %v and %v, from %d processes; want the same from one", first, second, len(w.started))
	}
	if have := k.Claims(); have != attn.NeedSoftmax|attn.NeedWindow {
		t.Errorf("it claims %v: want what every peer may be asked, so that its points are not lost", have)
	}
	_, err := peers.New("me", "/no/such/program", "--key=abc").About()
	if want := "peer me: start: cannot run program: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %q", err, want)
	}
}

// TestRestarts checks that one process answers all checks, and that another replaces it once it has
// ended.
func TestRestarts(t *testing.T) {
	k, w := peer(t, "honest"), new(watch)
	k.Watch(w.heard)
	for range 3 {
		if _, err := k.Check(small, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.started) != 1 {
		t.Errorf("three checks took %d processes, want 1", len(w.started))
	}
	k.Kill()
	w.none(t)
	if _, err := k.Check(small, 1); err != nil || len(w.started) != 2 {
		t.Errorf("a check after the process was killed: %v, from process %d; want the second to answer", err, len(w.started))
	}
}

// TestWithin checks that Within limits the time of all exchanges together.
func TestWithin(t *testing.T) {
	k := peer(t, "hangs-at-run")
	err := call(k, small, func(stage string) {
		if stage == "run" {
			k.Within(50 * time.Millisecond)
		}
	})
	e := new(attn.RemoteError)
	if !errors.As(err, &e) || !e.Late || e.Stage != "run" || e.Fault != "no answer within 50ms" {
		t.Errorf("error is %v, want no answer within 50ms", err)
	}
}

// TestEnds checks that a peer that does not end with its input is ended, and that a bad exit status
// is reported.
func TestEnds(t *testing.T) {
	for like, want := range map[string]string{"lingers": "close: it still ran 3s after the end of its input", "fails": "close: it ended (exit status 3)"} {
		t.Run(like, func(t *testing.T) {
			t.Parallel()
			k, w := peers.New("me", processtest.Self(t), like), new(watch)
			k.Watch(w.heard)
			if err := call(k, small, func(string) {}); err != nil {
				t.Fatal(err)
			}
			if err := k.Close(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it ends with %v, want %q", err, want)
			}
			w.none(t)
		})
	}
}

// TestSecrets checks that no message repeats a word of a peer's command, whatever the peer writes.
func TestSecrets(t *testing.T) {
	for _, fault := range []string{"fails-at-about", "dies-at-about", "dies-at-check", "fails-at-run"} {
		spec := fmt.Sprintf("me=TOKEN=token123 %s %s --key=key456 secret789", processtest.Self(t), fault)
		k, err := peers.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		err = call(k, small, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "out of luck [*** ***]") {
			t.Errorf("%s: %v", fault, err)
		}
	}
}
