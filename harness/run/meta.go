package run

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of the files of a run folder.
const (
	MetaFile    = "run.json"
	JournalFile = "journal.jsonl"
	BenchFile   = "bench.txt"
	CSVFile     = "sweep.csv"
	HTMLFile    = "report.html"
	ReportFile  = "report.md"
	PlotsDir    = "plots"
	ProfilesDir = "profiles" // profiles and listings, one file a point
)

// Meta describes a whole run: the content of run.json.
type Meta struct {
	Version int               `json:"version"` // of the folder's format; Create sets it
	Started time.Time         `json:"started"`
	Commit  Commit            `json:"commit"`
	Program string            `json:"program,omitempty"` // SHA-256 of the executable
	Command []string          `json:"command,omitempty"` // as it was typed
	Flags   map[string]string `json:"flags,omitempty"`   // every flag with its effective value
	Seed    uint64            `json:"seed"`
	Machine Fingerprint       `json:"machine"`
	Env     map[string]string `json:"env,omitempty"` // Environment when the run began
	Peaks   []Peak            `json:"peaks,omitempty"`
	Noise   map[string]string `json:"noise,omitempty"` // disturbances: steal, clock drift, load

	// Floors holds the relative difference between least times of the same code on this machine, as
	// benchrun doctor found it before the run. The key is the unit of the probe. A missing entry is
	// unknown.
	Floors map[string]float64 `json:"floors,omitempty"`

	Paths Paths `json:"paths,omitempty"` // of the kernels of all points

	// Peers maps the kernels of other programs to what these report themselves to be.
	Peers map[string]string `json:"peers,omitempty"`

	// PeerSum is the SHA-256 of --peer, whose arguments may be secret and are not kept.
	PeerSum string `json:"peer_sum,omitempty"`

	// Counters names the counters of the CPU, or says why there are none.
	Counters string `json:"counters,omitempty"`
}

// Versions of the folder's format.
const (
	withoutSums   = 1 // lines of the journal have no sums; it is read, but not resumed
	formatVersion = 2 // the version that is written
)

// A Commit names the sources of the measured program. Without a Revision they are unknown.
type Commit struct {
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the checkout had changes on top of Revision
	Diff     string `json:"diff,omitempty"`     // SHA-256 of these changes; empty when unknown
}

// String returns a short form for reports.
func (c Commit) String() string {
	if c.Revision == "" {
		return "unknown"
	}
	s := short(c.Revision)
	if c.Modified {
		s += " with changes"
	}
	if c.Diff != "" {
		s += " " + short(c.Diff)
	}
	return s
}

// short returns the first digits of a hash, enough to tell commits apart.
func short(hash string) string { return hash[:min(12, len(hash))] }

// ProgramCommit returns the commit that go build stamped into this program. Without a stamp (go
// run, go test, -buildvcs=false, a linked worktree) the commit is unknown: the folder in which the
// program runs need not hold its sources.
func ProgramCommit() Commit {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Commit{}
	}
	return stampedCommit(info.Settings)
}

func stampedCommit(settings []debug.BuildSetting) (c Commit) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			c.Revision = s.Value
		case "vcs.modified":
			c.Modified = s.Value == "true"
		}
	}
	return c
}

// Environment returns the environment variables that change measurements: those of Go's scheduler,
// garbage collector and GODEBUG, and those of the thread pools that peers use.
func Environment() map[string]string {
	var env map[string]string
	for _, line := range os.Environ() {
		name, value, _ := strings.Cut(line, "=")
		if value == "" || !changesResults(name) { // an empty variable counts as not set
			continue
		}
		if env == nil {
			env = map[string]string{}
		}
		env[name] = value
	}
	return env
}

func changesResults(name string) bool {
	switch name {
	case "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG":
		return true
	}
	for _, prefix := range [...]string{"OMP_", "MKL_", "OPENBLAS_", "KMP_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// EnvDifferences lists the differences between two results of Environment, by name.
func EnvDifferences(was, now map[string]string) []string {
	names := map[string]bool{}
	for _, env := range [...]map[string]string{was, now} {
		for name := range env {
			names[name] = true
		}
	}
	said := func(env map[string]string, name string) string {
		if env[name] == "" {
			return "not set"
		}
		return strconv.Quote(env[name])
	}
	var d []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x, y := said(was, name), said(now, name); x != y {
			d = append(d, fmt.Sprintf("%s is %s, was %s", name, y, x))
		}
	}
	return d
}

// module is the path of this module, in whose kernels package the benchmark is.
const module = "attnlab"

// A Fingerprint describes the machine of a run. What could not be found out is empty or zero.
type Fingerprint struct {
	Host       string   `json:"host,omitempty"`
	CPU        string   `json:"cpu"`
	Vendor     string   `json:"vendor,omitempty"`
	Family     int      `json:"family,omitempty"`
	Model      int      `json:"model,omitempty"`
	Stepping   int      `json:"stepping,omitempty"`
	Cores      int      `json:"cores,omitempty"` // physical
	CPUs       int      `json:"cpus"`            // logical ones this process may use
	Caches     []Cache  `json:"caches,omitempty"`
	ISA        []string `json:"isa"` // levels that run here, portable first
	RAM        int64    `json:"ram,omitempty"`
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	Kernel     string   `json:"kernel,omitempty"` // of the operating system
	Hypervisor string   `json:"hypervisor,omitempty"`
	Governor   string   `json:"governor,omitempty"`
	Turbo      string   `json:"turbo,omitempty"`       // on, off
	SMT        string   `json:"smt,omitempty"`         // on, off
	LargePages string   `json:"large_pages,omitempty"` // always, madvise, never
	Go         string   `json:"go"`
	GOAMD64    string   `json:"goamd64,omitempty"`
	Tags       string   `json:"tags,omitempty"` // build tags
}

// A Cache is one level of the memory hierarchy.
type Cache struct {
	Name  string `json:"name"` // L1d, L2, L3
	Bytes int64  `json:"bytes"`
}

// A Peak is what the multiply-add probe of one instruction set reached on one thread.
type Peak struct {
	ISA      string  `json:"isa"`
	Flop     float64 `json:"flop_per_s"`
	PerCycle float64 `json:"flop_per_cycle,omitempty"` // 0 is unknown
	Doubt    string  `json:"unreliable,omitempty"`     // why shares of this peak say nothing

	// Slots is the greatest number of instructions that the CPU begins in a cycle. 0 is unknown.
	Slots float64 `json:"slots,omitempty"`
}

// String describes the peak in reports.
func (p Peak) String() string {
	s := fmt.Sprintf("%.4g GFLOP/s on one thread", p.Flop/1e9)
	if p.PerCycle > 0 {
		s += fmt.Sprintf(", %.3g FLOP per cycle", p.PerCycle)
	}
	if p.Doubt != "" {
		s += "; unreliable: " + p.Doubt
	}
	return s
}

// Differences lists the differences between two fingerprints that change measurements. Two runs may
// be joined only if there are none.
func (f Fingerprint) Differences(g Fingerprint) []string {
	var d []string
	differ := func(name string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			d = append(d, fmt.Sprintf("%s is %s, was %s", name, y, x))
		}
	}
	differ("CPU", f.CPU, g.CPU)
	differ("CPU family, model, stepping", [3]int{f.Family, f.Model, f.Stepping}, [3]int{g.Family, g.Model, g.Stepping})
	differ("number of cores", f.Cores, g.Cores)
	differ("number of CPUs", f.CPUs, g.CPUs)
	differ("caches", f.Caches, g.Caches)
	differ("instruction sets", f.ISA, g.ISA)
	differ("OS", f.OS+"/"+f.Arch, g.OS+"/"+g.Arch)
	differ("Go", f.Go, g.Go)
	differ("GOAMD64", f.GOAMD64, g.GOAMD64)
	differ("build tags", f.Tags, g.Tags)
	return d
}

// WriteMeta replaces run.json.
func WriteMeta(dir string, m Meta) error {
	m.Version = formatVersion
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return fmt.Errorf("run.json: %w", err)
	}
	return Replace(filepath.Join(dir, MetaFile), append(data, '\n'))
}

func readMeta(dir string) (Meta, error) {
	var m Meta
	path := filepath.Join(dir, MetaFile)
	data, err := os.ReadFile(path)
	if sides := [2]string{filepath.Join(dir, "base"), filepath.Join(dir, "head")}; err != nil && exists(sides[0]) && exists(sides[1]) {
		return m, fmt.Errorf("%s: not a run folder, but a comparison of two: name %s or %s", dir, sides[0], sides[1])
	}
	if err != nil {
		return m, fmt.Errorf("not a run folder: %w%s", err, unbegun(dir))
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	if m.Version != withoutSums && m.Version != formatVersion {
		return m, fmt.Errorf("%s: format version %d, this benchrun reads %d and %d", path, m.Version, withoutSums, formatVersion)
	}
	return m, nil
}

// unbegun describes a folder without run.json that looks like a run or holds runs.
func unbegun(dir string) string {
	below, _ := filepath.Glob(filepath.Join(dir, "*", MetaFile))
	switch info, err := os.Stat(filepath.Join(dir, JournalFile)); {
	case err != nil && len(below) > 0:
		return fmt.Sprintf("; there are runs below it: name one, such as %s", filepath.Dir(below[0]))
	case err != nil:
		return ""
	case info.Size() == 0:
		return "; a run was ended here before it began: begin it again, with the same command"
	}
	return "; there is a " + JournalFile + ", which means nothing without it: put it back"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// FileName returns a name that every file system accepts. A name that is too long is cut, and a
// hash of the whole is appended.
func FileName(name string) string {
	const most = 200 // of 255; callers append the rest
	if len(name) <= most {
		return name
	}
	hash := fmt.Sprintf("-%x", sha256.Sum256([]byte(name)))[:1+16]
	return name[:most-len(hash)] + hash
}

// Replace replaces a file, and returns when the new one is on the disk. It writes beside the file
// and renames, so a reader sees the old file or the new one, whole. Anything but a plain file, such
// as a link or /dev/stdout, is written to.
func Replace(path string, data []byte) error {
	if at, err := os.Lstat(path); err == nil && !at.Mode().IsRegular() {
		return os.WriteFile(path, data, 0o644)
	}
	staged, err := stage(path, data)
	if err != nil {
		return err
	}
	if err := os.Rename(staged, path); err != nil {
		os.Remove(staged)
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// makeFolder makes a folder and its parents, and returns when they are on the disk.
func makeFolder(dir string) error {
	var made []string
	for at := filepath.Clean(dir); !exists(at) && filepath.Dir(at) != at; at = filepath.Dir(at) {
		made = append(made, at)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, at := range made {
		if err := syncFolder(filepath.Dir(at)); err != nil {
			return err
		}
	}
	return nil
}

// stage writes data to a temporary file in the folder of path, and returns the file's name.
func stage(path string, data []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if e := new(fs.PathError); errors.As(err, &e) {
		e.Path = path // the name that the caller knows
	}
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return "", err
	}
	if err = f.Chmod(0o644); err != nil {
		return "", err
	}
	if err = f.Sync(); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}
