package reports

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"attnlab/harness/run"
)

// livePause is how long a page that renews itself is left alone at least: to make it takes time of a CPU, which the run that goes on may need.
const livePause = 2 * time.Second

// live serves the report of one run folder.
type live struct {
	dir   string
	pause time.Duration
}

// Live serves the report of a run folder that another process may be writing: the page, made anew each time it is asked for, and a stream of events
// that tells the page when to ask again. It answers only those who ask for this machine by a loopback address, so that no page of another site can read it
// through the browser of its user.
func Live(dir string) http.Handler { return newLive(dir, livePause) }

func newLive(dir string, pause time.Duration) http.Handler {
	l := &live{dir, pause}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", l.page)
	mux.HandleFunc("GET /events", l.events)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) {
			http.Error(w, "this report is served to its own machine only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// loopback reports whether a host, with or without a port, names this machine itself.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// size is that of the journal.
func (l *live) size() (int64, error) {
	info, err := os.Stat(filepath.Join(l.dir, run.JournalFile))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (l *live) page(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := l.write(&b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes())
}

func (l *live) write(b *bytes.Buffer) error {
	size, err := l.size() // before the run is read: what comes in between is renewed once too often, never too seldom
	if err != nil {
		return err
	}
	r, err := run.Load(l.dir)
	if err != nil {
		return err
	}
	r.Warnings = nil // a last line that is cut off is one that is being written
	p := page{JS: script(chartJS, reportJS, liveJS), Live: strconv.FormatInt(size, 10)}
	if err := p.fill(r); err != nil {
		return err
	}
	return pageTemplate.Execute(b, &p)
}

// events sends the size of the journal each time it is not what was seen last, until the reader or the server has gone.
func (l *live) events(w http.ResponseWriter, r *http.Request) {
	seen, err := strconv.ParseInt(r.URL.Query().Get("seen"), 10, 64)
	if err != nil {
		http.Error(w, "events?seen=SIZE: the size of the journal that the page is of", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	tick := time.NewTicker(l.pause)
	defer tick.Stop()
	for out.Flush() == nil {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		if size, err := l.size(); err == nil && size != seen {
			seen = size
			fmt.Fprintf(w, "data: %d\n\n", size)
		}
	}
}
