package run_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"testing"
	"time"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

var damageFull = flag.Bool("damage-full", false, "damage journals 2,800 times instead of 280")

// A damage is one way to damage a journal.
type damage struct {
	name string
	n    int // how often, with -damage-full
	do   func(rng *rand.Rand, lines [][]byte) []byte
}

var damages = []damage{
	{"a flipped bit", 2000, func(rng *rand.Rand, lines [][]byte) []byte {
		data := bytes.Join(lines, nil)
		data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
		return data
	}},
	{"a deleted line", 100, func(rng *rand.Rand, lines [][]byte) []byte {
		i := rng.IntN(len(lines))
		return bytes.Join([][]byte{bytes.Join(lines[:i], nil), bytes.Join(lines[i+1:], nil)}, nil)
	}},
	{"a doubled line", 100, func(rng *rand.Rand, lines [][]byte) []byte {
		i := rng.IntN(len(lines))
		return bytes.Join([][]byte{bytes.Join(lines[:i+1], nil), bytes.Join(lines[i:], nil)}, nil)
	}},
	{"swapped lines", 100, func(rng *rand.Rand, lines [][]byte) []byte {
		lines = append([][]byte(nil), lines...)
		i := rng.IntN(len(lines) - 1)
		j := i + 1 + rng.IntN(len(lines)-1-i)
		lines[i], lines[j] = lines[j], lines[i]
		return bytes.Join(lines, nil)
	}},
	{"an edited number", 100, func(rng *rand.Rand, lines [][]byte) []byte {
		lines = append([][]byte(nil), lines...)
		i := rng.IntN(len(lines))
		line := bytes.Clone(lines[i])
		digits := regexp.MustCompile(`[0-9]`).FindAllIndex(line, -1)
		at := digits[rng.IntN(len(digits))][0]
		line[at] = '0' + (line[at]-'0'+1+byte(rng.IntN(9)))%10
		lines[i] = line
		return bytes.Join(lines, nil)
	}},
	{"a cut anywhere", 200, func(rng *rand.Rand, lines [][]byte) []byte {
		data := bytes.Join(lines, nil)
		return data[:rng.IntN(len(data))]
	}},
	{"a cut between lines", 200, func(rng *rand.Rand, lines [][]byte) []byte {
		return bytes.Join(lines[:rng.IntN(len(lines))], nil)
	}},
}

// A damaged is a run whose journal is damaged again and again.
type damaged struct {
	dir    string
	lines  [][]byte
	states []*run.Run // states[n] is the run after n lines
}

// newDamaged makes a run of two sessions, both of which ended.
func newDamaged(t *testing.T) *damaged {
	t.Helper()
	d := &damaged{dir: filepath.Join(t.TempDir(), "r")}
	runtest.Make(t, d.dir, runtest.Model{Samples: 3, Masks: []string{"causal"}})
	j, err := run.Resume(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []run.Record{
		{Visit: &run.Visit{Point: j.Run().Cells[0].Point.Name(), Round: 3, Calls: 9, Wall: 9e6, CPU: 9e6, Before: 2e10, After: 2e10, Unit: run.ProbeFlop}},
		{End: &run.End{Reason: "all samples are taken", Complete: true, Time: time.Date(2026, 1, 3, 3, 5, 5, 0, time.UTC)}},
	} {
		if err := j.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	d.read(t)
	return d
}

// read reads the journal as the undamaged one.
func (d *damaged) read(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(d.path())
	if err != nil {
		t.Fatal(err)
	}
	d.lines = bytes.SplitAfter(data, []byte("\n"))
	d.lines = d.lines[:len(d.lines)-1]
	d.states = nil
	for n := range len(d.lines) + 1 {
		d.write(t, bytes.Join(d.lines[:n], nil))
		r, err := run.Load(d.dir)
		if err != nil {
			t.Fatal(err)
		}
		d.states = append(d.states, r)
	}
}

func (d *damaged) path() string { return filepath.Join(d.dir, run.JournalFile) }

func (d *damaged) write(t *testing.T, data []byte) {
	t.Helper()
	if err := os.WriteFile(d.path(), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Outcomes of reading a damaged journal.
const (
	refused = "an error that names the line"
	cut     = "the lines before, and a warning"
	prefix  = "the lines before, as an interrupted run"
	silent  = "changed rows"
)

// judge reads a damaged journal. If the outcome is silent, why says what was wrong.
func (d *damaged) judge(data []byte) (outcome, why string) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	tail := lines[len(lines)-1] // without a newline
	lines = lines[:len(lines)-1]
	same := 0
	for same < min(len(lines), len(d.lines)) && bytes.Equal(lines[same], d.lines[same]) {
		same++
	}
	r, err := run.Load(d.dir)
	if err != nil {
		m := damagedLine.FindStringSubmatch(err.Error())
		if m == nil || m[1] != strconv.Itoa(same+1) {
			return silent, fmt.Sprintf("line %d is damaged, the error is %v", same+1, err)
		}
		return refused, ""
	}
	want := d.states[same]
	switch {
	case same < len(lines):
		return silent, fmt.Sprintf("line %d is damaged, and was read", same+1)
	case !reflect.DeepEqual(r.Cells, want.Cells):
		return silent, fmt.Sprintf("what is read is not what the first %d lines say", same)
	case len(tail) > 0 && (len(r.Warnings) != 1 || r.Complete()):
		return silent, fmt.Sprintf("a cut line: warnings %q, complete is %v", r.Warnings, r.Complete())
	case len(tail) > 0:
		return cut, ""
	case r.Complete() != want.Complete() || len(r.Warnings) > 0:
		return silent, fmt.Sprintf("complete is %v, warnings %q", r.Complete(), r.Warnings)
	}
	return prefix, ""
}

var damagedLine = regexp.MustCompile(`journal\.jsonl:([0-9]+): damaged: .+; restore the folder from a copy, or .+`)

// TestDamage checks that no damage to a journal changes rows silently. Reading it is an error that
// names the first damaged line, or gives what the lines before the damage say. Only lines at the
// end can be missing without an error: such a run is read, and resumed, as the run of the lines
// before.
func TestDamage(t *testing.T) {
	d := newDamaged(t)
	for n, r := range d.states {
		if first := len(d.lines) - 2; r.Complete() != (n == first || n == len(d.lines)) {
			t.Fatalf("complete is %v after %d lines of %d", r.Complete(), n, len(d.lines))
		}
	}
	rng := rand.New(rand.NewPCG(7, 1))
	for _, kind := range damages {
		times := kind.n
		if !*damageFull {
			times /= 10
		}
		outcomes := map[string]int{}
		for range times {
			data := kind.do(rng, d.lines)
			d.write(t, data)
			outcome, why := d.judge(data)
			if outcomes[outcome]++; outcome == silent {
				t.Errorf("%s: %s", kind.name, why)
			}
			d.resume(t, kind.name, outcome == refused)
		}
		t.Logf("%s, %d times: %v", kind.name, times, outcomes)
	}
}

// resume checks that a refused journal is not resumed, and that any other is resumed from its last
// whole line.
func (d *damaged) resume(t *testing.T, kind string, refused bool) {
	t.Helper()
	was, _ := run.Load(d.dir)
	j, err := run.Resume(d.dir)
	if refused != (err != nil) {
		t.Errorf("%s: resumed: %v", kind, err)
	}
	if err != nil {
		return
	}
	err = j.Append(run.Record{End: &run.End{Reason: "interrupted"}})
	j.Close()
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Load(d.dir)
	if err != nil || len(r.Warnings) > 0 || !reflect.DeepEqual(r.Cells, was.Cells) || len(r.Ends) != len(was.Ends)+1 {
		t.Errorf("%s: resumed, it is %+v, %v", kind, r, err)
	}
}

// TestDamageWithoutSums checks that TestDamage can fail: rows do change in version 1, whose lines
// have no sums.
func TestDamageWithoutSums(t *testing.T) {
	d := newDamaged(t)
	d.write(t, regexp.MustCompile(`,"sum":"[0-9a-f]*"}`).ReplaceAll(bytes.Join(d.lines, nil), []byte("}")))
	meta := filepath.Join(d.dir, run.MetaFile)
	text, err := os.ReadFile(meta)
	if err == nil {
		err = os.WriteFile(meta, bytes.Replace(text, []byte(`"version": 2`), []byte(`"version": 1`), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.read(t)
	rng := rand.New(rand.NewPCG(7, 2))
	for _, kind := range damages[:5] {
		changed := 0
		for range 50 {
			data := kind.do(rng, d.lines)
			d.write(t, data)
			if outcome, _ := d.judge(data); outcome == silent {
				changed++
			}
		}
		if t.Logf("%s: %d of 50 change rows", kind.name, changed); changed == 0 {
			t.Errorf("%s: none is found", kind.name)
		}
	}
}
