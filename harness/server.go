package harness

import (
	"bytes"
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
	"attnlab/harness/verify"
)

// A Server does in a worker process what a Client asks for.
type Server struct {
	Kernels  []attn.Kernel
	Workload func(run.Point) (*Workload, error) // allocates no operands
	Probes   func(run.Point) Probes
	Count    machine.Counter // nil: events of the CPU are not counted
	Effort   Effort
}

// A request asks a Server for one piece of work. Do says which of the other fields it reads.
type request struct {
	// Do is paths, verify, weigh, sample, profile, try or outside. Weigh asks for Memory.
	Do    string     `json:"do"`
	Point *run.Point `json:"point,omitempty"`
	Hint  int        `json:"hint,omitempty"`    // SampleOptions.Calls
	Slots float64    `json:"slots,omitempty"`   // SampleOptions.Slots
	Wait  int64      `json:"wait_ns,omitempty"` // SampleOptions.Wait
	Algo  string     `json:"algo,omitempty"`
	ISA   string     `json:"isa,omitempty"`
	Case  string     `json:"case,omitempty"`
	Back  bool       `json:"back,omitempty"` // the case is one of the backward pass
	Path  string     `json:"path,omitempty"` // of outside cases
	File  string     `json:"file,omitempty"` // of one outside case
	// Limit is the time after which the server gives a Foreign kernel up; 0 is no limit.
	Limit int64 `json:"limit_ns,omitempty"`
}

// foreign reports whether a request is about a Foreign kernel.
func (q *request) foreign() bool {
	return q.ISA == attn.Native || q.Point != nil && q.Point.ISA == attn.Native
}

// An answer is what a Server writes for a request.
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

	// A line with a Group is no answer. It tells the client that a process group has started or, if
	// Runs is false, that it has ended. A client that kills the server kills its groups, too.
	Group int  `json:"group,omitempty"`
	Runs  bool `json:"runs,omitempty"`
}

// A session is a Server at work, with what it keeps from one request to the next.
type session struct {
	*Server
	cases   []cases.Case    // all cases, made when first needed: that takes longer than most cases
	outside []cases.Outside // read for outsideOf, because a kernel leaves its outputs in them
	// outsideOf is the algorithm, the instruction set and the path of the cases in outside.
	outsideOf [3]string
}

// Serve answers requests, one JSON value a line, until in ends.
func (s *Server) Serve(in io.Reader, out io.Writer) error {
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
	var mu sync.Mutex
	answers := json.NewEncoder(out)
	write := func(a answer) error {
		mu.Lock()
		defer mu.Unlock()
		return answers.Encode(a)
	}
	var foreign []attn.Foreign
	for _, k := range s.Kernels {
		if f, ok := k.(attn.Foreign); ok {
			f.Watch(func(group int, runs bool) { _ = write(answer{Group: group, Runs: runs}) })
			foreign = append(foreign, f)
		}
	}
	at := &session{Server: s}
	for q := range requests {
		for _, k := range foreign {
			k.Within(time.Duration(q.Limit))
		}
		if err := write(at.answer(q)); err != nil {
			return err
		}
	}
	if errors.Is(broken, io.EOF) {
		return nil
	}
	return broken
}

func (s *session) answer(q request) (a answer) {
	if q.foreign() {
		defer caught(&a)
	}
	var err error
	switch {
	case q.Do == "paths":
		a.Paths = Paths(s.Kernels)
	case q.Do == "try":
		a, err = s.try(q)
	case q.Do == "outside":
		a, err = s.tryOutside(q)
	case q.Point == nil:
		err = fmt.Errorf("request %q without a point", q.Do)
	case q.Do == "verify":
		var v oracle.Verdict
		v, err = s.verify(*q.Point)
		a = answer{Rows: v.Rows, Worst: run.Ratio(v.Worst), Note: v.Where}
	case q.Do == "weigh":
		var m Memory
		m, err = s.memory(*q.Point)
		a.Memory = &m
	case q.Do == "sample":
		var got Sample
		got, err = s.sample(*q.Point, SampleOptions{q.Hint, q.Slots, time.Duration(q.Wait)})
		a.Sample = &got
	case q.Do == "profile":
		a.Profile, err = s.profile(*q.Point)
	default:
		err = fmt.Errorf("unknown request %q", q.Do)
	}
	if err != nil {
		return failed(err)
	}
	return a
}

// failed returns the answer for an error.
func failed(err error) answer {
	a := answer{Error: err.Error()}
	if e := new(attn.RemoteError); errors.As(err, &e) {
		a.Late = e.Late
	}
	return a
}

// caught turns the panic of an attn.Remote plan into an answer. The plan's process has ended.
func caught(a *answer) {
	switch r := recover().(type) {
	case nil:
	case *attn.RemoteError:
		*a = failed(r)
	default:
		panic(r)
	}
}

// job prepares and plans a point, calls use, and closes the job.
func (s *session) job(at run.Point, use func(Job) error) (err error) {
	w, err := s.Workload(at)
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
	return use(j)
}

func (s *session) verify(at run.Point) (v oracle.Verdict, err error) {
	err = s.job(at, func(j Job) error {
		if _, err := j.Run(1); err != nil {
			return err
		}
		v, err = j.Check(rowsToCheck(at), InputSeed(at))
		return err
	})
	return v, err
}

// checkWork limits the products that the oracle computes for one point. A row of linear attention
// costs it as much as a whole call.
const checkWork = 1 << 27

// rowsToCheck returns how many rows of a point are compared with the oracle.
func rowsToCheck(at run.Point) int {
	return max(8, min(verify.Rows, checkWork/(at.SeqKV*(at.Dim+at.DimV))))
}

func (s *session) memory(at run.Point) (m Memory, err error) {
	w, err := s.Workload(at)
	if err != nil {
		return m, err
	}
	return MeasureMemory(w)
}

func (s *session) sample(at run.Point, o SampleOptions) (got Sample, err error) {
	// A collection in the middle of a sample would be timed with it.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if at.Threads == 1 {
		// Every sample runs on the same CPU, because another one may have a busier sibling thread.
		// Tuning: docs/tuning.md#one-cpu
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer pin()()
	}
	err = s.job(at, func(j Job) error {
		p := s.Probes(at)
		m := Sampler{Probe: p.ForPeak(j.Team(), s.Effort), Slots: p.ForSlots(j.Team(), s.Effort), Count: s.Count, Least: s.Effort.Sample}
		switch x := j.Updates(); {
		case len(x) > 0:
			m.Probe = p.ForUpdate(j.Team(), x, s.Effort)
		case ProbeUnit(at) == run.ProbeBytes:
			m.Probe = p.ForRead(j.Team(), j.Reads(), s.Effort)
		}
		if remote(j) != nil {
			m.Count = nil // this process only waits
		}
		got, err = m.Take(j, o)
		return err
	})
	return got, err
}

// profile runs a point under the CPU profiler.
func (s *session) profile(at run.Point) (p []byte, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	left := s.Effort.orDefault().Profile
	err = s.job(at, func(j Job) error {
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

func (s *session) try(q request) (answer, error) {
	k, err := Find(s.Kernels, q.Algo, q.ISA)
	if err != nil {
		return answer{}, err
	}
	if s.cases == nil {
		s.cases = cases.All()
	}
	for _, c := range s.cases {
		if c.String() == q.Case {
			if q.Back {
				c, _ = c.Differentiated(verify.Powers(k).Wants())
			}
			return found(verify.Try(k, c)), nil
		}
	}
	return answer{}, fmt.Errorf("there is no case %q", q.Case)
}

func (s *session) tryOutside(q request) (answer, error) {
	k, err := Find(s.Kernels, q.Algo, q.ISA)
	if err != nil {
		return answer{}, err
	}
	if of := [3]string{q.Algo, q.ISA, q.Path}; s.outsideOf != of {
		if s.outside, err = cases.ReadONNX(q.Path); err != nil {
			return answer{}, err
		}
		s.outsideOf = of
	}
	for i := range s.outside {
		if o := &s.outside[i]; o.Name == q.Case && o.File == q.File {
			return found(verify.TryOutside(k, o)), nil
		}
	}
	return answer{}, fmt.Errorf("there is no case %s in %s", q.Case, q.File)
}

// found returns the answer for a finding.
func found(f verify.Finding) answer {
	return answer{Worst: run.Ratio(f.Worst), Note: f.Note, Refused: f.Refused, Excused: f.Excused, Late: f.Late}
}
