package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"attnlab/harness/history"
	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// keptRuns returns two machines. One has 24 runs: flash at 512 steps down by a tenth at run 9, and
// naive at 256 steps up by a quarter at run 15, where the Go version changes. The other has two
// runs.
func keptRuns(t *testing.T) []*history.Machine {
	t.Helper()
	dir := t.TempDir()
	keep := func(machine string, n int) {
		runtest.Make(t, filepath.Join(dir, machine, fmt.Sprint("run", n)), runtest.Model{
			Seed: uint64(n), Samples: 1, Masks: []string{"full"},
			Meta: func(m *run.Meta) {
				m.Commit = run.Commit{Revision: fmt.Sprintf("%012x", 0xabc000+n)}
				m.Started = m.Started.Add(time.Duration(n) * 24 * time.Hour)
				if n >= 15 {
					m.Machine.Go = "go1.27"
				}
			},
			Slower: func(p run.Point) float64 {
				switch {
				case p.Kernel == "flash" && p.SeqKV == 512 && n >= 9:
					return 1 / 0.9
				case p.Kernel == "naive" && p.SeqKV == 256 && n >= 15:
					return 1 / 1.25
				}
				return 1
			},
		})
	}
	for n := range 24 {
		keep("big", n)
	}
	keep("small & <odd>", 0)
	keep("small & <odd>", 1)
	machines, _, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return machines
}

func historyOf(t *testing.T, machines []*history.Machine) string {
	t.Helper()
	var b bytes.Buffer
	if err := History(&b, machines); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestHistory checks that the page names the cells with a step without a script, and has every
// series.
func TestHistory(t *testing.T) {
	machines := keptRuns(t)
	page := historyOf(t, machines)
	for _, want := range []string{
		"<b>24</b> <span>000000abc000 of 2026-01-02 to 000000abc017 of 2026-01-25.</span>",
		"<dt>Steps down</dt><dd><b>1</b>", "<dt>Steps up</dt><dd><b>1</b>", "<b>18 of 20</b>",
		"<td>flash go, forward, full mask, one head, d = 64, one thread, seq 512</td><td>000000abc009</td><td>2026-01-11</td><td>000000abc008</td>", "Go is go1.27, was go1.26",
		"17 are the fewest that can show a step", "small &amp; &lt;odd&gt;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Index(page, "naive go, forward") > strings.Index(page, "flash go, forward") {
		t.Error("the newest step is not the first")
	}
	for _, bad := range []string{"http://", "https://", " src=", "fetch(", "<odd>", "ZgotmplZ"} {
		if strings.Contains(strings.Replace(page, `"http://www.w3.org/2000/svg"`, "", 1), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	_, rest, _ := strings.Cut(page, `id="data">`)
	text, _, _ := strings.Cut(rest, "</script>")
	var data []trendMachine
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	for i, m := range machines {
		values := 0
		for _, c := range m.Cells {
			values += len(c.Values)
		}
		for _, c := range data[i].Cells {
			values -= len(c.Values)
		}
		if values != 0 || len(data[i].Runs) != len(m.Runs) {
			t.Errorf("%s: %d values are missing, and the runs are %d", m.Name, values, len(data[i].Runs))
		}
	}
}

// TestHistoryOfPaths checks that the page shows a kernel on two paths as two trends, and names the
// run where the second begins.
func TestHistoryOfPaths(t *testing.T) {
	dir := t.TempDir()
	for n, path := range []string{"x", "y"} {
		runtest.Make(t, filepath.Join(dir, "m", fmt.Sprint(n)), runtest.Model{Samples: 1, Masks: []string{"full"}, Meta: func(m *run.Meta) {
			m.Started, m.Paths = m.Started.AddDate(0, 0, n), run.Paths{"flash/go": path}
		}})
	}
	machines, _, err := history.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	page := historyOf(t, machines)
	for want, n := range map[string]int{
		"flash/go took the path y, x before: another kernel": 1, `seq 512, path x"`: 1, `seq 512, path y"`: 1, `, path `: 8,
	} {
		if strings.Count(page, want) != n {
			t.Errorf("the page has %q %d times, want %d", want, strings.Count(page, want), n)
		}
	}
}

// TestHistoryInBrowser checks the page of trends in a browser.
func TestHistoryInBrowser(t *testing.T) {
	b := openTab(t)
	address := b.open(historyOf(t, keptRuns(t)))
	const state = `JSON.stringify([document.getElementById("problem").textContent, ...["figure", "figure [role=img]", "line.step", "line.slower"].map((s) => document.querySelectorAll(s).length)])`
	for _, c := range []struct {
		do   []chromedp.Action[chromedp.Void]
		want string
	}{
		{nil, `["2 of 38 cells",2,48,2,1]`}, // naive has no numbers at the greatest length
		{[]chromedp.Action[chromedp.Void]{chromedp.Click(chromedp.CSS("#stepped"))}, `["38 of 38 cells",38,494,2,1]`},
		{[]chromedp.Action[chromedp.Void]{chromedp.KeyEvent(" ")}, `["2 of 38 cells",2,48,2,1]`},
		{[]chromedp.Action[chromedp.Void]{chromedp.KeyEvent(" ")}, `["38 of 38 cells",38,494,2,1]`},
		{[]chromedp.Action[chromedp.Void]{chromedp.Focus(chromedp.CSS("#filters select")), chromedp.KeyEvent(kb.ArrowDown)}, `["19 of 38 cells",19,456,2,1]`},
		{[]chromedp.Action[chromedp.Void]{chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.ArrowDown)}, `["3 of 38 cells",3,72,1,0]`},
	} {
		b.do(c.do...)
		if got := ask[string](b, state); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if got := ask[string](b, `document.querySelector("figure text.faster").textContent`); !strings.HasPrefix(got, "+2") {
		t.Errorf("the step up says %q", got)
	}
	b.do(chromedp.Focus(chromedp.CSS("figure [role=img]")), chromedp.KeyEvent(kb.ArrowRight))
	if got := ask[string](b, `document.getElementById("tip").textContent`); !strings.HasPrefix(got, "000000abc001, 2026-01-03\nshare of the peak: ") {
		t.Errorf("the second mark says %q", got)
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	for _, scheme := range []string{"light", "dark"} {
		b.media("", scheme)
		b.legible("h1", ".card b", ".card span", "figure svg text", "text.faster", "td", "#filters label")
	}
	b.pictures("history")
	b.quiet(address)
}
