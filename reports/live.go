package reports

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"attnlab/harness/run"
)

// livePause is how often a served run is checked for changes. A page costs CPU time that the run
// itself may need.
const livePause = 2 * time.Second

// A live serves the report of one run folder.
type live struct {
	dir   string
	pause time.Duration
	make  func(version string) ([]byte, error)

	mu    sync.Mutex // held while a page is made, so that it is made once for all who wait
	begun time.Time  // when making the last page began
	shown string     // the version that it is of
	page  []byte
	err   error
}

// Live serves the report of a run folder that another process may be writing: a page, made once for
// each version of the run, and a stream of events that tells the page when there is another
// version. It answers requests for a loopback address alone, and none that come from another site's
// page.
func Live(dir string) http.Handler { return newLive(dir, livePause).handler() }

func newLive(dir string, pause time.Duration) *live {
	l := &live{dir: dir, pause: pause}
	l.make = l.render
	return l
}

func (l *live) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", l.servePage)
	mux.HandleFunc("GET /events", l.serveEvents)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := refusal(r); why != "" {
			http.Error(w, why, http.StatusForbidden)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin") // no other page shows it
		mux.ServeHTTP(w, r)
	})
}

// refusal says why a request is refused, if it is. A page of another site may reach this machine
// through the browser of its user: under a name of its own that leads here, by which its scripts
// could read the answer, or under this machine's.
func refusal(r *http.Request) string {
	if !loopback(r.Host) {
		return fmt.Sprintf("this report is served to its own machine only: ask for it at 127.0.0.1, not at %q", r.Host)
	}
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site != "" && site != "same-origin" && site != "none" || origin != "" && origin != "http://"+r.Host {
		return "a page of another site asked for this report: open its address in a tab of its own"
	}
	return ""
}

// loopback reports whether a host, with or without a port, names this machine itself.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// version returns a text that changes whenever the run's journal or run.json does.
func (l *live) version() (string, error) {
	var v []string
	for _, name := range [...]string{run.JournalFile, run.MetaFile} {
		info, err := os.Stat(filepath.Join(l.dir, name))
		if err != nil {
			return "", err
		}
		v = append(v, fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano()))
	}
	return strings.Join(v, "-"), nil
}

func (l *live) servePage(w http.ResponseWriter, _ *http.Request) {
	page, err := l.current(time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page)
}

// current returns the page of the run as it was at some time since a request for it came. It makes
// one page at a time, and none if the run has not changed since the last one.
func (l *live) current(asked time.Time) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun.After(asked) { // another request's, while this one waited
		return l.page, l.err
	}
	begun := time.Now()
	version, err := l.version() // before the run is read: a change in between is one page too many, never one too few
	if err != nil {
		return nil, err
	}
	if version != l.shown {
		l.page, l.err = l.make(version)
		l.begun, l.shown = begun, version
	}
	return l.page, l.err
}

// render makes the page of the run.
func (l *live) render(version string) ([]byte, error) {
	r, err := run.Load(l.dir)
	if err != nil {
		return nil, err
	}
	r.Warnings = nil // a last line that is cut off is one that is being written
	p := page{JS: script(chartJS, reportJS, liveJS), Live: version}
	if err := p.fill(r); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, &p)
	return b.Bytes(), err
}

// serveEvents sends the version of the run each time it is another than the last one, until the
// reader or the server has gone.
func (l *live) serveEvents(w http.ResponseWriter, r *http.Request) {
	seen := r.URL.Query().Get("seen")
	if seen == "" {
		http.Error(w, "events?seen=VERSION: the page has its version in data-seen", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(l.pause)
	defer tick.Stop()
	for out.Flush() == nil {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		if version, err := l.version(); err == nil && version != seen {
			seen = version
			fmt.Fprintf(w, "data: %s\n\n", version)
		}
	}
}
