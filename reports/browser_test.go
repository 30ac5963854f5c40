package reports

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var (
	browserPath = flag.String("browser", "", "browser that must run the tests of pages; by default chromium or Chrome from PATH, else they are skipped")
	screenshots = flag.String("screenshots", "", "folder for pictures that the tests of pages take")
)

// findBrowser returns the browser's path. It skips the test where there is none.
func findBrowser(t *testing.T) string {
	t.Helper()
	if *browserPath != "" {
		return *browserPath
	}
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("NOT TESTED IN A BROWSER: there is no chromium or Chrome on PATH")
	return ""
}

// A tab shows one page, and records the page's requests and errors.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	requests   []string
	complaints []string
}

// openTab starts a browser, which the end of the test closes.
func openTab(t *testing.T) *tab {
	t.Helper()
	path := findBrowser(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck}
	for _, f := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "disable-background-networking", "disable-component-update", "disable-sync",
		"disable-default-apps", "disable-extensions", "disable-dev-shm-usage", "disable-breakpad", "hide-scrollbars", "disable-domain-reliability",
	} {
		options = append(options, chromedp.Flag(f, true))
	}
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	b.do(chromedp.EmulateViewport(1280, 900))
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "data:") && !strings.HasPrefix(e.Request.URL, "blob:") {
			b.requests = append(b.requests, e.Request.URL)
		}
	case *cdpruntime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	case *cdpruntime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s", e.Type))
	case *cdplog.EventEntryAdded:
		b.complaints = append(b.complaints, e.Entry.Text)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// open writes a page to a file, shows it, and returns its address.
func (b *tab) open(page string) string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		b.t.Fatal(err)
	}
	address := (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
	b.do(chromedp.Navigate(address))
	return address
}

// media emulates a screen or paper, light or dark.
func (b *tab) media(kind, scheme string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: kind, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}); err != nil {
		b.t.Fatal(err)
	}
}

// shoot writes a picture of the whole page to -screenshots, if that is set.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.MkdirAll(*screenshots, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	x, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return x
}

// pictures takes pictures of the page at the width of a desktop and of a telephone, light and dark,
// and fails where anything is wider than the page.
func (b *tab) pictures(name string) {
	b.t.Helper()
	for _, width := range []int64{1280, 390} {
		b.do(chromedp.EmulateViewport(width, 900))
		for _, scheme := range []string{"light", "dark"} {
			b.media("", scheme)
			if got := ask[int64](b, "document.documentElement.scrollWidth"); got > width {
				b.t.Errorf("%s at %d pixels is %d wide", name, width, got)
			}
			b.shoot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
		}
	}
	b.do(chromedp.EmulateViewport(1280, 900))
	b.media("", "light")
}

// legible fails where the text of a selector has a contrast below 4.5 with its background.
func (b *tab) legible(selectors ...string) {
	b.t.Helper()
	for _, s := range selectors {
		if got := ask[float64](b, fmt.Sprintf(`(() => {
			const e = document.querySelector(%q), canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
			const light = (...layers) => { // of colours one over the other
				for (const colour of layers) {
					canvas.fillStyle = colour;
					canvas.fillRect(0, 0, 1, 1);
				}
				const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => (v /= 255) > 0.04045 ? ((v + 0.055) / 1.055) ** 2.4 : v / 12.92);
				return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
			};
			const grounds = [];
			for (let at = e; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
			const style = getComputedStyle(e), a = light(...grounds), b = light(e.namespaceURI.endsWith("svg") ? style.fill : style.color);
			return Math.max(a, b) / Math.min(a, b);
		})()`, s)); !(got >= 4.5) {
			b.t.Errorf("%s has a contrast of %.2g, want 4.5", s, got)
		}
	}
}

// quiet fails where the page requested anything outside an address, or reported an error.
func (b *tab) quiet(address string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if !strings.HasPrefix(r, address) {
			b.t.Errorf("the page asks for %s", r)
		}
	}
	for _, c := range b.complaints {
		b.t.Errorf("the page complains: %s", c)
	}
}
