package run

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
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

// TestJournalCutAtEveryByte checks that a journal that was cut loses the record with the cut and no
// other, that a warning says so, and that it can be resumed.
func TestJournalCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	data := writeJournal(t, dir)
	path := filepath.Join(dir, JournalFile)
	for n := range len(data) {
		if err := os.WriteFile(path, data[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		r, size, _, err := load(dir)
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

// TestCompleteIsTheLastSession checks that a complete run is not complete while a later session of
// it has no end. Of all cuts, only one leaves the earlier run whole.
func TestCompleteIsTheLastSession(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir)
	j, err := Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	end := Record{End: &End{Reason: "all samples are taken", Complete: true}}
	visit := Record{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Round: 1, Calls: 1, Wall: 1}}
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
		if files, err := os.ReadDir(to); err != nil || len(files) != 3 {
			t.Errorf("got %v, %v, want the journal, run.json and sweep.csv", files, err)
		}
		var rows bytes.Buffer
		if err := WriteCSV(&rows, r.Rows()); err != nil {
			t.Fatal(err)
		}
		if copied, err := os.ReadFile(filepath.Join(to, CSVFile)); err != nil || string(copied) != rows.String() {
			t.Errorf("got rows %q, %v, want %q", copied, err, &rows)
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
	if files, err := os.ReadDir(plain); err != nil || len(files) != 7 {
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
		t.Errorf("a copy that failed damaged the old run: %v", err)
	}
}

// makeReport makes the files that reports and profiles leave in a folder.
func makeReport(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{HTMLFile, ReportFile, filepath.Join(PlotsDir, "a.svg"), filepath.Join(ProfilesDir, "a.pprof")} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournalDamage checks that a bad line is an error that names the line, what is wrong with it,
// and what can be done. A line with the right sum is read as strictly as any other.
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
	record := func(line int) string { return string(lines[line][:bytes.LastIndex(lines[line], []byte(sumKey))]) + "}" }
	sum := func(line int) string {
		if line < 0 {
			return ""
		}
		_, after, _ := strings.Cut(string(lines[line]), sumKey)
		return after[:sumDigits]
	}
	sealed := func(at int, with string) []byte { // join, with the right sum
		text := strings.TrimSuffix(with, "}")
		return join(at, text+sumKey+sumOf(sum(at-1), []byte(text))+sumEnd+"\n")
	}
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"half a line", ":4: damaged: it does not end with a sum", join(3, string(lines[3][:20])+"\n")},
		{"a lost newline", ":3: damaged: its sum is", join(2, strings.TrimSuffix(string(lines[2]), "\n"))},
		{"an empty line", ":3: damaged: it does not end with a sum", join(2, "\n")},
		{"zeros", ":8: damaged: it does not end with a sum", join(7, strings.Repeat("\x00", 50)+"\n")},
		{"a line without a sum", ":3: damaged: it does not end with a sum", join(2, record(2)+"\n")},
		{"a lost line", ":3: damaged: its sum is", join(2, "")},
		{"a lost first line", ":1: damaged: its sum is", join(0, "")},
		{"a line twice", ":4: damaged: its sum is", join(2, string(lines[2])+string(lines[2]))},
		{"lines that changed places", ":3: damaged: its sum is", join(2, string(lines[3])+string(lines[2]))},
		{"another number", ":4: damaged: its sum is", join(3, strings.Replace(string(lines[3]), `"calls":7`, `"calls":8`, 1))},
		{"a sum in capitals", ":4: damaged: its sum is", join(3, record(3)[:len(record(3))-1]+sumKey+strings.ToUpper(sum(3))+sumEnd+"\n")},
		{"an unknown kind", `:5: damaged: json: unknown field "weather"`, sealed(4, `{"weather":{"sky":"blue"}}`)},
		{"an unknown field", `:6: damaged: json: unknown field "mood"`, sealed(5, `{"skip":{"point":"x","reason":"y","mood":1}}`)},
		{"two kinds", ":8: damaged: got 2 of plan", sealed(7, `{"end":{"reason":""},"skip":{"point":"x"}}`)},
		{"two records", ":8: damaged: more than one record", sealed(7, record(7)+record(7))},
		{"no plan", ":1: damaged: Attention/kernel=naive", sealed(0, record(5))},
		{"a plan twice", ":3: damaged: Attention/kernel=flash", sealed(2, record(0))},
		{"a visit twice", ":5: damaged: Attention/kernel=flash/isa=go/pass=forward/mask=full/heads=1/seq=64/dim=8/threads=1 is visited twice in round 0", sealed(4, record(3))},
		{"no calls", ":4: damaged: a visit of 0 calls", sealed(3, strings.Replace(record(3), `"calls":7`, `"calls":0`, 1))},
		{"another group", `:1: damaged: group "Btt`, sealed(0, strings.Replace(record(0), `"group":"A`, `"group":"B`, 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Load(dir)
			if err == nil || !strings.Contains(err.Error(), path+c.want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "; restore the folder from a copy, or ") {
				t.Fatalf("got %v, want one line with %q, and what to do", err, path+c.want)
			}
			if _, err := Resume(dir); err == nil {
				t.Fatal("resumed a damaged journal")
			}
		})
	}
}

// TestSumIsAsDocumented checks that the sum of a line can be computed as the package doc says.
func TestSumIsAsDocumented(t *testing.T) {
	data := writeJournal(t, t.TempDir())
	before := ""
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		text, sum, found := strings.Cut(line, `,"sum":"`)
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(before+text)))[:16]; !found || sum != want+`"}` {
			t.Fatalf("line %d ends with %s, want %s", i+1, sum, want)
		}
		before = strings.TrimSuffix(sum, `"}`)
	}
}

// TestVersion1 checks that a journal without sums is read, that lines that may be doubled are a
// warning, and that it is not resumed.
func TestVersion1(t *testing.T) {
	dir := t.TempDir()
	data := writeJournal(t, dir)
	want, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, JournalFile)
	plain := regexp.MustCompile(`,"sum":"[0-9a-f]*"}`).ReplaceAll(data, []byte("}"))
	if err := os.WriteFile(path, plain, 0o644); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(dir, MetaFile)
	text, err := os.ReadFile(meta)
	if err == nil {
		err = os.WriteFile(meta, bytes.Replace(text, []byte(`"version": 2`), []byte(`"version": 1`), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil || got.Meta.Version != 1 || !reflect.DeepEqual(got.Cells, want.Cells) || len(got.Warnings) != 0 {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := Resume(dir); err == nil || !strings.Contains(err.Error(), "version 1 can be read, but not resumed: begin another run") {
		t.Errorf("resumed: %v", err)
	}
	lines := bytes.SplitAfter(plain, []byte("\n"))
	if err := os.WriteFile(path, bytes.Join(slices.Insert(lines, 4, lines[3], lines[3]), nil), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err = Load(dir)
	if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], path+":5: a second visit of one point in one round, the first of 2 such lines") {
		t.Errorf("a line three times: %v, warnings %q", err, got.Warnings)
	}
}

// TestBegun checks that a run that was killed before its first record leaves a folder in which the
// same run can begin. No other folder is taken over.
func TestBegun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	begin := func() error {
		j, err := Create(dir, Meta{Seed: 7})
		if err != nil {
			return err
		}
		return j.Close()
	}
	journal, meta := filepath.Join(dir, JournalFile), filepath.Join(dir, MetaFile)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"a folder", "an empty journal", "run.json and an empty journal"} {
		switch left {
		case "an empty journal":
			if err := os.Remove(meta); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "a run was ended here before it began: begin it again") {
				t.Errorf("%s is read: %v", left, err)
			}
		case "run.json and an empty journal":
			r, err := Load(dir)
			if err != nil || len(r.Cells) != 0 || r.Complete() {
				t.Errorf("%s: %+v, %v", left, r, err)
			}
		}
		if err := begin(); err != nil {
			t.Errorf("%s: %v", left, err)
		}
	}
	if err := os.Remove(journal); err != nil {
		t.Fatal(err)
	}
	if err := begin(); err == nil || !strings.Contains(err.Error(), "holds a run.json without its journal.jsonl: put that back") {
		t.Errorf("run.json alone: %v", err)
	}
	writeJournal(t, filepath.Join(dir, "whole"))
	if err := errors.Join(os.Rename(filepath.Join(dir, "whole", JournalFile), journal), os.Remove(meta)); err != nil {
		t.Fatal(err)
	}
	if err := begin(); err == nil || !strings.Contains(err.Error(), "holds a journal.jsonl without its run.json: put that back") {
		t.Errorf("a journal alone: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "there is a journal.jsonl, which means nothing without it: put it back") {
		t.Errorf("a journal alone is read: %v", err)
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
	if _, err := Load(filepath.Dir(dir)); err == nil || !strings.Contains(err.Error(), "there are runs below it: name one, such as "+dir) {
		t.Errorf("a folder of runs: %v", err)
	}
	figures := t.TempDir()
	if err := errors.Join(WriteMeta(figures, Meta{}), os.WriteFile(filepath.Join(figures, CSVFile), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(figures); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no samples: name a folder with its journal.jsonl") {
		t.Errorf("figures alone: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, MetaFile), []byte(`{"version":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("another version: %v", err)
	}
}

// TestLock checks that a run has one writer at a time.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	writeJournal(t, dir)
	j, err := Resume(dir)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "plan9" {
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

// TestFullDisk checks that a write to a full disk is an error, and that the run does not have the
// record then. /dev/full takes no byte.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	j := &Journal{run: newRun("", Meta{Version: formatVersion}), file: full}
	defer j.Close()
	p := Point{Kernel: "flash", ISA: "go", SeqKV: 64, Dim: 8}.WithDefaults()
	err = j.Append(Record{Plan: &Plan{Point: p}})
	if err == nil || !strings.Contains(err.Error(), "no space left") || len(j.run.Cells) != 0 {
		t.Fatalf("got %v with %d cells", err, len(j.run.Cells))
	}
}

// TestAppendRefuses checks that a bad record is refused before it reaches the disk.
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
		{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Round: 1, Calls: 1}},
		// A second visit in round 0.
		{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Calls: 1, Wall: 1}},
		{Visit: &Visit{Point: j.Run().Cells[0].Point.Name(), Round: 1, Calls: 1, Wall: 1, Before: 1, After: 1, Unit: "furlongs"}},
	} {
		if err := j.Append(r); err == nil {
			t.Errorf("accepted %+v", r)
		}
	}
	if r, err := Load(dir); err != nil || !reflect.DeepEqual(r.Cells, j.Run().Cells) {
		t.Errorf("the journal changed: %v", err)
	}
}
