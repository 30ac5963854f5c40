package run

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// smallRun has one point of each kind of ending, with numbers that are easy to check by hand.
func smallRun() *Run {
	r := newRun("", Meta{Machine: Fingerprint{CPU: "Model CPU", OS: "linux", Arch: "amd64"}})
	add := func(rec Record) {
		if rec.Plan != nil {
			rec.Plan.Group = rec.Plan.Point.Group()
		}
		if err := rec.check(); err != nil {
			panic(err)
		}
		if err := r.accept(&rec); err != nil {
			panic(err)
		}
		r.add(&rec)
	}
	point := func(p Point) Point {
		p.ISA, p.Dim = "go", 64
		p = p.WithDefaults()
		add(Record{Plan: &Plan{Point: p, Flop: 4000, Bytes: 1000}})
		return p
	}
	num := func(n int64) *int64 { return &n }

	ok := point(Point{Kernel: "flash", SeqKV: 512})
	add(Record{Verify: &Verify{Point: ok.Name(), Ratio: 0.25, Rows: 4}})
	add(Record{Memory: &Memory{Point: ok.Name(), Scratch: num(0), PeakRSS: num(4096), Alloc: num(0), Allocs: num(0)}})
	for i, ns := range []int64{1000, 1010, 990, 1020, 980, 1030, 970} {
		add(Record{Visit: &Visit{
			Point: ok.Name(), Round: i, Calls: 10, Wall: 10 * ns, CPU: 5 * ns, Before: 15e9, After: 17e9, Unit: ProbeFlop, Dropped: i == 6,
		}})
	}
	few := point(Point{Kernel: "tiled", SeqKV: 512, Threads: 2})
	for i := range 2 {
		add(Record{Visit: &Visit{Point: few.Name(), Round: i, Calls: 1, Wall: 2000, CPU: 100, Before: 1e9, After: 2e9, Unit: ProbeFlop, Dropped: true}})
	}
	decode := point(Point{Kernel: "flash", SeqQ: 1, SeqKV: 512})
	add(Record{Visit: &Visit{Point: decode.Name(), Calls: 4, Wall: 8000, Before: 1e9, After: 1e9, Unit: ProbeBytes, Counts: map[string]int64{"instructions": 48, "cycles": 6}}})
	blind := point(Point{Kernel: "flash", SeqKV: 128})
	add(Record{Visit: &Visit{Point: blind.Name(), Calls: 1, Wall: 500}})
	skip := point(Point{Kernel: "naive", SeqKV: 65536})
	add(Record{Skip: &Skip{Point: skip.Name(), Reason: "needs 4.3 GB, limit 2 GB"}})
	wrong := point(Point{Kernel: "naive", SeqKV: 512})
	add(Record{Verify: &Verify{Point: wrong.Name(), Ratio: Ratio(math.Inf(1)), Rows: 4, Where: "Out[0 0 0 0]"}})
	add(Record{Visit: &Visit{Point: wrong.Name(), Calls: 1, Wall: 10}})
	crash := point(Point{Kernel: "naive", SeqKV: 1024})
	add(Record{Fail: &Fail{Point: crash.Name(), Reason: "the worker died: \"signal: killed\", at once"}})
	point(Point{Kernel: "naive", SeqKV: 2048})
	layer := point(Point{Kernel: "flash", SeqKV: 16, Layer: LayerMHA})
	for i, attention := range []int64{300, 400, 500} {
		add(Record{Visit: &Visit{
			Point: layer.Name(), Round: i, Calls: 1, Wall: 1000, CPU: 500, Before: 1e12, After: 1e12, Unit: ProbeFlop, Attention: attention, Products: 500,
		}})
	}
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what was written; -update accepts it:\n%s", path, got)
	}
}

func TestGolden(t *testing.T) {
	r := smallRun()
	var csv, bench bytes.Buffer
	if err := WriteCSV(&csv, r.Rows()); err != nil {
		t.Fatal(err)
	}
	golden(t, "sweep.csv", csv.Bytes())
	if err := r.WriteBench(&bench); err != nil {
		t.Fatal(err)
	}
	golden(t, "bench.txt", bench.Bytes())
}

// TestRow checks the figures of rows against those of a small run.
func TestRow(t *testing.T) {
	rows := smallRun().Rows()
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-12*math.Abs(want)) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	unknown := func(what string, xs ...float64) {
		t.Helper()
		for _, x := range xs {
			if Known(x) {
				t.Errorf("%s: got %v, want unknown", what, x)
			}
		}
	}
	// Seven samples: the median is 1000 ns, and the interval is from the least to the greatest. The
	// CPU time is half the wall time, so the rate of 4000 operations is half of the probes' rate.
	// The dropped sample has the shortest time.
	ok := rows[0]
	near("median", ok.Ns.Mid, 1000)
	near("lo", ok.Ns.Lo, 970)
	near("hi", ok.Ns.Hi, 1030)
	near("min", ok.NsMin, 970)
	near("gflops", ok.GFlops, 4)
	near("peak_gflops", ok.PeakGFlops, 16)
	near("peak_frac", ok.PeakShare.Mid, (4000/500./16+4000/505./16)/2)
	near("peak_frac_lo", ok.PeakShare.Lo, 4000/515./16)
	near("peak_frac_hi", ok.PeakShare.Hi, 4000/490./16)
	near("dropped", ok.Dropped, 1)
	near("gbps", ok.GBps, 1)
	near("scratch", ok.Scratch, 0)
	unknown("bandwidth", ok.BandwidthShare.Mid)

	few := rows[1]
	near("two threads", few.Ns.Mid, 2000)
	unknown("two samples", few.Ns.Lo, few.Ns.Hi, few.PeakShare.Mid, few.Scratch, few.RSS, few.Allocs, few.Err)
	if few.Status != OK || !strings.Contains(few.Note, "each of the samples") {
		t.Errorf("all samples were dropped in silence: %q, %q", few.Status, few.Note)
	}

	decode := rows[2]
	near("bandwidth", decode.BandwidthShare.Mid, 0.5)
	unknown("its interval, of one sample", decode.BandwidthShare.Lo, decode.BandwidthShare.Hi)
	unknown("peak of decode", decode.PeakShare.Mid, decode.PeakGFlops)

	unknown("no probes", rows[3].PeakShare.Mid, rows[3].PeakGFlops, rows[3].BandwidthShare.Mid)

	for i, want := range map[int][2]string{
		4: {Skipped, "limit 2 GB"}, 5: {Failed, "wrong answer: err/tol +Inf at Out"}, 6: {Failed, "the worker died"}, 7: {Skipped, "not measured"},
	} {
		w := rows[i]
		if w.Status != want[0] || !strings.Contains(w.Note, want[1]) {
			t.Errorf("row %d: %q, %q; want %q", i, w.Status, w.Note, want)
		}
		unknown("a row without a number", w.Ns.Mid, w.GFlops, w.Samples, w.Dropped)
	}
	unknown("a kernel alone", rows[0].Tokens, rows[0].AttnShare, rows[0].ProductShare, rows[0].AttnPeakShare)

	// 16 rows in 1000 ns. The attention makes 16*16*2*(64+64) operations in 0.4 of the 500 ns of
	// CPU time, which is 0.32768 of the probe's rate.
	layer := rows[8]
	near("tokens", layer.Tokens, 16e6)
	near("attention", layer.AttnShare, 0.4)
	near("products", layer.ProductShare, 0.5)
	near("peak of the attention", layer.AttnPeakShare, 0.32768)
	if want := "the attention in the layer runs at 32.8 % of the peak"; layer.Note != want {
		t.Errorf("note %q, want %q", layer.Note, want)
	}
}

// readCSV reads what WriteCSV writes.
func readCSV(t *rapid.T, r io.Reader) (rows []Row) {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil || len(lines) == 0 || !slices.Equal(lines[0], Columns()) {
		t.Fatalf("no header, or %v", err)
	}
	for _, line := range lines[1:] {
		w := Row{BandwidthShare: unknownStat, AttnPeakShare: unknown}
		for i, s := range line[:len(keyColumns)] {
			if err := keyColumns[i].Set(&w.Point, s); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range line[len(keyColumns):] {
			m := measures[i]
			if m.text != nil {
				*m.text(&w) = strings.TrimPrefix(s, "'")
				continue
			}
			*m.number(&w) = unknown
			if s == "" {
				continue
			}
			if *m.number(&w), err = strconv.ParseFloat(s, 64); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, w)
	}
	return rows
}

// TestCSVFormula checks that no text in sweep.csv begins as a formula does in a spreadsheet, and
// that numbers stay as they are.
func TestCSVFormula(t *testing.T) {
	for _, c := range []struct{ note, want string }{
		{"=1+1", "'=1+1"},
		{"+1", "'+1"},
		{"-1", "'-1"},
		{"@SUM(A1)", "'@SUM(A1)"},
		{"\t=1", "'\t=1"},
		{"\n=1", "'\n=1"},
		{"'=1", "''=1"},
		{"1=1", "1=1"},
		{" =1", " =1"},
		{"", ""},
		{"a,\"b\"\n=c|<`", "a,\"b\"\n=c|<`"},
	} {
		var b bytes.Buffer
		if err := WriteCSV(&b, []Row{{Note: c.note, Ns: Stat{Mid: -1}}}); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		at := func(column string) string { return lines[1][slices.Index(Columns(), column)] }
		if at("note") != c.want || at("ns_median") != "-1" {
			t.Errorf("%q: got %q, want %q; the number -1 became %q", c.note, at("note"), c.want, at("ns_median"))
		}
	}
}

// TestCSVRoundTrip checks that every column reads back as it was written.
func TestCSVRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) float64 {
			return rapid.OneOf(rapid.Just(unknown), rapid.Just(math.Inf(1)), rapid.Float64()).Draw(t, name)
		}
		w := Row{Point: genPoint(t)}
		v := reflect.ValueOf(&w).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch f := v.Field(i).Addr().Interface().(type) {
			case *string:
				*f = rapid.StringMatching(`[a-zé ",;\n=+@'-]*`).Draw(t, name)
			case *float64:
				*f = number(name)
			case *Stat:
				*f = Stat{number(name), number(name + ".Lo"), number(name + ".Hi")}
			}
		}
		w.BandwidthShare.Lo, w.BandwidthShare.Hi, w.AttnPeakShare = unknown, unknown, unknown
		var b bytes.Buffer
		if err := WriteCSV(&b, []Row{w}); err != nil {
			t.Fatal(err)
		}
		rows := readCSV(t, &b)
		if len(rows) != 1 {
			t.Fatalf("%d rows", len(rows))
		}
		// NaN is not equal to itself, and formats as one text.
		if got, want := fmt.Sprintf("%#v", rows[0]), fmt.Sprintf("%#v", w); got != want {
			t.Fatalf("read\n%s, wrote\n%s", got, want)
		}
	})
}

// TestBandwidthInterval checks that seven samples have an interval from the least to the greatest.
func TestBandwidthInterval(t *testing.T) {
	c := Cell{Plan: Plan{Point: Point{Kernel: "flash", SeqQ: 1, SeqKV: 512}.WithDefaults(), Bytes: 1000}, Verified: &Verify{}}
	for _, ns := range []int64{1000, 800, 1250, 1000, 1000, 1000, 1000} {
		c.Visits = append(c.Visits, Visit{Calls: 1, Wall: ns, Before: 2e9, After: 2e9, Unit: ProbeBytes})
	}
	w := c.Row()
	if b := w.BandwidthShare; math.Abs(b.Mid-0.5) > 1e-12 || math.Abs(b.Lo-0.4) > 1e-12 || math.Abs(b.Hi-0.625) > 1e-12 {
		t.Errorf("%+v of the bandwidth, want 0.5 from 0.4 to 0.625", b)
	}
}

func TestColumns(t *testing.T) {
	const want = "kernel,isa,op,pass,mask,batch,heads_q,heads_kv,seq_q,seq_kv,dim,dim_v,layout,data,features,store,page,threads,rule,heads_v,status,note," +
		"samples,ns_median,ns_lo,ns_hi,ns_min,flop,gflops,peak_gflops,peak_frac,peak_frac_lo,peak_frac_hi,bytes,gbps,bandwidth_frac," +
		"scratch_bytes,peak_rss_bytes,alloc_bytes,allocs,err_ratio,dropped,layer,tokens_s,attn_share,product_share"
	if got := strings.Join(Columns(), ","); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What benchstat's reader finds in bench.txt: every sample, each number in base units, directions,
// no configuration that varies.
func TestBenchIsRead(t *testing.T) {
	r := smallRun()
	var b bytes.Buffer
	if err := r.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	in := benchfmt.NewReader(&b, "bench.txt")
	lines := 0
	for in.Scan() {
		switch rec := in.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			p, err := ParseName(rec.Name.String())
			if err != nil {
				t.Fatal(err)
			}
			c := r.Cell(p)
			if c == nil || len(c.Visits) == 0 {
				t.Fatalf("%s was not measured", rec.Name)
			}
			if got, want := rec.GetConfig("cpu"), "Model CPU"; got != want || len(rec.Config) != 4 {
				t.Errorf("configuration %v", rec.Config)
			}
			sec, ok1 := rec.Value("sec/op")
			rate, ok2 := rec.Value("FLOP/s")
			if !ok1 || !ok2 || !(math.Abs(sec*rate-4000) <= 1e-9) {
				t.Errorf("%s: %v sec/op, %v FLOP/s", rec.Name, sec, rate)
			}
			if _, ok := rec.Value("B/s"); ok != (p.SeqQ == 1) {
				t.Errorf("%s: B/s is there: %v", rec.Name, ok)
			}
			cycles, counted := rec.Value("cycles/op")
			if n, _ := rec.Value("instructions/op"); counted != (p.SeqQ == 1) || counted && (cycles != 1.5 || n != 12) {
				t.Errorf("%s: %v cycles and %v instructions", rec.Name, cycles, n)
			}
			lines++
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	if want := 7 + 2 + 1 + 1 + 3; lines != want {
		t.Errorf("%d samples, want %d", lines, want)
	}
	u := benchfmt.UnitMetadataMap(in.Units())
	for unit, want := range map[string]int{"sec/op": -1, "FLOP/s": 1, "%peak": 1, "B/s": 1, "scratch-B": -1, "rss-B": -1, "allocs/op": -1, "tokens/s": 1, "%attention-peak": 1} {
		if got := u.GetBetter(unit); got != want {
			t.Errorf("%s: better %d, want %d", unit, got, want)
		}
	}
}

// A sample that had fewer instructions begun for it than others did, with the same loops on as many
// threads, is left out.
func TestShared(t *testing.T) {
	one := Point{Kernel: "flash", ISA: "avx2", SeqKV: 64, Dim: 64}.WithDefaults()
	two, other := one, one
	two.Threads, other.ISA = 2, "go"
	r := newRun("", Meta{Peaks: []Peak{{ISA: "avx2", Slots: 6}}})
	for _, p := range []Point{one, two, other} {
		r.add(&Record{Plan: &Plan{Point: p}})
	}
	for i, c := range []struct {
		at     Point
		slots  float64
		shared bool
	}{
		{one, 5.9, false},
		{one, 5.6, true}, // below 0.95 of the probe's 6
		{one, 0, false},  // not known
		{two, 3, false},  // the most of two threads so far
		{two, 2.8, true},
		{two, 3.2, false},
		{two, 3, true},
		{other, 4, false},
		{one, 6.5, false},
		{one, 6.1, true},
	} {
		r.add(&Record{Visit: &Visit{Point: c.at.Name(), Calls: 1, Wall: 1, Slots: c.slots}})
		v := r.Cell(c.at).Visits
		if got := v[len(v)-1]; got.Shared != c.shared || got.Dropped != c.shared {
			t.Errorf("visit %d: %+v, shared: want %v", i, got, c.shared)
		}
	}
	r = newRun("", Meta{Peaks: []Peak{{ISA: "avx2", Slots: 6}}})
	r.add(&Record{Plan: &Plan{Point: one, Flop: 1}})
	r.add(&Record{Visit: &Visit{Point: one.Name(), Calls: 1, Wall: 1, Before: 1, After: 1, Unit: ProbeFlop, Slots: 3}})
	r.add(&Record{Visit: &Visit{Point: one.Name(), Calls: 1, Wall: 1, Before: 1, After: 2, Unit: ProbeFlop, Slots: 6, Dropped: true}})
	if w := r.Rows()[0]; w.Dropped != 2 || Known(w.PeakShare.Mid) || !strings.Contains(w.Note, "another thread ran on the same core during each of the samples") {
		t.Errorf("%+v", w)
	}
}
