package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"text/tabwriter"
	"time"

	"attnlab/harness"
	"attnlab/harness/ab"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/harness/study"
	"attnlab/lab/survey"
)

// DoctorCmd finds out how far comparisons on this machine can be trusted.
type DoctorCmd struct {
	MinEffect float64 `name:"min-effect" default:"0.02" placeholder:"X" help:"Least difference that matters, as in ab (${default})."`
	Alpha     float64 `default:"0.05" placeholder:"P" help:"Chance of a false alarm, as in ab (${default})."`
	Rounds    int     `default:"40" placeholder:"N" help:"Rounds of each study, of four samples each (${default})."`
	Seed      uint64  `default:"1" placeholder:"N" help:"Seed of the order of measurements (${default})."`
	JSON      bool    `name:"json" help:"Write JSON instead of text."`
}

// Help is printed above the flags.
func (*DoctorCmd) Help() string {
	return `Measures how far comparisons on this machine can be trusted. It compares the same code with itself, as ab would compare two sides: once for
a kernel bound by arithmetic, once for one bound by memory. It reports

- how often ab would call the same code different;

- how small a slowdown ab would catch;

- how far the least times of the same code lie apart: the floor.

Later runs know these floors, and no run of ab or gate reports a difference below them. Later runs also know how many instructions a core begins in a
cycle when it runs a single thread, and so when another thread used the core. Both are kept in the user's cache folder and in run.json.

At the end it says what disturbs measurements here, and what to do about it.`
}

// Run studies and advises.
func (c *DoctorCmd) Run(to streams, lab Lab) error {
	if !(c.MinEffect > 0) || !(c.Alpha > 0 && c.Alpha < 1) || c.Rounds < 1 {
		return exitf(exitUsage, "--min-effect %v --alpha %v --rounds %d: want an effect above 0, a chance between 0 and 1, and 1 round or more", c.MinEffect, c.Alpha, c.Rounds)
	}
	measured, surveyor := lab.server(), lab.surveyor()
	isas := lab.Sets.Available()
	best := isas[len(isas)-1]
	ctx, stop, release := interruptible(to.Err)
	defer release()
	tell, done := newProgress(to.Err)
	d := survey.Diagnosis{Machine: machine.Fingerprint(isas), Time: time.Now().UTC().Truncate(time.Second), Slots: map[string]float64{}}
	if old, err := survey.Diagnosed(isas); err == nil {
		maps.Copy(d.Slots, old.Slots)
	}
	d.Look(surveyor)
	before, had := machine.ReadUsage()
	var failed error
	for _, at := range []run.Point{
		{Kernel: "flash", ISA: best, SeqKV: 512, Dim: 64},
		{Kernel: "flash", ISA: best, SeqQ: 1, SeqKV: 32768, HeadsQ: 4, Dim: 64},
	} {
		client, err := newClient(time.Minute, Peers{})
		if err != nil {
			return err
		}
		defer client.Close()
		at = at.WithDefaults()
		side := func() *harness.Recorder { return &harness.Recorder{Workload: measured.Workload, Worker: client} }
		comparison := &ab.Comparison{
			Sides: [2]*harness.Recorder{side(), side()}, Cells: [][2]run.Point{{at, at}}, Effect: c.MinEffect, Alpha: c.Alpha, Seed: c.Seed, Tell: tell,
		}
		s, err := study.Run(ctx, stop, comparison, c.Rounds)
		if errors.Is(err, ctx.Err()) && err != nil {
			break
		} else if err != nil {
			failed = fmt.Errorf("%w; nothing is kept: see benchrun verify --kernel flash --isa %s, and run doctor again", err, best)
			break
		}
		if s.Rounds > 0 {
			d.Studies = append(d.Studies, s)
		}
	}
	done()
	d.Look(surveyor)
	after, has := machine.ReadUsage()
	write := writeDiagnosis
	if c.JSON {
		write = writeDiagnosisJSON
	}
	if err := write(to.Out, &d); err != nil {
		return err
	}
	if had && has && !c.JSON {
		advise(to.Out, &d, surveyor, before.Stolen(after), before.Load(after))
	}
	switch {
	case failed != nil:
		return failed
	case len(d.Studies) < 2 || d.Studies[1].Rounds < c.Rounds:
		return exitf(exitIncomplete, "interrupted: nothing is kept")
	}
	if err := d.Keep(); err != nil {
		fmt.Fprintf(to.Err, "benchrun: not kept for later runs: %v; make a cache folder that can be written to (XDG_CACHE_HOME on Linux), and run doctor again\n", err)
	}
	return nil
}

// writeDiagnosisJSON writes a diagnosis as JSON.
func writeDiagnosisJSON(out io.Writer, d *survey.Diagnosis) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "\t")
	return e.Encode(d)
}

// writeDiagnosis prints a line a study.
func writeDiagnosis(out io.Writer, d *survey.Diagnosis) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "rounds\tsingle times\tfloor\tfalse alarms\tsmallest slowdown caught\t cell\n")
	for _, s := range d.Studies {
		smallest := machine.Percent(s.Smallest)
		if s.Smallest == 0 {
			smallest = "none"
		}
		fmt.Fprintf(w, "%d\t± %s\t%s\t%s\t%s\t %s\n", s.Rounds, machine.Percent(s.Spread/2), machine.Percent(s.Floor), machine.Percent(s.FalseAlarms), smallest, s.Point.Name())
	}
	return w.Flush()
}

// advise says what disturbs measurements here, and what to do about it.
func advise(out io.Writer, d *survey.Diagnosis, surveyor *survey.Surveyor, stolen, busy float64) {
	say := func(format string, a ...any) { fmt.Fprintf(out, "- "+format+"\n", a...) }
	fmt.Fprintln(out)
	f := d.Machine
	if stolen > 0.01 {
		say("the hypervisor ran another machine for %s of the time: no setting here helps; compare with ab, which interleaves both sides, or measure on another machine", machine.Percent(stolen))
	}
	if i := machine.Watch(); i.Lost > 0.01 {
		say("a thread that only reads the clock is interrupted: %v. Each interruption cools caches, which slows a kernel more than the probe of multiply-adds: compare with ab, which interleaves both sides", i)
	}
	if p := surveyor.Peak(surveyor.Sets.For("")); p.Shared > 0.05 {
		say("another thread uses the same core in %s of short readings: samples taken meanwhile do not count for shares of the peak; leave the core's other thread idle, or measure on another machine", machine.Percent(p.Shared))
	}
	if busy > 1.3/float64(runtime.NumCPU()) {
		say("the CPUs were busy for %s of the time, and doctor needs one of %d: other work runs here; end it, or give it a CPU of its own", machine.Percent(busy), runtime.NumCPU())
	}
	if p, ok := machine.Pressure(); ok && p > 0.05 {
		say("tasks waited for a CPU for %s of the last minute: run fewer, or keep --threads below the number of CPUs", machine.Percent(p))
	}
	if f.Governor != "" && f.Governor != "performance" {
		say("the governor %s changes the clock with the load: cpupower frequency-set -g performance", f.Governor)
	}
	if f.Turbo == "on" {
		say("turbo is on: the clock depends on heat and on other cores; times vary with it, shares of the peak do not")
	}
	if f.SMT == "on" {
		say("two threads share a core: a busy sibling takes half of it; use one thread of each pair (taskset), or switch SMT off")
	}
	if f.LargePages == "never" {
		say("large pages are off; they speed up reading a long cache: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
	}
	if f.Hypervisor != "" {
		say("this is a virtual machine (%s): you control neither its clock, nor its caches, nor its neighbours", f.Hypervisor)
	}
	if _, _, err := machine.Counters(); err != nil {
		say("the CPU's counters of cycles, instructions and cache misses cannot be read: %v", err)
	}
	for _, s := range d.Studies {
		if s.Floor > 0.02 {
			say("least times of the same code lie %s apart (seqq %d): ab and gate detect no smaller effect here", machine.Percent(s.Floor), s.Point.SeqQ)
		}
	}
}
