package command

import (
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"attnlab/harness/machine"
	"attnlab/lab/survey"
)

// MachineCmd measures this machine.
type MachineCmd struct{}

// Run prints what the machine is, what it can do, and how steadily.
func (*MachineCmd) Run(to streams, lab Lab) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := machine.Fingerprint(lab.Sets.Available())
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
	surveyor := lab.surveyor()
	var doubts []string
	for _, v := range lab.Sets {
		if !v.Available {
			fmt.Fprintf(t, "%s\t%s\n", v.ISA, v.Reason)
			continue
		}
		p := surveyor.Peak(v.Ops)
		fmt.Fprintf(t, "%s\t%.4g GFLOP/s\t%.3g FLOP\t%.3g GHz\t%s\t%.2f\t%s\n", v.ISA, p.Flop/1e9, p.PerCycle, p.Clock/1e9, machine.Percent(p.Drift), p.Slots, machine.Percent(p.Shared))
		if p.Doubt != "" {
			doubts = append(doubts, v.ISA+" peak unreliable: "+p.Doubt)
		}
	}
	for _, d := range doubts {
		fmt.Fprintln(t, d)
	}
	fmt.Fprintln(t, "\nMEMORY\tSIZE\tREAD\tDRIFT\tUPDATE\tDRIFT")
	for _, m := range surveyor.Memory(f.Caches) {
		fmt.Fprintf(t, "%s (%s)\t%s\t%.3g GB/s\t%s\t%.3g GB/s\t%s\n", m.Level, m.ISA, binary(m.Bytes),
			m.Read.PerSecond/1e9, machine.Percent(m.Read.Drift), m.Update.PerSecond/1e9, machine.Percent(m.Update.Drift))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(to.Out, "\ninterruptions: %v\n", machine.Watch())
	if share, ok := survey.Stolen(); ok {
		fmt.Fprintf(to.Out, "stolen by the hypervisor since the machine started: %s\n", machine.Percent(share))
	}
	return nil
}

// binary formats a number of bytes in units of 1024.
func binary(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
}
