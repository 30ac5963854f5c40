//go:build unix

package command

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"attnlab/harness/run"
	"attnlab/kernels"
)

// awaitVisits returns when a run has n samples in its journal.
func awaitVisits(t *testing.T, dir string, n int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 6000 {
		data, err := os.ReadFile(filepath.Join(dir, run.JournalFile))
		if err == nil && bytes.Count(data, []byte(`{"visit":`)) >= n {
			return
		}
		<-tick.C
	}
	t.Fatalf("%s never came to %d samples", dir, n)
}

const sweepSamples = 6

func sweepArgs(dir string, more ...string) []string {
	return append([]string{"sweep", "--kernel", "naive,flash", "--isa", "go", "--seq", "8,16", "--mask", "full", "--samples", strconv.Itoa(sweepSamples), "-o", dir}, more...)
}

// whole checks that a run has every row of the grid of sweepArgs, each once and with all its
// samples.
func whole(t *testing.T, dir string) {
	t.Helper()
	r, err := run.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := r.Rows()
	if len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
	seen := map[run.Point]bool{}
	for _, w := range rows {
		if seen[w.Point] {
			t.Errorf("%s stands there twice", w.Name())
		}
		seen[w.Point] = true
		if w.Status != run.OK || w.Samples != sweepSamples {
			t.Errorf("%s: %s %q with %v samples, want %d", w.Name(), w.Status, w.Note, w.Samples, sweepSamples)
		}
	}
	csv, err := os.ReadFile(filepath.Join(dir, run.CSVFile))
	if err != nil || bytes.Count(csv, []byte("\n")) != 5 {
		t.Errorf("sweep.csv has %d lines, want a header and 4 rows; %v", bytes.Count(csv, []byte("\n")), err)
	}
	if !r.Complete() {
		t.Error("the run does not say that it is complete")
	}
}

var kills = flag.Int("kills", 6, "how often sweeps are killed in TestKilledSweep")

// TestKilledSweep checks that sweeps survive being killed, with their workers, at moments of all
// kinds, and can be resumed until they are whole. No recorded sample is lost or changed, no point
// has two of one round, and every command reads what is left, or says what to do.
func TestKilledSweep(t *testing.T) {
	t.Parallel()
	want := *kills
	if testing.Short() {
		want = min(want, 2)
	}
	baseline := filepath.Join(t.TempDir(), "baseline")
	cmd, stderr := begin(t, sweepArgs(baseline)...)
	if code := exitOf(cmd.Wait()); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	info, err := os.Stat(filepath.Join(baseline, run.JournalFile))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	killed, unbegun, read := 0, 0, map[string]int{}
	for killed < want {
		history := t.TempDir()
		dir := filepath.Join(history, "machine", "commit")
		var had map[visitOf]run.Visit
		begun := false
		next := func() (*exec.Cmd, *messages) {
			if begun {
				return begin(t, "sweep", "--resume", "-o", dir)
			}
			return begin(t, sweepArgs(dir)...)
		}
		for range 5 { // then it may finish
			if killed == want {
				break
			}
			moment, come := moment(rng, dir, info.Size())
			cmd, stderr := next()
			code := exitOf(killWhen(cmd, come))
			if code == 0 { // it was faster
				begun = true
				break
			} else if code != -1 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			killed++
			_, err := run.Load(dir)
			if err != nil && (begun || !errors.Is(err, os.ErrNotExist)) {
				t.Fatalf("killed when %s: %v", moment, err)
			}
			if begun = err == nil; !begun {
				unbegun++
				continue
			}
			now := visits(t, dir)
			keeps(t, had, now)
			had = now
			readAll(t, read, dir, history, baseline)
		}
		cmd, stderr := next()
		if code := exitOf(cmd.Wait()); code != 0 {
			t.Fatalf("begun is %v: exit code %d: %s", begun, code, stderr)
		}
		whole(t, dir)
		keeps(t, had, visits(t, dir))
	}
	t.Logf("%d kills, %d of them before there was a run; %v", killed, unbegun, read)
}

// moment chooses when to kill a sweep: when a file of its folder exists, or when its journal has a
// random size below the size that it ends with.
func moment(rng *rand.Rand, dir string, bytes int64) (name string, come func() bool) {
	there := func(path string) func() bool {
		return func() bool { _, err := os.Lstat(path); return err == nil }
	}
	switch rng.IntN(8) {
	case 0:
		return "its folder is there", there(dir)
	case 1:
		return "its journal is there", there(filepath.Join(dir, run.JournalFile))
	case 2:
		return "run.json is there", there(filepath.Join(dir, run.MetaFile))
	case 3:
		return "sweep.csv is there", there(filepath.Join(dir, run.CSVFile))
	}
	part := rng.Int64N(bytes)
	return fmt.Sprintf("its journal has %d bytes", part), func() bool {
		info, err := os.Stat(filepath.Join(dir, run.JournalFile))
		return err == nil && info.Size() > part
	}
}

// killWhen kills a process and its children when a moment has come, unless it ends before, and
// returns how it ended.
func killWhen(cmd *exec.Cmd, come func() bool) error {
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	for !come() {
		select {
		case err := <-over:
			return err
		case <-time.After(time.Millisecond):
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // or it has just ended
	return <-over
}

// readAll runs every command that reads runs on a run that was killed, and counts the exit codes.
// Exit code 4 takes a message that says what to do.
func readAll(t *testing.T, read map[string]int, dir, history, baseline string) {
	t.Helper()
	for _, args := range [][]string{{"report", dir}, {"history", history}, {"gate", "--baseline", baseline, dir}, {"compare", baseline, dir}} {
		var out, errs bytes.Buffer
		code := benchrun(args, streams{&out, &errs}, labOf(kernels.All()))
		read[fmt.Sprintf("%s: exit code %d", args[0], code)]++
		switch {
		case code == 0 || code < exitUsage && (args[0] == "gate" || args[0] == "compare"):
		case code == exitUsage && strings.Contains(errs.String(), ": resume it, then "):
		default:
			t.Errorf("%v: exit code %d: %s", args, code, &errs)
		}
	}
}

// TestInterruptedSweepSaysHowToGoOn checks that Ctrl-C finishes the sample, saves, and says how to
// go on, and so do the signals that a terminal or a batch system sends to the whole process group.
func TestInterruptedSweepSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the killed sweep stands for it")
	}
	for name, interrupt := range map[string]func(pid int) error{
		"alone":  func(pid int) error { return syscall.Kill(pid, syscall.SIGINT) },
		"Ctrl-C": func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
		"ended":  func(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			cmd, stderr := begin(t, sweepArgs(dir)...)
			awaitVisits(t, dir, 5)
			if err := interrupt(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			code := exitOf(cmd.Wait())
			if code == 0 {
				t.Skip("the sweep was over before it could be interrupted")
			}
			if want := "to go on: benchrun sweep --resume -o " + dir; code != exitIncomplete || !strings.Contains(stderr.String(), want) {
				t.Fatalf("exit code %d, want %d; %q is not in: %s", code, exitIncomplete, want, stderr)
			}
			for _, f := range []string{run.CSVFile, run.BenchFile} {
				if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
					t.Errorf("%v", err)
				}
			}
			// Giving the same flags once more is no contradiction.
			again, stderr := begin(t, sweepArgs(dir, "--resume")...)
			if code := exitOf(again.Wait()); code != 0 {
				t.Fatalf("resumed: exit code %d: %s", code, stderr)
			}
			whole(t, dir)
		})
	}
}

// TestInterruptedComparison checks that a comparison that is interrupted or killed can be resumed,
// and then has all its cells.
func TestInterruptedComparison(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the killed sweep stands for it")
	}
	for name, sig := range map[string]os.Signal{"interrupted": os.Interrupt, "killed": os.Kill} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			cmd, stderr := begin(t, "ab", "--base", "kernel=naive", "--head", "kernel=naive", "--kernel", "naive", "--isa", "go", "--seq", "8", "--mask", "full,causal", "--min-effect", "5", "-o", dir)
			awaitVisits(t, filepath.Join(dir, "base"), 6) // the first round has 4
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			code := exitOf(cmd.Wait())
			if code == 0 {
				t.Skip("the comparison was over before it could be interrupted")
			}
			if want := "to go on: benchrun ab --resume -o " + dir; sig == os.Interrupt && (code != exitIncomplete || !strings.Contains(stderr.String(), want)) {
				t.Fatalf("exit code %d, want %d; %q is not in: %s", code, exitIncomplete, want, stderr)
			}
			before := [2]map[visitOf]run.Visit{visits(t, filepath.Join(dir, "base")), visits(t, filepath.Join(dir, "head"))}
			again, stderr := begin(t, "ab", "--resume", "-o", dir)
			if code := exitOf(again.Wait()); code != 0 {
				t.Fatalf("resumed: exit code %d: %s", code, stderr)
			}
			// Six rounds of two cells are 24 samples a side; a cell that is not decided by then has
			// more. A round that was cut off is taken again.
			for side, had := range before {
				now := visits(t, filepath.Join(dir, abSides[side]))
				if len(now) < 24 || len(had) < 4 {
					t.Errorf("%s: %d samples became %d", abSides[side], len(had), len(now))
				}
				keeps(t, had, now)
			}
			over, stderr := begin(t, "ab", "--resume", "-o", dir)
			if code := exitOf(over.Wait()); code != exitUsage || !strings.Contains(stderr.String(), "came to its end") {
				t.Errorf("resumed once more: exit code %d, %s", code, stderr)
			}
		})
	}
}

// A visitOf is a key by which a journal has one visit.
type visitOf struct {
	point string
	round int
}

// visits returns the samples that a run holds.
func visits(t *testing.T, dir string) map[visitOf]run.Visit {
	t.Helper()
	r, err := run.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[visitOf]run.Visit{}
	for _, c := range r.Cells {
		for _, v := range c.Visits {
			at := visitOf{v.Point, v.Round}
			if _, twice := all[at]; twice {
				t.Errorf("%s: %v is there twice", dir, at)
			}
			all[at] = v
		}
	}
	return all
}

// keeps checks that a run still holds the samples that it had.
func keeps(t *testing.T, had, now map[visitOf]run.Visit) {
	t.Helper()
	for at, v := range had {
		if got, ok := now[at]; !ok || !reflect.DeepEqual(got, v) {
			t.Errorf("%v was %+v, and is %+v", at, v, got)
		}
	}
}

// waiting starts waitrun and returns when its kernel waits. The command then listens to signals.
func waiting(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *messages, release func()) {
	t.Helper()
	path, hang := newFifo(t), newFifo(t)
	cmd, stderr = beginWith(t, []string{"FIFO=" + path, "HANG=" + hang}, append([]string{"waitrun"}, args...)...)
	await(t, path, "waiting")
	return cmd, stderr, func() {
		if err := os.WriteFile(hang, nil, 0); err != nil {
			t.Error(err)
		}
	}
}

// TestInterruptedTwice checks that a second Ctrl-C does not wait for a sample that never ends.
func TestInterruptedTwice(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"sweep": {"sweep", "--samples", "1"},
		"ab":    {"ab", "--base", "kernel=waits", "--head", "kernel=waits"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			cmd, stderr, _ := waiting(t, append(args, "--kernel", "waits", "--isa", "go", "--seq", "8", "--mask", "full", "-o", dir)...)
			for range 2 {
				if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
				stderr.await(t, "finishing the measurement in hand")
			}
			if code := exitOf(cmd.Wait()); code != exitIncomplete {
				t.Errorf("exit code %d, want %d: %s", code, exitIncomplete, stderr)
			}
		})
	}
}

// TestInterruptedVerification checks that verification that is interrupted says what it found so
// far, and that benchrun without arguments, which verifies first, has left no folder then.
func TestInterruptedVerification(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "r")
	for _, args := range [][]string{{"verify", "--kernel", "waits", "--pass", "both"}, {"--seq", "8", "-o", dir}} {
		cmd, stderr, release := waiting(t, args...)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		stderr.await(t, "finishing the measurement in hand")
		release()
		if code := exitOf(cmd.Wait()); code != exitIncomplete || !strings.Contains(stderr.String(), ": the table is of what was tried before") {
			t.Errorf("%v: exit code %d, want %d: %s", args, code, exitIncomplete, stderr)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is there, and holds nothing", dir)
	}
}
