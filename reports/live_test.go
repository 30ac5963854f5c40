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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// serve serves a run folder, and checks its journal often.
func serve(t *testing.T, dir string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(newLive(dir, 5*time.Millisecond).handler())
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// TestLive checks what is served, and what is refused.
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
		header                   string
	}{
		{"the page", "GET", "/", "", 0, 200, "The run ended", ""},
		{"by name", "GET", "/", "localhost:80", 0, 200, "<p id=\"live\"", ""},
		{"on IPv6", "GET", "/", "[::1]:80", 0, 200, "connect-src 'self'", ""},
		{"of a line that is being written", "GET", "/", "", 20, 200, "The run is not complete yet.", ""},
		{"of a damaged journal", "GET", "/", "", len(whole) - 20, 500, "damaged", ""},
		{"from elsewhere", "GET", "/", "attacker.example", 0, 403, "own machine only", ""},
		{"from elsewhere, by number", "GET", "/", "192.0.2.1:80", 0, 403, "own machine only", ""},
		{"a form", "POST", "/", "", 0, 405, "", ""},
		{"another path", "GET", "/run.json", "", 0, 404, "", ""},
		{"events since never", "GET", "/events", "", 0, 400, "seen=VERSION", ""},
		{"typed into a browser", "GET", "/", "", 0, 200, "The run ended", "Sec-Fetch-Site: none"},
		{"by its own page", "GET", "/", "", 0, 200, "The run ended", "Sec-Fetch-Site: same-origin"},
		{"by its own page, as of a form", "GET", "/", "127.0.0.1:80", 0, 200, "The run ended", "Origin: http://127.0.0.1:80"},
		{"by another site", "GET", "/", "", 0, 403, "a page of another site", "Sec-Fetch-Site: cross-site"},
		{"by another port", "GET", "/", "", 0, 403, "a page of another site", "Sec-Fetch-Site: same-site"},
		{"by another origin", "GET", "/", "127.0.0.1:80", 0, 403, "a page of another site", "Origin: http://127.0.0.1:81"},
		{"by a page without an origin", "GET", "/", "", 0, 403, "a page of another site", "Origin: null"},
		{"events for another site", "GET", "/events?seen=1", "", 0, 403, "a page of another site", "Sec-Fetch-Site: cross-site"},
		{"another site's form", "POST", "/", "", 0, 403, "a page of another site", "Origin: https://attacker.example"},
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
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				ask.Header.Set(name, value)
			}
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

// TestLiveOnce checks that a page is made once for each change of the run, for any number of
// requests.
func TestLiveOnce(t *testing.T) {
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Samples: 1, Masks: []string{"full"}})
	l := newLive(r.Dir, time.Hour)
	var made atomic.Int32
	l.make = func(version string) ([]byte, error) {
		made.Add(1)
		return l.render(version)
	}
	s := httptest.NewServer(l.handler())
	defer s.Close()
	get := func() (string, error) {
		answer, err := s.Client().Get(s.URL)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return string(body), err
	}
	j, err := run.Resume(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	shown := map[string]bool{}
	for round, change := range []func() error{
		func() error { return nil },
		func() error { return j.Append(run.Record{End: &run.End{Reason: "more"}}) },
		func() error { m := r.Meta; m.Seed++; return run.WriteMeta(r.Dir, m) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		var pages [60]string
		var all sync.WaitGroup
		for i := range pages {
			all.Go(func() {
				page, err := get()
				if err != nil {
					t.Error(err)
				}
				pages[i] = page
			})
		}
		all.Wait()
		for _, page := range pages {
			if page != pages[0] || shown[page] {
				t.Fatalf("change %d: requests have different pages, or an old one", round)
			}
		}
		shown[pages[0]] = true
		if got := int(made.Load()); got != round+1 {
			t.Errorf("change %d: %d pages were made for 60 requests, want 1", round, got-round)
		}
	}
}

// TestLiveWhileItGrows checks that requests that wait while the run grows share one new page.
func TestLiveWhileItGrows(t *testing.T) {
	r := runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{Samples: 1, Masks: []string{"full"}})
	l := newLive(r.Dir, time.Hour)
	made := 0
	l.make = func(version string) ([]byte, error) {
		made++
		// The journal changes while each page is made.
		err := os.Truncate(filepath.Join(r.Dir, run.JournalFile), int64(made))
		return []byte(version), err
	}
	asked := time.Now()
	for range 5 {
		if _, err := l.current(asked); err != nil {
			t.Fatal(err)
		}
	}
	if made != 1 {
		t.Errorf("%d pages were made for requests that came before the first of them, want 1", made)
	}
	if _, err := l.current(time.Now()); err != nil || made != 2 {
		t.Errorf("%d pages after a later request, want 2; %v", made, err)
	}
}

// TestLiveEvents checks that one event comes when the run differs from the version that was seen.
func TestLiveEvents(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{run.JournalFile, run.MetaFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("four"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := newLive(dir, 0).version()
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dir)
	answer, err := s.Client().Get(s.URL + "/events?seen=" + seen)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for i, name := range []string{run.JournalFile, run.JournalFile, run.MetaFile} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 10+i), 0o644); err != nil {
			t.Fatal(err)
		}
		// Such a write has two steps. The file is empty between them, which may cause an event.
		want, err := newLive(dir, 0).version()
		for last := ""; err == nil && last != "data: "+want; {
			for _, got := range []*string{&last, new(string)} {
				if !lines.Scan() {
					t.Fatalf("the events end: %v", lines.Err())
				}
				*got = lines.Text()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLiveInBrowser checks that a row that is appended to the journal appears in an open page, and
// that what the reader chose stays.
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
