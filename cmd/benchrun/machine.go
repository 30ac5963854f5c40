package main

import (
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"attnlab/attn"
	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/kernels/asm"
)

// MachineCmd measures this machine.
type MachineCmd struct{}

// Run prints what the machine is, what it can do, and how steadily.
func (*MachineCmd) Run(to streams) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := machine.Fingerprint(availableISAs())
	t := tabwriter.NewWriter(to.Out, 0, 0, 2, ' ', 0)
	row := func(name string, v any) {
		if s := fmt.Sprint(v); s != "" && s != "0" {
			fmt.Fprintf(t, "%s\t%s\n", name, s)
		}
	}
	row("cpu", f.CPU)
	row("cores", f.Cores)
	row("cpus", f.CPUs)
	for _, c := range f.Caches {
		row(c.Name, binary(c.Bytes))
	}
	if f.RAM > 0 {
		row("memory", binary(f.RAM))
	}
	if n, ok := machine.Available(); ok {
		row("available", binary(n))
	}
	row("os", strings.TrimSpace(f.OS+"/"+f.Arch+" "+f.Kernel))
	row("hypervisor", f.Hypervisor)
	row("governor", f.Governor)
	row("turbo", f.Turbo)
	row("smt", f.SMT)
	row("large pages", f.LargePages)
	_, counters, err := machine.Counters()
	row("counters", machine.DescribeCounters(counters, err))
	row("go", strings.TrimSpace(f.Go+" "+f.GOAMD64))
	fmt.Fprintln(t, "\nISA\tPEAK\tPER CYCLE\tCLOCK\tDRIFT\tSLOTS\tSHARED")
	var doubts []string
	for _, v := range asm.Levels() {
		if !v.Available {
			fmt.Fprintf(t, "%s\t%s\n", v.ISA, v.Reason)
			continue
		}
		p, limit, drift := peak(v.Ops)
		fmt.Fprintf(t, "%s\t%.4g GFLOP/s\t%.3g FLOP\t%.3g GHz\t%s\t%.2f\t%s\n", v.ISA, p.Flop/1e9, p.PerCycle, limit.Clock/1e9, machine.Percent(drift), limit.Slots, machine.Percent(limit.Shared))
		if p.Doubt != "" {
			doubts = append(doubts, v.ISA+" peak unreliable: "+p.Doubt)
		}
	}
	for _, d := range doubts {
		fmt.Fprintln(t, d)
	}
	fmt.Fprintln(t, "\nMEMORY\tREAD\tBANDWIDTH\tDRIFT")
	for _, m := range memories(f.Caches) {
		x := attn.Alloc[float32](int(m.Bytes / 4))
		for i := range x {
			x[i] = 1 // resident, and not the one zero page
		}
		for _, v := range asm.Levels() {
			if !v.Available {
				continue
			}
			rate, drift := machine.Drift(readings(harness.Probes{Peak: v.Ops.Probe.Peak, Read: v.Ops.Streamed.Probe.Read}.ForRead(nil, x)))
			fmt.Fprintf(t, "%s (%s)\t%s\t%.3g GB/s\t%s\n", m.Name, v.ISA, binary(m.Bytes), rate/1e9, machine.Percent(drift))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(to.Out, "\ninterruptions: %v\n", machine.Watch())
	if u, ok := machine.ReadUsage(); ok {
		var never machine.Usage
		fmt.Fprintf(to.Out, "stolen by the hypervisor since the machine started: %s\n", machine.Percent(never.Stolen(u)))
	}
	return nil
}

// peak measures the peak of one instruction set, and how much it drifts.
func peak(o *asm.Ops) (run.Peak, machine.Limit, float64) {
	rate, drift := machine.Drift(readings(harness.Probes{Peak: o.Probe.Peak, Read: o.Probe.Read}.ForPeak(nil)))
	p := &o.Probe
	l := machine.Against(p.PeakWidth, p.Peak, p.Chain, p.Slots, peakTries)
	return run.Peak{ISA: o.ISA, Flop: rate, PerCycle: l.PerCycle, Doubt: l.Doubt, Slots: l.Slots}, l, drift
}

// A rate is read up to readingCount times, within readingTime if it is a slow one, to say how much
// it drifts, and a peak is held against the clock peakTries times. Every run begins with these;
// tests, which are about other things, have it take less of them.
var (
	readingCount = 25
	peakTries    = machine.Tries
)

const readingTime = 300 * time.Millisecond

func readings(p harness.Probe) []float64 {
	p() // finds its length
	var rates []float64
	for begun := time.Now(); len(rates) < readingCount && (len(rates) < 3 || time.Since(begun) < readingTime); {
		rates = append(rates, p())
	}
	return rates
}

// unreported is a cache behind which memory surely lies: hypervisors hide those that processors
// share.
const unreported = 64 << 20

// memories are sizes that lie well inside one level each: half of a cache, and several times the
// largest for what is behind them, as far as a quarter of the available memory allows.
func memories(caches []run.Cache) []run.Cache {
	var levels []run.Cache
	largest := int64(unreported)
	for _, c := range caches {
		levels = append(levels, run.Cache{Name: c.Name, Bytes: c.Bytes / 2})
		largest = max(largest, c.Bytes)
	}
	behind := min(4*largest, 1<<30)
	if n, ok := machine.Available(); ok {
		behind = min(behind, n/4)
	}
	if behind > largest {
		levels = append(levels, run.Cache{Name: "memory", Bytes: behind})
	}
	return levels
}

// quiet measures, in a moment, the peak of every instruction set and how steady the machine is, for
// run.json.
func quiet() ([]run.Peak, map[string]string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var peaks []run.Peak
	noise := map[string]string{}
	for _, v := range asm.Levels() {
		if !v.Available {
			continue
		}
		p, limit, drift := peak(v.Ops)
		peaks = append(peaks, p)
		noise["drift of the "+v.ISA+" probe"] = machine.Percent(drift)
		noise["core shared with others, by the "+v.ISA+" probe"] = machine.Percent(limit.Shared)
	}
	noise["interruptions"] = machine.Watch().String()
	if u, ok := machine.ReadUsage(); ok {
		var never machine.Usage
		noise["stolen since the machine started"] = machine.Percent(never.Stolen(u))
	}
	return peaks, noise
}

// binary formats a size that is a power of two or near one.
func binary(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
}
