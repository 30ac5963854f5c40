package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/attn/oracle"
	"attnlab/harness/machine"
	"attnlab/harness/run"
)

// A Lab is what is handed to the harness: what there is to measure, and what to measure it by.
// Parent and child build the same one.
type Lab struct {
	Kernels  []attn.Kernel
	Workload func(run.Point) (*Workload, error) // allocates nothing of the workload's
	Probes   func(run.Point) Probes
	Count    machine.Counter // nil: this machine does not count
	Profile  time.Duration   // how long a point runs under the profiler; 0 is ProfileTime
}

// Kernel finds a kernel by its name.
func (l *Lab) Kernel(algo, isa string) (attn.Kernel, error) {
	for _, k := range l.Kernels {
		if a, i := k.Name(); a == algo && i == isa {
			return k, nil
		}
	}
	return nil, fmt.Errorf("there is no kernel %s/%s", algo, isa)
}

// Paths returns the paths of the kernels that name one.
func (l *Lab) Paths() run.Paths {
	paths := run.Paths{}
	for _, k := range l.Kernels {
		if t, ok := k.(attn.Tuned); ok && t.Path() != "" {
			algo, isa := k.Name()
			paths[run.Point{Kernel: algo, ISA: isa}.Contender()] = t.Path()
		}
	}
	return paths
}

// foreign lists the kernels that are not ours.
func (l *Lab) foreign() (list []attn.Foreign) {
	for _, k := range l.Kernels {
		if f, ok := k.(attn.Foreign); ok {
			list = append(list, f)
		}
	}
	return list
}

// A Worker does the work that may crash, hang or take all memory. A Lab does it here; a Child has a
// process of its own do it.
type Worker interface {
	// Verify runs a point once and compares rows of its answer with the oracle.
	Verify(ctx context.Context, at run.Point) (oracle.Verdict, error)
	// Weigh measures the memory a point needs.
	Weigh(ctx context.Context, at run.Point) (Memory, error)
	// Sample times a point once.
	Sample(ctx context.Context, at run.Point, wish Wish) (Sample, error)
	// Try runs one case on one kernel.
	Try(ctx context.Context, algo, isa string, c cases.Case) (Finding, error)
	// TryOutside runs one case of a file or folder on one kernel.
	TryOutside(ctx context.Context, algo, isa, path string, o *cases.Outside) (Finding, error)
}

// A bench is a Lab at work.
type bench struct {
	*Lab
	cases   []cases.Case    // all of them, once there was need of one: making the list takes longer than most cases
	outside []cases.Outside // read for one kernel, from one path: a kernel leaves its outputs in them
	readFor [3]string
}

// job prepares a point, plans it, hands it to use, and closes it.
func (b *bench) job(at run.Point, use func(*Workload, Job) error) (err error) {
	w, err := b.Workload(at)
	if err != nil {
		return err
	}
	j, err := w.Prepare()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.Plan(); err != nil {
		return err
	}
	return use(w, j)
}

func (b *bench) verify(at run.Point) (v oracle.Verdict, err error) {
	err = b.job(at, func(_ *Workload, j Job) error {
		if _, err := j.Run(1); err != nil {
			return err
		}
		v, err = j.Check(rowsToCheck(at), Inputs(at))
		return err
	})
	return v, err
}

func (b *bench) weigh(at run.Point) (m Memory, err error) {
	w, err := b.Workload(at)
	if err != nil {
		return m, err
	}
	return Weigh(w)
}

func (b *bench) sample(at run.Point, wish Wish) (s Sample, err error) {
	// A collection in the middle of a sample would be timed with it. Workers of a team may still be
	// moved; the probe moves with them.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if at.Threads == 1 {
		// CPUs differ by who is awake beside them: of 42 comparisons of the same code on a Zen 5
		// with two, two differed by 11 and 13 % while each side had a CPU, and of 40 on one CPU
		// none by more than 1.3.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer pin()()
	}
	err = b.job(at, func(_ *Workload, j Job) error {
		count := b.Count
		if remote(j) != nil {
			count = nil // this process only waits
		}
		s, err = Take(j, b.probe(at, j), b.Probes(at).ForSlots(j.Team()), count, wish)
		return err
	})
	return s, err
}

// profile runs a point under the CPU profiler.
func (b *bench) profile(at run.Point) (p []byte, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	left := b.Profile
	if left == 0 {
		left = ProfileTime
	}
	err = b.job(at, func(_ *Workload, j Job) error {
		took, err := j.Run(1)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := pprof.StartCPUProfile(&out); err != nil {
			return err
		}
		defer func() { pprof.StopCPUProfile(); p = out.Bytes() }()
		calls := max(1, int(left/20/max(took.Wall, 1)))
		for ; left > 0; left -= took.Wall {
			if took, err = j.Run(calls); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

// ProfileTime is enough for about two hundred samples on each thread, at the profiler's hundred a
// second.
const ProfileTime = 2 * time.Second

// probe is the one a point is judged by: memory for one query against many keys, multiply-adds for
// the others.
func (b *bench) probe(at run.Point, j Job) Probe {
	p := b.Probes(at)
	if ProbeUnit(at) == run.ProbeBytes {
		return p.ForRead(j.Team(), j.Reads())
	}
	return p.ForPeak(j.Team())
}

// ProbeUnit says what the rate of a point is held against.
func ProbeUnit(at run.Point) string {
	if at.SeqQ == 1 {
		return run.ProbeBytes
	}
	return run.ProbeFlop
}

// A request asks the child for one piece of work. Do says which of the other fields are read.
type request struct {
	Do    string     `json:"do"` // paths, verify, weigh, sample, profile, try or outside
	Point *run.Point `json:"point,omitempty"`
	Hint  int        `json:"hint,omitempty"` // the Wish of a sample, this and the next two
	Slots float64    `json:"slots,omitempty"`
	Wait  int64      `json:"wait_ns,omitempty"`
	Algo  string     `json:"algo,omitempty"`
	ISA   string     `json:"isa,omitempty"`
	Case  string     `json:"case,omitempty"`
	Back  bool       `json:"back,omitempty"` // the case is one of the backward pass
	Path  string     `json:"path,omitempty"`
	File  string     `json:"file,omitempty"`
	Limit int64      `json:"limit_ns,omitempty"` // for a Foreign kernel, which the worker gives up by itself; 0 is no limit
}

// foreign reports whether a request is about a Foreign kernel.
func (q *request) foreign() bool {
	return q.ISA == attn.Native || q.Point != nil && q.Point.ISA == attn.Native
}

// An answer is what the child has to say.
type answer struct {
	Error   string    `json:"error,omitempty"`
	Rows    int       `json:"rows,omitempty"`
	Worst   run.Ratio `json:"worst,omitempty"`
	Note    string    `json:"note,omitempty"`
	Refused bool      `json:"refused,omitempty"`
	Excused string    `json:"excused,omitempty"`
	Memory  *Memory   `json:"memory,omitempty"`
	Sample  *Sample   `json:"sample,omitempty"`
	Profile []byte    `json:"profile,omitempty"`
	Paths   run.Paths `json:"paths,omitempty"`
	Late    bool      `json:"late,omitempty"` // the kernel was given up

	// Group and Runs are no answer: a process group has started or, if it does not run, ended.
	// Whoever kills the worker kills it too.
	Group int  `json:"group,omitempty"`
	Runs  bool `json:"runs,omitempty"`
}

// Serve answers requests, one JSON value a line, until there are no more. It is what the child
// does.
func (l *Lab) Serve(in io.Reader, out io.Writer) error {
	runtime.LockOSThread() // thread CPU time is this thread's
	defer runtime.UnlockOSThread()
	requests := make(chan request)
	var broken error
	go func() {
		defer close(requests)
		for d := json.NewDecoder(in); ; {
			var q request
			if broken = d.Decode(&q); broken != nil {
				return
			}
			requests <- q
		}
	}()
	b := &bench{Lab: l}
	var mu sync.Mutex
	answers := json.NewEncoder(out)
	write := func(a answer) error {
		mu.Lock()
		defer mu.Unlock()
		return answers.Encode(a)
	}
	foreign := l.foreign()
	for _, k := range foreign {
		k.Watch(func(group int, runs bool) { _ = write(answer{Group: group, Runs: runs}) })
	}
	for q := range requests {
		for _, k := range foreign {
			k.Within(time.Duration(q.Limit))
		}
		if err := write(b.answer(q)); err != nil {
			return err
		}
	}
	if errors.Is(broken, io.EOF) {
		return nil
	}
	return broken
}

func (b *bench) answer(q request) (a answer) {
	if q.foreign() {
		defer b.caught(&a)
	}
	var err error
	switch {
	case q.Do == "paths":
		a.Paths = b.Paths()
	case q.Do == "try":
		a, err = b.try(q)
	case q.Do == "outside":
		a, err = b.tryOutside(q)
	case q.Point == nil:
		err = fmt.Errorf("request %q without a point", q.Do)
	case q.Do == "verify":
		var v oracle.Verdict
		v, err = b.verify(*q.Point)
		a = answer{Rows: v.Rows, Worst: run.Ratio(v.Worst), Note: v.Where}
	case q.Do == "weigh":
		var m Memory
		m, err = b.weigh(*q.Point)
		a.Memory = &m
	case q.Do == "sample":
		var s Sample
		s, err = b.sample(*q.Point, Wish{q.Hint, q.Slots, time.Duration(q.Wait)})
		a.Sample = &s
	case q.Do == "profile":
		a.Profile, err = b.profile(*q.Point)
	default:
		err = fmt.Errorf("unknown request %q", q.Do)
	}
	if err != nil {
		return failed(err)
	}
	return a
}

// failed is the answer that tells of an error.
func failed(err error) answer {
	a := answer{Error: err.Error()}
	if e := new(attn.RemoteError); errors.As(err, &e) {
		a.Late = e.Late
	}
	return a
}

// caught turns the panic of a plan elsewhere into an answer. The process of the plan has ended.
func (*bench) caught(a *answer) {
	switch r := recover().(type) {
	case nil:
	case *attn.RemoteError:
		*a = failed(r)
	default:
		panic(r)
	}
}

func (b *bench) try(q request) (answer, error) {
	k, err := b.Kernel(q.Algo, q.ISA)
	if err != nil {
		return answer{}, err
	}
	if b.cases == nil {
		b.cases = cases.All()
	}
	for _, c := range b.cases {
		if c.String() == q.Case {
			if q.Back {
				c, _ = c.Differentiated(Powers(k).Wants())
			}
			f := Try(k, c)
			return answer{Worst: run.Ratio(f.Worst), Note: f.Note, Refused: f.Refused, Late: f.Late}, nil
		}
	}
	return answer{}, fmt.Errorf("there is no case %q", q.Case)
}

func (b *bench) tryOutside(q request) (a answer, err error) {
	k, err := b.Kernel(q.Algo, q.ISA)
	if err != nil {
		return a, err
	}
	if who := [3]string{q.Algo, q.ISA, q.Path}; b.readFor != who {
		if b.outside, err = cases.ReadONNX(q.Path); err != nil {
			return a, err
		}
		b.readFor = who
	}
	for i := range b.outside {
		if o := &b.outside[i]; o.Name == q.Case && o.File == q.File {
			f := TryOutside(k, o)
			return answer{Worst: run.Ratio(f.Worst), Note: f.Note, Refused: f.Refused, Excused: f.Excused, Late: f.Late}, nil
		}
	}
	return a, fmt.Errorf("there is no case %s in %s", q.Case, q.File)
}
