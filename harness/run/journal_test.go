package run

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// writeJournal makes a folder with one record of each kind and returns the journal's bytes.
func writeJournal(t *testing.T, dir string) []byte {
	t.Helper()
	j, err := Create(dir, Meta{Machine: Fingerprint{CPU: "c", OS: "linux"}})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	a := Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8}.WithDefaults()
	b := Point{Kernel: "naive", ISA: "go", SeqKV: 64, Dim: 8}.WithDefaults()
	zero := int64(0)
	for _, r := range []Record{
		{Plan: &Plan{Point: a, Flop: 100, Bytes: 10}},
		{Plan: &Plan{Point: b, Flop: 100, Bytes: 10}},
		{Verify: &Verify{Point: a.Name(), Ratio: Ratio(math.Inf(1)), Rows: 3, Where: "Out[0 0 0 1]: got NaN"}},
		{Visit: &Visit{Point: a.Name(), Calls: 7, Wall: 700, CPU: 650, Before: 1e9, After: 1.1e9, Unit: ProbeFlop, Dropped: true, Counts: map[string]int64{"cycles": 9}}},
		{Memory: &Memory{Point: a.Name(), Scratch: &zero}},
		{Skip: &Skip{Point: b.Name(), Reason: "needs 4 GB, limit 2 GB"}},
		{Fail: &Fail{Point: a.Name(), Reason: "killed \"late\"\nby a signal"}},
		{End: &End{Reason: "budget spent", Time: time.Unix(1, 0).UTC()}},
	} {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, JournalFile))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fresh, j.Run()) {
		t.Fatalf("what was read is not what was written:\n%+v\n%+v", fresh, j.Run())
	}
	return data
}

// A journal cut anywhere loses the record the cut is in and no other, says so, and can be continued.
func TestJournalCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	data := writeJournal(t, dir)
	path := filepath.Join(dir, JournalFile)
	for n := range len(data) {
		if err := os.WriteFile(path, data[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		r, size, err := load(dir)
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if want := bytes.LastIndexByte(data[:n], '\n') + 1; int(size) != want {
			t.Fatalf("cut at %d: %d whole bytes, want %d", n, size, want)
		}
		if warned, want := len(r.Warnings) == 1, int(size) != n; warned != want {
			t.Fatalf("cut at %d: warnings %v", n, r.Warnings)
		}
	}
	j, err := Resume(dir) // the last cut lost the newline
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Append(Record{End: &End{Reason: "resumed", Complete: true}}); err != nil {
		t.Fatal(err)
	}
	r, err := Load(dir)
	if err != nil || len(r.Warnings) != 0 || !r.Complete() || len(r.Cells) != 2 {
		t.Fatalf("after resuming: %v, %+v", err, r)
	}
}

// A run that was complete is not while a later session of it has no end: after any cut but the one that leaves the earlier run whole.
func TestCompleteIsTheLastSession(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir)
	j, err := Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	end := Record{End: &End{Reason: "all samples are taken", Complete: true}}
	visit := Record{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Calls: 1, Wall: 1}}
	path := filepath.Join(dir, JournalFile)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	var first int64
	for i, rec := range []Record{end, visit, end} {
		if err := j.Append(rec); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = size()
		}
		if j.Run().Complete() != (rec.End != nil) {
			t.Errorf("after record %d: complete is %v", i, j.Run().Complete())
		}
	}
	for n := size(); n >= 0; n-- {
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
		r, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if whole := n == first || n == j.size; r.Complete() != whole {
			t.Fatalf("cut at %d: complete is %v", n, r.Complete())
		}
	}
}

func TestCopy(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "a", "b")
	writeJournal(t, dir)
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a new folder, then one that holds a run and what was made of it
		if err := r.Copy(to); err != nil {
			t.Fatal(err)
		}
		got, err := Load(to)
		if err != nil || !reflect.DeepEqual(got.Cells, r.Cells) || !reflect.DeepEqual(got.Meta, r.Meta) {
			t.Fatalf("the copy is another run: %v", err)
		}
		if files, err := os.ReadDir(to); err != nil || len(files) != 2 {
			t.Errorf("got %v, %v", files, err)
		}
		if err := got.Write(); err != nil {
			t.Fatal(err)
		}
		makeReport(t, to)
	}
	plain := t.TempDir()
	makeReport(t, plain)
	if err := r.Copy(plain); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(plain); err != nil || len(files) != 6 {
		t.Errorf("what was in a folder without a run is gone: %v, %v", files, err)
	}
	if err := r.Copy(dir); err == nil || !strings.Contains(err.Error(), "onto itself") {
		t.Errorf("onto itself: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, JournalFile)); err != nil {
		t.Fatal(err)
	}
	if err := r.Copy(to); err == nil {
		t.Error("copied a journal that is gone")
	}
	if _, err := Load(to); err != nil {
		t.Errorf("a copy that failed spoilt what was there: %v", err)
	}
}

// makeReport makes what report and profiles leave in a folder.
func makeReport(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{HTMLFile, ReportFile, filepath.Join(PlotsDir, "a.svg"), filepath.Join(ProfilesDir, "a.pprof")} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// Damage before the last line is never passed over.
func TestJournalDamage(t *testing.T) {
	dir := t.TempDir()
	data := writeJournal(t, dir)
	path := filepath.Join(dir, JournalFile)
	lines := bytes.SplitAfter(data, []byte("\n"))
	join := func(at int, with string) []byte {
		var b []byte
		for i, l := range lines {
			if i == at {
				l = []byte(with)
			}
			b = append(b, l...)
		}
		return b
	}
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"half a line", ":4: damaged", join(3, string(lines[3][:20])+"\n")},
		{"a lost newline", ":3: damaged", join(2, strings.TrimSuffix(string(lines[2]), "\n"))},
		{"an empty line", ":3: damaged", join(2, "\n")},
		{"zeros", ":8: damaged", join(7, strings.Repeat("\x00", 50)+"\n")},
		{"an unknown kind", ":5: damaged", join(4, `{"weather":{"sky":"blue"}}`+"\n")},
		{"an unknown field", ":6: damaged", join(5, `{"skip":{"point":"x","reason":"y","mood":1}}`+"\n")},
		{"two kinds", ":8: damaged", join(7, `{"end":{"reason":""},"skip":{"point":"x"}}`+"\n")},
		{"a lost plan", ":2: damaged", join(0, "")},
		{"a plan twice", ":3: damaged: Attention/kernel=flash", join(2, string(lines[0]))},
		{"no calls", ":4: damaged", join(3, strings.Replace(string(lines[3]), `"calls":7`, `"calls":0`, 1))},
		{"another group", ":1: damaged", join(0, strings.Replace(string(lines[0]), `"group":"A`, `"group":"B`, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Load(dir)
			if err == nil || !strings.Contains(err.Error(), path+c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line with %q", err, path+c.want)
			}
			if _, err := Resume(dir); err == nil {
				t.Fatal("resumed a damaged journal")
			}
		})
	}
}

func TestFolderErrors(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir)
	if _, err := Create(dir, Meta{}); err == nil || !strings.Contains(err.Error(), "already holds a run") {
		t.Errorf("created over a run: %v", err)
	}
	if _, err := Create(filepath.Join(dir, JournalFile, "sub"), Meta{}); err == nil {
		t.Error("created a folder under a file")
	}
	if _, err := Load(t.TempDir()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "not a run folder") {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, MetaFile), []byte(`{"version":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("another version: %v", err)
	}
}

// A run has one writer at a time.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir)
	j, err := Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && runtime.GOOS != "plan9" {
		if _, err := Resume(dir); err == nil || !strings.Contains(err.Error(), "another process is writing") {
			t.Errorf("a second writer: %v", err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = Resume(dir); err != nil {
		t.Fatalf("after the first one closed: %v", err)
	}
	j.Close()
}

// /dev/full takes no byte: the error says so, and nothing is claimed to be written.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	j := &Journal{run: newRun("", Meta{}), file: full}
	defer j.Close()
	p := Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8}.WithDefaults()
	err = j.Append(Record{Plan: &Plan{Point: p}})
	if err == nil || !strings.Contains(err.Error(), "no space left") || len(j.run.Cells) != 0 {
		t.Fatalf("got %v with %d cells", err, len(j.run.Cells))
	}
}

// A record that makes no sense is refused before it reaches the disk.
func TestAppendRefuses(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir)
	j, err := Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, r := range []Record{
		{},
		{Skip: &Skip{Point: "Attention/kernel=other"}},
		{Plan: &Plan{Point: Point{Kernel: "x"}}},
		{Plan: &Plan{Point: j.Run().Cells[0].Point}},
		{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Calls: 1}},
		{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Calls: 1, Wall: 1, Before: 1, After: 1, Unit: "furlongs"}},
	} {
		if err := j.Append(r); err == nil {
			t.Errorf("accepted %+v", r)
		}
	}
	if r, err := Load(dir); err != nil || !reflect.DeepEqual(r.Cells, j.Run().Cells) {
		t.Errorf("the journal changed: %v", err)
	}
}
