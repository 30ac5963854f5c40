package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"

	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
)

// DoctorCmd finds out what comparisons are worth on this machine.
type DoctorCmd struct {
	MinEffect float64 `name:"min-effect" default:"0.02" placeholder:"X" help:"Least difference that matters, as in ab (${default})."`
	Alpha     float64 `default:"0.05" placeholder:"P" help:"Chance of a false alarm, as in ab (${default})."`
	Rounds    int     `default:"40" placeholder:"N" help:"Rounds of each study, of four samples each (${default})."`
	Seed      uint64  `default:"1" placeholder:"N" help:"Of the order of measurements (${default})."`
	JSON      bool    `name:"json" help:"Write JSON instead of text."`
}

// Help is printed above the flags.
func (*DoctorCmd) Help() string {
	return `Runs the same code on both sides of a comparison, as ab would, for a kernel bound by arithmetic and for one bound by memory, and says how often ab would
call it different, how small a slowdown it would catch, and how far the least times of the same code lie apart: the floor. It also finds how many instructions
a core begins in a cycle when nobody else runs on it, by which later runs know that somebody does. What it finds is kept in the user's cache folder and in
run.json of later runs; neither ab nor gate calls anything different that is nearer than the floor. Then it says what disturbs measurements here, and
what to do about it.`
}

// A diagnosis is what a doctor keeps.
type diagnosis struct {
	Machine run.Fingerprint `json:"machine"`
	Time    time.Time       `json:"time"`
	Studies []harness.Study `json:"studies"`

	Slots map[string]float64 `json:"slots,omitempty"` // the most instructions that were begun in a cycle, by the probe of an instruction set
}

// doctorFile is where it is kept.
func doctorFile() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "attnlab", "doctor.json"), err
}

// diagnosed is what a doctor has found on this machine, nothing without one.
func diagnosed() (d diagnosis, err error) {
	path, err := doctorFile()
	if err != nil {
		return d, nil // no cache folder
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	} else if err != nil {
		return d, err
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return diagnosis{}, fmt.Errorf("%s: %w; run benchrun doctor again", path, err)
	}
	if len(d.Machine.Differences(machine.Fingerprint(availableISAs()))) > 0 {
		return diagnosis{}, nil
	}
	return d, nil
}

// floors are those of points bound by arithmetic and of points bound by memory, by the unit of
// their probe; nil is not known.
func (d *diagnosis) floors() map[string]float64 {
	var floors map[string]float64
	for _, s := range d.Studies {
		if floors == nil {
			floors = map[string]float64{}
		}
		unit := harness.ProbeUnit(s.Point)
		floors[unit] = max(floors[unit], s.Floor)
	}
	return floors
}

// look measures how many instructions a cycle begins, and keeps the most: while somebody runs on
// the core all the time, no look shows it.
func (d *diagnosis) look() {
	for _, v := range asm.Levels() {
		if v.Available {
			_, l, _ := peak(v.Ops)
			d.Slots[v.ISA] = max(d.Slots[v.ISA], l.Slots)
		}
	}
}

// Run studies and advises.
func (c *DoctorCmd) Run(to streams, all kernelList) error {
	if !(c.MinEffect > 0) || !(c.Alpha > 0 && c.Alpha < 1) || c.Rounds < 1 {
		return exitf(exitUsage, "--min-effect %v --alpha %v --rounds %d: want an effect above 0, a chance between 0 and 1, and 1 round or more", c.MinEffect, c.Alpha, c.Rounds)
	}
	lab := newLab(all)
	isas := availableISAs()
	best := isas[len(isas)-1]
	ctx, stop, release := interruptible(to.Err)
	defer release()
	tell, done := newProgress(to.Err)
	d := diagnosis{Machine: machine.Fingerprint(isas), Time: time.Now().UTC().Truncate(time.Second), Slots: map[string]float64{}}
	if old, err := diagnosed(); err == nil {
		maps.Copy(d.Slots, old.Slots)
	}
	d.look()
	before, had := machine.ReadUsage()
	var failed error
	for _, at := range []run.Point{
		{Kernel: "flash", ISA: best, SeqKV: 512, Dim: 64},
		{Kernel: "flash", ISA: best, SeqQ: 1, SeqKV: 32768, HeadsQ: 4, Dim: 64},
	} {
		child, err := newChild(time.Minute, Peers{})
		if err != nil {
			return err
		}
		defer child.Close()
		at = at.WithDefaults()
		ab := &harness.AB{
			Sides: [2]harness.Worker{child, child}, Lab: lab, Cells: [][2]run.Point{{at, at}}, Effect: c.MinEffect, Alpha: c.Alpha, Seed: c.Seed, Tell: tell,
		}
		s, err := ab.Study(ctx, stop, c.Rounds)
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
	d.look()
	after, has := machine.ReadUsage()
	write := d.print
	if c.JSON {
		write = d.json
	}
	if err := write(to.Out); err != nil {
		return err
	}
	if had && has && !c.JSON {
		d.advise(to.Out, before.Stolen(after), before.Load(after))
	}
	switch {
	case failed != nil:
		return failed
	case len(d.Studies) < 2 || d.Studies[1].Rounds < c.Rounds:
		return exitf(exitIncomplete, "interrupted: nothing is kept")
	}
	if err := d.keep(); err != nil {
		fmt.Fprintf(to.Err, "benchrun: not kept for later runs: %v; make a cache folder that can be written to (XDG_CACHE_HOME on Linux), and run doctor again\n", err)
	}
	return nil
}

// keep writes the diagnosis where ab finds it.
func (d *diagnosis) keep() error {
	path, err := doctorFile()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(d, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return run.Replace(path, b)
}

func (d *diagnosis) json(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "\t")
	return e.Encode(d)
}

func (d *diagnosis) print(out io.Writer) error {
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

// advise says what disturbs measurements here and what to do about it.
func (d *diagnosis) advise(out io.Writer, stolen, busy float64) {
	say := func(format string, a ...any) { fmt.Fprintf(out, "- "+format+"\n", a...) }
	fmt.Fprintln(out)
	f := d.Machine
	if stolen > 0.01 {
		say("the hypervisor ran somebody else for %s of the time: no setting here helps; measure by turns (ab), or on another machine", machine.Percent(stolen))
	}
	if i := machine.Watch(); i.Lost > 0.01 {
		say("a thread that only looks at the clock is interrupted: %v. Caches are colder after each, which a kernel feels more than the probe of multiply-adds: measure by turns (ab)", i)
	}
	if _, l, _ := peak(probed(asm.Levels(), run.Point{})); l.Shared > 0.05 {
		say("somebody else runs on the same core in %s of short readings, and takes its part of the instructions that it begins in a cycle: samples beside it are left out of shares of the peak; leave the core's other thread idle, or measure on another machine", machine.Percent(l.Shared))
	}
	if busy > 1.3/float64(runtime.NumCPU()) {
		say("the processors were busy for %s of the time, and this needs one of %d: other work runs here; end it, or leave it a CPU of its own", machine.Percent(busy), runtime.NumCPU())
	}
	if p, ok := machine.Pressure(); ok && p > 0.05 {
		say("tasks waited for a CPU for %s of the last minute: fewer of them, or --threads below the number of CPUs", machine.Percent(p))
	}
	if f.Governor != "" && f.Governor != "performance" {
		say("the governor is %s, which changes the clock as it sees fit: cpupower frequency-set -g performance", f.Governor)
	}
	if f.Turbo == "on" {
		say("turbo is on: the clock depends on heat and on neighbours; shares of the peak are measured against it, times are not")
	}
	if f.SMT == "on" {
		say("two threads share a core: a neighbour takes half of it; pin to one of each pair (taskset), or switch SMT off")
	}
	if f.LargePages == "never" {
		say("the system gives nobody large pages, with which long caches are read faster: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
	}
	if f.Hypervisor != "" {
		say("this is a virtual machine (%s): clock, caches and neighbours are not in your hands", f.Hypervisor)
	}
	if _, _, err := machine.Counters(); err != nil {
		say("the CPU's counters of cycles, instructions and cache misses cannot be read: %v", err)
	}
	for _, s := range d.Studies {
		if s.Floor > 0.02 {
			say("least times of the same code lie %s apart (seqq %d): an effect below that cannot be told here", machine.Percent(s.Floor), s.Point.SeqQ)
		}
	}
}
