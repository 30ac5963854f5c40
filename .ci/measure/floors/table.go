package main

import "attnlab/harness/run"

// table returns the floors. Shares are of what the probes of the same instruction set reached just
// before and after each sample.
func table() []floor {
	of := func(kernel, isa, mask string, dim, from, to int) func(w *run.Row) bool {
		return func(w *run.Row) bool {
			return plain(w) && w.Kernel == kernel && w.ISA == isa && w.Mask == mask && w.Dim == dim && w.SeqQ == w.SeqKV && w.SeqQ%512 == 0 && from <= w.SeqQ && w.SeqQ <= to
		}
	}
	const long = 1 << 20
	floors := []floor{
		{what: "full, d = 64", least: .91, of: of("flash", "avx512", "full", 64, 512, 1024)},
		{what: "full, d = 64", least: .925, of: of("flash", "avx512", "full", 64, 2048, long)},
		{what: "full, d = 128", least: .92, of: of("flash", "avx512", "full", 128, 512, 1024)},
		{what: "full, d = 128", least: .94, of: of("flash", "avx512", "full", 128, 2048, long)},
		{what: "causal, d = 64", least: .855, of: of("flash", "avx512", "causal", 64, 512, 512)},
		{what: "causal, d = 64", least: .905, of: of("flash", "avx512", "causal", 64, 2048, long)},
		{what: "causal, d = 128", least: .855, of: of("flash", "avx512", "causal", 128, 512, 512)},
		{what: "causal, d = 128", least: .925, of: of("flash", "avx512", "causal", 128, 2048, long)},
		{what: "full, d = 64", least: .92, of: of("flash", "avx2", "full", 64, 2048, long)},
		{what: "full, d = 128", least: .94, of: of("flash", "avx2", "full", 128, 2048, long)},
		{what: "causal, d = 64", least: .905, of: of("flash", "avx2", "causal", 64, 2048, long)},
		{what: "causal, d = 128", least: .925, of: of("flash", "avx2", "causal", 128, 2048, long)},
		{what: "linear, full", least: .6, of: of("linear", "avx512", "full", 64, 8192, 8192)},
		{what: "linear, causal", least: .45, of: of("linear", "avx512", "causal", 64, 8192, 8192)},
	}
	over := func(what string, least float64, is func(w *run.Row) bool, base func(p *run.Point)) {
		floors = append(floors, floor{what: what, least: least, base: base, of: func(w *run.Row) bool { return w.Kernel == "flash" && w.SeqQ > 1 && is(w) }})
	}
	odd := func(n, beside int) {
		over("odd lengths over even ones", .94, func(w *run.Row) bool { return w.SeqQ == n }, func(p *run.Point) { p.SeqQ, p.SeqKV = beside, beside })
	}
	odd(2047, 2048)
	odd(2049, 2048)
	odd(4093, 4096)
	dim := func(least float64, d, beside int) {
		over("other d over usual ones", least, func(w *run.Row) bool { return w.Dim == d }, func(p *run.Point) { p.Dim, p.DimV = beside, beside })
	}
	dim(.8, 40, 64)
	dim(.92, 80, 64)
	dim(.92, 96, 64)
	dim(.92, 112, 64)
	dim(.95, 256, 128)
	over("layouts over bhsd", .97, func(w *run.Row) bool { return w.Layout != "bhsd" }, func(p *run.Point) { p.Layout = "bhsd" })
	data := func(least float64, name string) {
		over("extreme scores over normal ones", least, func(w *run.Row) bool { return w.Data == name }, func(p *run.Point) { p.Data = "normal" })
	}
	data(.9, "std30")
	data(.5, "rising")
	over("two threads over one", .95, func(w *run.Row) bool { return w.Threads == 2 }, func(p *run.Point) { p.Threads = 1 })

	decoding := func(w *run.Row) bool { return w.Kernel == "flash" && w.SeqQ == 1 && w.SeqKV >= 32768 }
	floors = append(floors, floor{what: "decoding, of the bandwidth", least: .92, of: func(w *run.Row) bool { return decoding(w) && w.HeadsKV == w.HeadsQ }})
	shared := func(least float64, isa string) {
		floors = append(floors, floor{
			what: "speed of 8 queries a key head over that of 8 key heads", least: least, speed: true,
			of:   func(w *run.Row) bool { return decoding(w) && w.ISA == isa && w.HeadsQ == 8 && w.HeadsKV == 1 },
			base: func(p *run.Point) { p.HeadsKV = 8 },
		})
	}
	shared(5, "avx512")
	shared(3.5, "avx2")
	return floors
}

// plain reports whether a row is a forward call on one thread, with the features that its op always
// has and no others.
func plain(w *run.Row) bool {
	features := (run.Point{Op: w.Op}).WithDefaults().Features
	return w.Layout == "bhsd" && w.Data == "normal" && w.Features == features && w.Store == "f32" && w.Threads == 1 && w.Pass == "forward" && w.HeadsKV == w.HeadsQ && w.Layer == ""
}
