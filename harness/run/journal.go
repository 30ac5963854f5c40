package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Record is one line of a journal. Exactly one of its fields is set.
type Record struct {
	Plan   *Plan   `json:"plan,omitempty"`
	Visit  *Visit  `json:"visit,omitempty"`
	Verify *Verify `json:"verify,omitempty"`
	Memory *Memory `json:"memory,omitempty"`
	Skip   *Skip   `json:"skip,omitempty"`
	Fail   *Fail   `json:"fail,omitempty"`
	End    *End    `json:"end,omitempty"`
}

// A Plan announces a point, with the work of one call. Every point is planned once, before its
// other records.
type Plan struct {
	Point Point  `json:"point"`
	Group string `json:"group"`          // Point.Group; Append sets it
	Path  string `json:"path,omitempty"` // of the kernel, from Meta.Paths; Append sets it
	Flop  int64  `json:"flop"`
	Bytes int64  `json:"bytes"`
}

// A Visit is one sample of a point: Calls calls, timed together between two probes of the machine.
type Visit struct {
	Point string `json:"point"` // Point.Name, as in every record
	Round int    `json:"round"` // a point has one visit a round
	Calls int    `json:"calls"`
	Wall  int64  `json:"wall_ns"`          // of all calls together
	CPU   int64  `json:"cpu_ns,omitempty"` // of the timing thread; 0 is unknown

	// Before and After are the rates that the probe reached just before and just after the calls,
	// in Unit, which is ProbeFlop or ProbeBytes. 0 is no probe.
	Before float64 `json:"before,omitempty"`
	After  float64 `json:"after,omitempty"`
	Unit   string  `json:"unit,omitempty"`

	// Dropped reports that the probes disagree. The sample does not enter peak_frac.
	Dropped bool `json:"dropped,omitempty"`

	// Slots is the number of instructions that the CPU began in a cycle, the lesser of before and
	// after. 0 is unknown.
	Slots float64 `json:"slots,omitempty"`

	// Again counts samples just before this one that would have been dropped. They were taken again
	// and are not in the journal.
	Again int `json:"again,omitempty"`

	// Shared reports that Slots is less than MinSlots of the run's best. A Run then has the sample
	// as Dropped.
	Shared bool `json:"-"`

	// Attention and Products are the parts of Wall that a layer spent in attention and in matrix
	// products.
	Attention int64 `json:"attn_ns,omitempty"`
	Products  int64 `json:"product_ns,omitempty"`

	// Counts holds the events that the CPU counted in all calls together, by name: cycles,
	// instructions, cache-misses.
	Counts map[string]int64 `json:"counts,omitempty"`
}

// MinSlots is the least share of the instructions per cycle that a CPU begins at best. A sample
// below it shared its core with another thread, which slows attention down far more than it slows
// down the multiply-add probe.
// Tuning: docs/tuning.md#shared-cores
const MinSlots = 0.95

// Units of a probe.
const (
	ProbeFlop  = "FLOP/s"
	ProbeBytes = "B/s"
)

// A Verify is the result of comparing a point's output with the definition.
type Verify struct {
	Point string `json:"point"`
	Ratio Ratio  `json:"ratio"` // worst error over tolerance; a right answer has at most 1
	Rows  int    `json:"rows"`
	Where string `json:"where,omitempty"` // the number with the worst ratio
}

// A Memory is the memory that a point takes, measured in a process of its own. A nil field was not
// measured.
type Memory struct {
	Point   string `json:"point"`
	Scratch *int64 `json:"scratch_bytes,omitempty"` // held by the plan
	PeakRSS *int64 `json:"peak_rss_bytes,omitempty"`
	Alloc   *int64 `json:"alloc_bytes,omitempty"` // by one call
	Allocs  *int64 `json:"allocs,omitempty"`      // by one call
}

// A Skip records why a point was not run.
type Skip struct {
	Point  string `json:"point"`
	Reason string `json:"reason"`
}

// A Fail records why a point gave no number: a wrong answer, a crash, a timeout.
type Fail struct {
	Point  string `json:"point"`
	Reason string `json:"reason"`
}

// An End closes a session of a run. A run that was resumed has several.
type End struct {
	Reason   string    `json:"reason"`   // such as "precise", "budget spent", "interrupted"
	Complete bool      `json:"complete"` // nothing is left to resume
	Time     time.Time `json:"time"`
}

// A Ratio is a number that JSON can hold even if it is infinite or NaN.
type Ratio float64

// MarshalJSON writes a finite ratio as a number and any other as a string.
func (r Ratio) MarshalJSON() ([]byte, error) {
	if x := float64(r); math.IsInf(x, 0) || math.IsNaN(x) {
		return json.Marshal(fmt.Sprint(x))
	}
	return json.Marshal(float64(r))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Ratio) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		return json.Unmarshal(data, (*float64)(r))
	}
	x, ok := map[string]float64{"+Inf": math.Inf(1), "-Inf": math.Inf(-1), "NaN": math.NaN()}[s]
	if !ok {
		return fmt.Errorf("%q is not a number", s)
	}
	*r = Ratio(x)
	return nil
}

// point returns the name of the point that a record is about, empty for End.
func (r *Record) point() string {
	switch {
	case r.Plan != nil:
		return r.Plan.Point.Name()
	case r.Visit != nil:
		return r.Visit.Point
	case r.Verify != nil:
		return r.Verify.Point
	case r.Memory != nil:
		return r.Memory.Point
	case r.Skip != nil:
		return r.Skip.Point
	case r.Fail != nil:
		return r.Fail.Point
	}
	return ""
}

// check reports what is wrong with a record by itself.
func (r *Record) check() error {
	n := 0
	for _, set := range [...]bool{
		r.Plan != nil, r.Visit != nil, r.Verify != nil, r.Memory != nil, r.Skip != nil, r.Fail != nil, r.End != nil,
	} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return fmt.Errorf("got %d of plan, visit, verify, memory, skip, fail and end in a record, want one", n)
	case r.End == nil && r.point() == "":
		return errors.New("a record without a point")
	case r.Plan != nil:
		if want := r.Plan.Point.Group(); r.Plan.Group != want {
			return fmt.Errorf("group %q, the point's is %q", r.Plan.Group, want)
		}
		return r.Plan.Point.Validate()
	case r.Visit != nil:
		v := r.Visit
		if v.Calls < 1 || v.Wall < 1 || v.CPU < 0 || !(v.Before >= 0) || !(v.After >= 0) || !(v.Slots >= 0) {
			return fmt.Errorf("a visit of %d calls in %d ns wall, %d ns CPU, between probes of %v and %v, with %v instructions a cycle", v.Calls, v.Wall, v.CPU, v.Before, v.After, v.Slots)
		}
		if v.Before > 0 && v.Unit != ProbeFlop && v.Unit != ProbeBytes {
			return fmt.Errorf("probe unit %q: one of %s, %s", v.Unit, ProbeFlop, ProbeBytes)
		}
		if v.Attention < 0 || v.Products < 0 || v.Attention+v.Products > v.Wall {
			return fmt.Errorf("a visit of %d ns, %d of them in attention and %d in products", v.Wall, v.Attention, v.Products)
		}
	}
	return nil
}

// A Journal appends to the journal of a run. It is used by one goroutine at a time.
type Journal struct {
	run  *Run
	file *os.File
	size int64  // of the whole records
	sum  string // of the last one
}

// Create makes a run folder and opens its journal. It refuses a folder that already holds a run. If
// that run's journal is empty, the run was killed before it recorded anything, and is begun again.
func Create(dir string, m Meta) (*Journal, error) {
	if err := makeFolder(dir); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	path := filepath.Join(dir, JournalFile)
	if exists(filepath.Join(dir, MetaFile)) && !exists(path) {
		return nil, fmt.Errorf("%s holds a %s without its %s: put that back, or name another folder", dir, MetaFile, JournalFile)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	if err := claim(f); err != nil {
		f.Close()
		return nil, err
	}
	// run.json is on the disk before the first line of the journal is. So a process that is killed
	// leaves a run that can be read, or an empty journal.
	if err := WriteMeta(dir, m); err != nil {
		f.Close()
		return nil, fmt.Errorf("run folder: %w", err)
	}
	m.Version = formatVersion
	return &Journal{run: newRun(dir, m), file: f}, nil
}

// claim locks the journal of a run that is about to begin. It refuses a journal that has lines.
func claim(f *os.File) error {
	if err := lock(f); err != nil {
		return err
	}
	dir := filepath.Dir(f.Name())
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("run folder: %w", err)
	case info.Size() == 0:
		return nil
	case exists(filepath.Join(dir, MetaFile)):
		return fmt.Errorf("%s already holds a run: resume it, or name another folder", dir)
	}
	return fmt.Errorf("%s holds a %s without its %s: put that back, or name another folder", dir, JournalFile, MetaFile)
}

// Unkept returns a journal in memory, for measurements that will not be read or resumed.
func Unkept() *Journal { return &Journal{run: newRun("", Meta{Version: formatVersion})} }

// Resume opens the journal of an earlier run, to append to it. A last line that was cut is removed,
// with a warning in Run.Warnings. On systems with locks, a journal that another process is writing
// is refused.
func Resume(dir string) (*Journal, error) {
	m, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	if m.Version != formatVersion {
		return nil, fmt.Errorf("%s: a run of format version %d can be read, but not resumed: begin another run", dir, m.Version)
	}
	f, err := os.OpenFile(filepath.Join(dir, JournalFile), os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	j, err := resume(dir, f)
	if err != nil {
		f.Close()
	}
	return j, err
}

func resume(dir string, f *os.File) (*Journal, error) {
	if err := lock(f); err != nil {
		return nil, err
	}
	r, size, sum, err := load(dir)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	return &Journal{run: r, file: f, size: size, sum: sum}, nil
}

// Run returns what the journal holds so far. It grows with every Append.
func (j *Journal) Run() *Run { return j.run }

// Append writes one record, and returns when it is on the disk. After an error the journal still
// ends with the last whole record.
func (j *Journal) Append(r Record) error {
	if r.Plan != nil {
		p := *r.Plan
		p.Group, p.Path = p.Point.Group(), j.run.Meta.Paths[p.Point.Contender()]
		r.Plan = &p
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.run.accept(&r); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.file == nil {
		j.run.add(&r)
		return nil
	}
	line, sum, err := seal(&r, j.sum)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err = j.file.Write(line); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// Part of a line, followed by the next line, would be damage.
		if j.file.Truncate(j.size) == nil {
			_, _ = j.file.Seek(j.size, io.SeekStart)
		}
		return fmt.Errorf("journal: %w", err)
	}
	j.size, j.sum = j.size+int64(len(line)), sum
	j.run.add(&r)
	return nil
}

// Close closes the file, and lets other processes write it.
func (j *Journal) Close() error { return j.file.Close() }

// Discard closes the journal of a run that has measured nothing and removes the run. It removes the
// folder too, if nothing else is in it.
func (j *Journal) Discard() error {
	dir := j.run.Dir
	err := errors.Join(j.Close(), os.Remove(filepath.Join(dir, MetaFile)), os.Remove(filepath.Join(dir, JournalFile)))
	_ = os.Remove(dir)
	return err
}

// WriteJournal replaces the journal of a run by the given records, and waits for the disk once.
// Append waits for each record.
func WriteJournal(dir string, records []Record) error {
	var data []byte
	sum := ""
	for i := range records {
		line, next, err := seal(&records[i], sum)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		data, sum = append(data, line...), next
	}
	return Replace(filepath.Join(dir, JournalFile), data)
}

// Load reads a run folder.
func Load(dir string) (*Run, error) {
	r, _, _, err := load(dir)
	return r, err
}

// load also returns the size of the whole records, and the sum of the last of them.
func load(dir string) (r *Run, size int64, sum string, err error) {
	m, err := readMeta(dir)
	if err != nil {
		return nil, 0, "", err
	}
	r = newRun(dir, m)
	path := filepath.Join(dir, JournalFile)
	data, err := os.ReadFile(path)
	if err != nil && exists(filepath.Join(dir, CSVFile)) {
		return nil, 0, "", fmt.Errorf("%s holds the figures of a run, %s, and no samples: name a folder with its %s: %w", dir, CSVFile, JournalFile, err)
	}
	if err != nil {
		return nil, 0, "", fmt.Errorf("not a run folder: %w", err)
	}
	var again []int // lines of version 1 that visit a point a second time in a round
	for line := 1; len(data) > 0; line++ {
		text, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s:%d: cut short, dropped", path, line))
			r.open = true
			break
		}
		rec, body := new(Record), text
		if m.Version != withoutSums {
			body, sum, err = unseal(text, sum)
		}
		if err == nil {
			err = decode(body, rec)
		}
		if err == nil {
			err = r.accept(rec)
		}
		if err != nil {
			return nil, 0, "", fmt.Errorf("%s:%d: damaged: %w; %s", path, line, err, remedy(line))
		}
		if v := rec.Visit; v != nil && r.index[v.Point].Visited(v.Round) {
			again = append(again, line)
		}
		r.add(rec)
		size += int64(len(text)) + 1
		data = rest
	}
	if len(again) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s:%d: a second visit of one point in one round, the first of %d such lines: either lines are doubled, or a comparison was resumed; "+
			"format version %d does not tell", path, again[0], len(again), withoutSums))
	}
	return r, size, sum, nil
}

// remedy returns what can be done about a damaged line.
func remedy(line int) string {
	if line == 1 {
		return "restore the folder from a copy, or make another run"
	}
	return fmt.Sprintf("restore the folder from a copy, or keep only the lines before it, which are whole (head -n %d)", line-1)
}

// Parts of the end of a line: sumKey, a sum of sumDigits hexadecimal digits, sumEnd.
const (
	sumKey    = `,"sum":"`
	sumEnd    = `"}`
	sumDigits = 16
)

// sumOf returns the sum of a line: a hash of the sum of the line before (empty for the first line)
// and of this line's text up to sumKey.
func sumOf(before string, text []byte) string {
	h := sha256.New()
	_, _ = io.WriteString(h, before)
	_, _ = h.Write(text)
	return hex.EncodeToString(h.Sum(nil))[:sumDigits]
}

// seal returns a record as a line, and the sum of that line. It takes the sum of the line before.
func seal(r *Record, before string) (line []byte, sum string, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	text := body[:len(body)-1] // without the closing brace
	sum = sumOf(before, text)
	return append(text, sumKey+sum+sumEnd+"\n"...), sum, nil
}

// unseal undoes seal, for a line without its newline.
func unseal(line []byte, before string) (body []byte, sum string, err error) {
	text := line[:max(0, len(line)-len(sumKey)-sumDigits-len(sumEnd))]
	end := string(line[len(text):])
	if !strings.HasPrefix(end, sumKey) || !strings.HasSuffix(end, sumEnd) {
		return nil, "", fmt.Errorf("it does not end with a sum, %s%s%s", sumKey, strings.Repeat("0", sumDigits), sumEnd)
	}
	got, want := end[len(sumKey):len(sumKey)+sumDigits], sumOf(before, text)
	if got != want {
		return nil, "", fmt.Errorf("its sum is %q, want %s: it was changed, or lines before it were lost, doubled or moved", got, want)
	}
	return append(slices.Clip(text), '}'), got, nil
}

// decode reads a record strictly: an unknown field is an error, so nothing is left out silently.
func decode(line []byte, r *Record) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(line)) {
		return errors.New("more than one record on the line")
	}
	return r.check()
}
