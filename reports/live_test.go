package reports

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// serve serves a run folder, and looks at its journal often.
func serve(t *testing.T, dir string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(newLive(dir, 5*time.Millisecond))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func TestLive(t *testing.T) {
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Samples: 1})
	s := serve(t, r.Dir)
	journal := filepath.Join(r.Dir, run.JournalFile)
	whole, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, method, path, host string
		cut                      int // of the journal's end
		status                   int
		want                     string
	}{
		{"the page", "GET", "/", "", 0, 200, "The run ended"},
		{"by name", "GET", "/", "localhost:80", 0, 200, "<p id=\"live\""},
		{"on IPv6", "GET", "/", "[::1]:80", 0, 200, "connect-src 'self'"},
		{"of a line that is being written", "GET", "/", "", 20, 200, "The run is not complete yet."},
		{"of a damaged journal", "GET", "/", "", len(whole) - 20, 500, "damaged"},
		{"from elsewhere", "GET", "/", "attacker.example", 0, 403, "own machine only"},
		{"from elsewhere, by number", "GET", "/", "192.0.2.1:80", 0, 403, "own machine only"},
		{"a form", "POST", "/", "", 0, 405, ""},
		{"another path", "GET", "/run.json", "", 0, 404, ""},
		{"events since never", "GET", "/events", "", 0, 400, "seen=SIZE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := slices.Clone(whole[:len(whole)-c.cut])
			if c.status == 500 {
				data = append(data, "}\n"...)
			}
			if err := os.WriteFile(journal, data, 0o644); err != nil {
				t.Fatal(err)
			}
			ask, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			ask.Host = c.host
			answer, err := s.Client().Do(ask)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != c.status || !strings.Contains(string(body), c.want) || strings.Contains(string(body), "cut short") {
				t.Errorf("got %s, %v; %q is not in it, or a warning is: %s", answer.Status, err, c.want, body)
			}
		})
	}
}

// Events come when the journal is another than the one seen, and once.
func TestLiveEvents(t *testing.T) {
	dir := t.TempDir()
	journal := filepath.Join(dir, run.JournalFile)
	f, err := os.OpenFile(journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("four")
	s := serve(t, dir)
	answer, err := s.Client().Get(s.URL + "/events?seen=4")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for _, size := range []string{"5", "6"} {
		write("+")
		for _, want := range []string{"data: " + size, ""} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("got %q, want %q", lines.Text(), want)
			}
		}
	}
}

// A row that is appended to the journal shows up in a page that is open, and what the reader chose stays.
func TestLiveInBrowser(t *testing.T) {
	b := openTab(t)
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Samples: 6})
	s := serve(t, r.Dir)
	b.do(chromedp.Navigate(s.URL+"/"), chromedp.Click(chromedp.CSS("#points th[data-column=seq_kv] button")))
	b.do(
		chromedp.Click(chromedp.CSS("#points th[data-column=seq_kv] button")), // the longest first
		chromedp.Click(chromedp.CSS("#legend button:nth-child(1)")),           // no naive
	)
	const state = `JSON.stringify({
		same: window.same, rows: document.querySelectorAll("#points tbody tr").length, first: document.querySelector("#points tbody tr td:nth-child(9)").textContent,
		measured: document.querySelector(".card b").textContent, lines: document.querySelector("figure svg").querySelectorAll(".path").length,
		marks: document.querySelector("figure svg").querySelectorAll("[role=img]").length, focus: document.activeElement.textContent.slice(0, 5),
	})`
	ask[bool](b, "window.same = true")
	if got, want := ask[string](b, state), `{"same":true,"rows":40,"first":"2048","measured":"37 of 40","lines":4,"marks":16,"focus":"naive"}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	j, err := run.Resume(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	p := run.Point{Kernel: "flash", ISA: "go", SeqKV: 4096, Dim: 64}.WithDefaults()
	records := []run.Record{{Plan: &run.Plan{Point: p, Flop: 4e9, Bytes: 4e6}}}
	for round := range 6 {
		records = append(records, run.Record{Visit: &run.Visit{Point: p.Name(), Round: round, Calls: 1, Wall: 1e9, Before: 2e10, After: 2e10, Unit: run.ProbeFlop}})
	}
	for _, rec := range records {
		if err := j.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"same":true,"rows":41,"first":"4096","measured":"38 of 41","lines":4,"marks":17,"focus":"naive"}`
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](state+" === "+"`"+want+"`", chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(time.Minute))); err != nil {
		t.Errorf("%v: got %s\nwant %s", err, ask[string](b, state), want)
	}
	b.quiet(s.URL + "/")
}
