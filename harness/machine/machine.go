// Package machine describes this machine and how quiet it is: the fingerprint of a run, available
// memory, and what disturbs a measurement. A figure that the system does not tell is absent, never
// 0.
package machine

import (
	"os"
	"runtime"
	"runtime/debug"

	"attnlab/harness/run"

	"github.com/klauspost/cpuid/v2"
)

// Fingerprint describes this machine and this build. Its argument is the instruction sets that run
// here, portable first.
func Fingerprint(isa []string) run.Fingerprint {
	cpu := &cpuid.CPU
	f := run.Fingerprint{
		CPU: cpu.BrandName, Vendor: cpu.VendorString, Family: cpu.Family, Model: cpu.Model, Stepping: cpu.Stepping,
		Cores: cpu.PhysicalCores, CPUs: runtime.NumCPU(), ISA: isa,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Hypervisor: cpu.HypervisorVendorString, Go: runtime.Version(),
	}
	f.Host, _ = os.Hostname()
	for _, c := range []struct {
		name  string
		bytes int
	}{{"L1d", cpu.Cache.L1D}, {"L2", cpu.Cache.L2}, {"L3", cpu.Cache.L3}} {
		if c.bytes > 0 {
			f.Caches = append(f.Caches, run.Cache{Name: c.name, Bytes: int64(c.bytes)})
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "GOAMD64":
				f.GOAMD64 = s.Value
			case "-tags":
				f.Tags = s.Value
			}
		}
	}
	system(&f)
	if f.CPU == "" {
		f.CPU = "unknown " + runtime.GOARCH
	}
	return f
}
