package reports

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

func htmlOf(t *testing.T, r *run.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// dataOf returns the JSON that the script of a page reads.
func dataOf(t *testing.T, page string) pageData {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<script type="application/json" id="data">`)
	text, _, end := strings.Cut(rest, "</script>")
	if !ok || !end {
		t.Fatal("the page has no data")
	}
	if strings.ContainsAny(text, "<>&") {
		t.Error("the data is not safe inside a script element")
	}
	var d pageData
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestHTMLGolden compares the page with that in testdata, without style and script.
func TestHTMLGolden(t *testing.T) {
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Drop: func(p run.Point) bool {
		return p.Kernel == "flash" && p.SeqKV == 512
	}})
	r.Meta.Peaks = []run.Peak{{ISA: "go", Flop: 5e9}, {ISA: "avx512", Flop: 2e10, PerCycle: 48, Doubt: "48 FLOP per cycle is neither 32 nor 64"}}
	page := htmlOf(t, r)
	for _, part := range []string{string(pageCSS), string(script(chartJS, reportJS))} {
		if strings.Count(page, part) != 1 {
			t.Error("the style or the script is not in the page as it is in its file")
		}
		page = strings.Replace(page, part, "", 1)
	}
	golden(t, "report.html", []byte(page))
}

// TestHTMLData checks that the data of the page is that of sweep.csv, and that each row is in one
// series of one group, at its length, unless all of its series was skipped.
func TestHTMLData(t *testing.T) {
	for name, r := range map[string]*run.Run{
		"plain": runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{}), "odd": oddRun(t), "costly": costlyRun(t),
	} {
		t.Run(name, func(t *testing.T) {
			d := dataOf(t, htmlOf(t, r))
			var b bytes.Buffer
			if err := run.WriteCSV(&b, r.Rows()); err != nil {
				t.Fatal(err)
			}
			lines, err := csv.NewReader(&b).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(append([][]string{d.Columns}, d.Rows...), lines) {
				t.Error("the rows are not those of sweep.csv")
			}
			seen := make([]int, len(d.Rows))
			for _, g := range d.Groups {
				for _, s := range g.Series {
					for _, i := range s.Rows {
						seen[i]++
					}
				}
			}
			for i, n := range seen {
				if n > 1 || n == 0 && d.Rows[i][slices.Index(d.Columns, "status")] != run.Skipped {
					t.Errorf("row %d is in %d series", i, n)
				}
			}
		})
	}
}

// TestHTMLLimits checks that the limits of the roofline come from the probes of the run.
func TestHTMLLimits(t *testing.T) {
	d := dataOf(t, htmlOf(t, oddRun(t)))
	if want := []pageLimit{{"bandwidth of one thread", 2}}; !reflect.DeepEqual(d.Bandwidths, want) || len(d.Peaks) != 0 {
		t.Errorf("decoding: got %v and %v, want %v and no peak", d.Bandwidths, d.Peaks, want)
	}
	d = dataOf(t, htmlOf(t, runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{})))
	if want := []pageLimit{{"peak of one thread", 19.95}}; !reflect.DeepEqual(d.Peaks, want) || len(d.Bandwidths) != 0 {
		t.Errorf("forward: got %v and %v, want %v and no bandwidth", d.Peaks, d.Bandwidths, want)
	}
}

// TestHTMLFastest checks that softmax and linear attention have a fastest kernel each, and that
// overlapping intervals are named.
func TestHTMLFastest(t *testing.T) {
	twin := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Masks: []string{"full"}, Slower: func(p run.Point) float64 {
		if p.Kernel == "flash" {
			return 5. / 9 // as fast as tiled on BLAS
		}
		return 1
	}})
	page := htmlOf(t, twin)
	for _, want := range []string{
		"<td>softmax</td><td>2048</td>", "times as fast as", "but their intervals overlap",
		"<td>linear go</td><td>Forward, full mask, one head, d = 64, one thread</td><td>linear</td><td>2048</td>", "<td>the only one</td>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	apart := htmlOf(t, runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Masks: []string{"full"}}))
	if !regexp.MustCompile(`<td>1\.[78]\d times as fast as flash go</td>`).MatchString(apart) {
		t.Error("tiled on BLAS is not 1.8 times as fast as flash")
	}
}

// TestHTMLLarge checks that a run of 400 rows makes a page below 2 MB, which requests nothing from
// the network.
func TestHTMLLarge(t *testing.T) {
	var masks []string
	for i := range 20 {
		masks = append(masks, fmt.Sprintf("window:%d:0", 16*(i+1)))
	}
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Masks: masks, Samples: 6})
	page := htmlOf(t, r)
	if n := len(r.Rows()); n != 400 || strings.Count(page, "<tr data-row=") != n {
		t.Errorf("%d rows, want 400, and all of them in the table", n)
	}
	if len(page) >= 2e6 {
		t.Errorf("the page has %d bytes", len(page))
	}
	page = strings.Replace(page, `"http://www.w3.org/2000/svg"`, "", 1) // a name, not an address
	for _, bad := range []string{"http://", "https://", "<link rel=\"stylesheet", " src=", "@import", "url(", "fetch(", "import("} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// TestHTMLHostile checks that texts of a run stay texts in the page.
func TestHTMLHostile(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=x onerror="alert(2)">'"&{{.}}` + "\u2028"
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{
		Samples: 6,
		Meta: func(m *run.Meta) {
			m.Machine.CPU, m.Commit.Revision, m.Command = evil, "<b>bold</b>", []string{evil}
			m.Noise = map[string]string{evil: evil}
			m.Peaks = []run.Peak{{ISA: evil, Flop: 1e9, Doubt: evil}}
		},
		Edit: func(rec *run.Record) {
			switch {
			case rec.Skip != nil:
				rec.Skip.Reason = evil
			case rec.Fail != nil:
				rec.Fail.Reason = evil
			case rec.End != nil:
				rec.End.Reason = evil
			}
		},
	})
	r.Warnings = []string{evil}
	page := htmlOf(t, r)
	d := dataOf(t, page)
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d script elements begin, want 2", n)
	}
	for _, bad := range []string{"<img", "<b>bold", "alert(1)</script>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if !strings.Contains(html.UnescapeString(page), "Warning: "+evil) {
		t.Error("the warning is not shown as it is")
	}
	if d.Peaks[0].Label != "peak of "+evil {
		t.Errorf("the data holds %q", d.Peaks[0].Label)
	}
	found := false
	for _, row := range d.Rows {
		found = found || strings.Contains(strings.Join(row, "\n"), evil)
	}
	if !found {
		t.Error("the reason is not in the data as it is")
	}
}

// TestHTMLOdd checks that no figure is invented for a run that lacks most figures, or holds
// nothing.
func TestHTMLOdd(t *testing.T) {
	j, err := run.Create(filepath.Join(t.TempDir(), "empty"), run.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, r := range []*run.Run{j.Run(), oddRun(t)} {
		page := strings.Replace(htmlOf(t, r), string(script(chartJS, reportJS)), "", 1)
		for _, bad := range []string{"NaN", "Inf", "%!", "null", "ZgotmplZ"} {
			if strings.Contains(page, bad) {
				t.Errorf("the page holds %s", bad)
			}
		}
	}
}

// TestWriteHTML checks that Write writes the page of a run.
func TestWriteHTML(t *testing.T) {
	r := oddRun(t)
	for _, name := range []string{run.HTMLFile, run.ReportFile} {
		path := filepath.Join(r.Dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Link(path, path+".old")); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(r.Dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{run.HTMLFile, run.ReportFile} {
		if old, err := os.ReadFile(filepath.Join(r.Dir, name+".old")); err != nil || len(old) > 0 {
			t.Errorf("%s was written into, not replaced: %v", name, err)
		}
	}
	got, err := os.ReadFile(filepath.Join(r.Dir, run.HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := run.Load(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != htmlOf(t, loaded) {
		t.Errorf("%s is not the page of its run", run.HTMLFile)
	}
}

// TestCards checks the verdicts on a run, and the tone of each.
func TestCards(t *testing.T) {
	spread := func(part int64) func(*run.Record) {
		return func(rec *run.Record) {
			if v := rec.Visit; v != nil && v.Round%2 == 0 {
				v.Wall += v.Wall * part / 1000
			}
		}
	}
	for _, c := range []struct {
		name  string
		model runtest.Model
		want  [4]string // tone and value
	}{
		{"plain", runtest.Model{}, [4]string{"warn 19 of 20", "good 19 of 19", " tiled blas", "good ± 0"}},
		{"failed", runtest.Model{Masks: []string{"causal"}}, [4]string{"bad 18 of 20", "good 19 of 19", " flash go", "good ± 0"}},
		{"restless", runtest.Model{Edit: spread(60)}, [4]string{"warn 19 of 20", "good 19 of 19", " tiled blas", "warn ± "}},
		{"noisy", runtest.Model{Edit: spread(300)}, [4]string{"warn 19 of 20", "good 19 of 19", " tiled blas", "bad ± "}},
		{"few samples", runtest.Model{Samples: 3}, [4]string{"warn 19 of 20", "good 19 of 19", " tiled blas", "warn unknown"}},
		{"wrong", runtest.Model{Edit: func(rec *run.Record) {
			if rec.Verify != nil && strings.Contains(rec.Verify.Point, "kernel=tiled") {
				rec.Verify.Ratio = 3
			}
		}}, [4]string{"bad 11 of 20", "bad 11 of 19", " flash go", "good ± 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.model.Masks == nil {
				c.model.Masks = []string{"full"}
			}
			r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), c.model)
			list := cards(r, r.Rows(), ending(r))
			if len(list) != len(c.want) {
				t.Fatalf("%d verdicts: %+v", len(list), list)
			}
			for i, card := range list {
				if got := card.Tone + " " + card.Value; !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("%s: got %q, want %q", card.Title, got, c.want[i])
				}
			}
		})
	}
	odd := oddRun(t)
	if got := rightCard(odd.Rows()); got.Tone != "warn" || got.Value != "unknown" {
		t.Errorf("of a run that verified nothing: %+v", got)
	}
	few := fastestOf(t, runtest.Model{Samples: 3, Masks: []string{"full"}})
	if !strings.Contains(few, " times as fast as flash go, with too few samples to tell them apart") {
		t.Errorf("of three samples: %s", few)
	}
}

func fastestOf(t *testing.T, m runtest.Model) string {
	t.Helper()
	table, _ := fastest(runtest.Make(t, filepath.Join(t.TempDir(), "run"), m).Rows())
	return fmt.Sprint(table.Lines)
}
