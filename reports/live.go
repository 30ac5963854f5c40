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

	mu    sync.Mutex // held while a page is made, so that waiting requests share one page
	begun time.Time  // when making the last page began
	shown string     // the version of the run that the last page shows
	page  []byte
	err   error
}

// Live serves the report of a run folder that another process may be writing: a page, made once for
// each version of the run, and a stream of events that tells the page of each new version. It
// answers only requests for a loopback address, and none from a page of another site.
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
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin") // not inside another page
		mux.ServeHTTP(w, r)
	})
}

// refusal returns why a request is refused, or an empty text. A page of another site can reach this
// machine through its user's browser. It can use a host name of its own that resolves to this
// machine, and its scripts could then read the answer, or a name of this machine.
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

// version returns a text that changes whenever the run's journal or run.json changes.
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

// current returns a page of the run that was read at the time asked or later. It makes one page at
// a time, and none if the run has not changed since the last one.
func (l *live) current(asked time.Time) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun.After(asked) { // made for another request while this one waited
		return l.page, l.err
	}
	begun := time.Now()
	// Before the run is read: a change in between then makes one page too many, never one too few.
	version, err := l.version()
	if err != nil {
		return nil, err
	}
	if version != l.shown {
		l.page, l.err = l.make(version)
		l.begun, l.shown = begun, version
	}
	return l.page, l.err
}

// render returns the page of the run.
func (l *live) render(version string) ([]byte, error) {
	r, err := run.Load(l.dir)
	if err != nil {
		return nil, err
	}
	r.Warnings = nil // the last line is incomplete while it is being written
	p := page{JS: script(chartJS, reportJS, liveJS), Live: version}
	if err := p.fill(r); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = pageTemplate.Execute(&b, &p)
	return b.Bytes(), err
}

// serveEvents sends the version of the run each time it changes, until the connection or the server
// is closed.
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
