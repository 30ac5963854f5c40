package reports

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"attnlab/harness/run"
	"attnlab/harness/run/runtest"
)

// largeRun has 480 points: five rungs at four lengths of 24 problems.
func largeRun(t *testing.T) *run.Run {
	t.Helper()
	return runtest.Make(t, filepath.Join(t.TempDir(), "run"), runtest.Model{
		Samples: 6, Passes: []string{"forward", "backward"}, Masks: []string{"full", "causal", "window:128:0"}, Dims: []int{64, 128}, Threads: []int{1, 2},
		Meta: func(m *run.Meta) { m.Peaks = []run.Peak{{ISA: "go", Flop: 2e10}} },
	})
}

// marks returns the number of marks in the chart with a title.
func (b *tab) marks(title string) int {
	return ask[int](b, fmt.Sprintf(`[...document.querySelectorAll("figure")].find((f) => f.querySelector("figcaption").textContent.startsWith(%q)).querySelectorAll("[role=img]").length`, title))
}

// The lines of the first chart, and the texts of its marks.
const (
	linesOf = `document.querySelectorAll("figure")[0].querySelectorAll("svg .path").length`
	wordsOf = `[...document.querySelectorAll("figure [role=img]")].map((e) => e.getAttribute("aria-label")).join("\n")`
)

// TestReportInBrowser checks a large report in a browser: charts, filters, legend, sorting,
// keyboard, paper and small screens.
func TestReportInBrowser(t *testing.T) {
	b := openTab(t)
	r := largeRun(t)
	rows := r.Rows()
	measured, _, _ := tally(rows)
	page := htmlOf(t, r)
	if len(page) >= 2e6 {
		t.Errorf("the page has %d bytes", len(page))
	}
	address := b.open(page)
	legend := func(i int) chromedp.CSS { return chromedp.CSS(fmt.Sprintf("#legend button:nth-child(%d)", i)) }
	within := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { outer := b.t; b.t = t; defer func() { b.t = outer }(); f(t) })
	}

	within("charts", func(t *testing.T) {
		if got := b.marks("Roofline"); got != measured {
			t.Errorf("the roofline has %d marks, want one for each of %d cells", got, measured)
		}
		for _, title := range []string{"Time of one call", "Rate", "Fraction of the peak", "Scratch memory", "Peak resident memory", "Worst error"} {
			if got := b.marks(title); got != 19 { // four lengths of five rungs, but one of naive
				t.Errorf("%s: %d marks, want 19", title, got)
			}
		}
		for what, want := range map[string]int{".path": 5, ".band": 5, ".whisker": 19} {
			if got := ask[int](b, `document.querySelector("figure svg").querySelectorAll("`+what+`").length`); got != want {
				t.Errorf("%d of %s in the first chart, want %d", got, what, want)
			}
		}
		if got := ask[int](b, `[...document.querySelectorAll("figure svg *")].filter((e) => [...e.attributes].some((a) => /NaN|Infinity|undefined/.test(a.value))).length`); got != 0 {
			t.Errorf("%d elements lie nowhere", got)
		}
	})

	within("toggle", func(t *testing.T) {
		for _, want := range []int{4, 5} {
			b.do(chromedp.Click(legend(4)))
			if got := ask[int](b, linesOf); got != want {
				t.Errorf("%d lines, want %d", got, want)
			}
			pressed := ask[string](b, `document.querySelector("#legend button:nth-child(4)").getAttribute("aria-pressed")`)
			if gone := !strings.Contains(ask[string](b, wordsOf), "flash go,"); pressed != fmt.Sprint(want == 5) || gone != (want == 4) {
				t.Errorf("with %d lines the button says %s, and flash is gone: %v", want, pressed, gone)
			}
		}
	})

	within("keyboard", func(t *testing.T) {
		b.do(chromedp.Focus(chromedp.CSS("#filters label:last-child select")), chromedp.KeyEvent(kb.Tab))
		if !ask[bool](b, `document.activeElement === document.querySelector("#legend button")`) {
			t.Fatal("the Tab key does not go from the filters to the kernels")
		}
		for _, c := range []struct {
			key  string
			want int
		}{{" ", 4}, {kb.Enter, 5}} {
			b.do(chromedp.KeyEvent(c.key))
			if got := ask[int](b, linesOf); got != c.want {
				t.Errorf("after %q there are %d lines, want %d", c.key, got, c.want)
			}
		}
		b.do(chromedp.Focus(chromedp.CSS("#legend button:last-child")), chromedp.KeyEvent(kb.Tab))
		for ask[string](b, "document.activeElement.tagName") == "A" { // a link to a definition
			b.do(chromedp.KeyEvent(kb.Tab))
		}
		tip := func() string {
			return ask[string](b, `document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent`)
		}
		for _, want := range []string{"length 256", "length 512"} {
			if got := tip(); !strings.Contains(got, want) {
				t.Errorf("the mark in focus says %q, want %s", got, want)
			}
			b.do(chromedp.KeyEvent(kb.ArrowRight))
		}
		b.do(chromedp.KeyEvent(kb.ArrowDown))
		if got := tip(); !strings.HasPrefix(got, "tiled") {
			t.Errorf("below naive there is %q", got)
		}
		b.do(chromedp.KeyEvent(kb.Escape))
		if got := tip(); got != "" {
			t.Errorf("Escape leaves %q", got)
		}
	})

	within("hover", func(t *testing.T) {
		b.do(chromedp.ScrollIntoView(chromedp.CSS("figure [role=img]")))
		at := ask[[]float64](b, `(() => { const r = document.querySelector("figure [role=img]").getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`)
		b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
		got := ask[string](b, `getComputedStyle(document.getElementById("tip")).display === "none" ? "" : document.getElementById("tip").textContent`)
		for _, want := range []string{"naive go, length 256", "Time of one call: ", " ms", "95 % interval "} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in %q", want, got)
			}
		}
		b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1))
	})

	within("filters", func(t *testing.T) {
		for _, name := range []string{"pass", "mask", "dim", "threads"} {
			before, problem := ask[string](b, wordsOf), ask[string](b, `document.getElementById("problem").textContent`)
			b.do(
				chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`[...document.querySelectorAll("#filters label")].find((l) => l.firstChild.data === %q).querySelector("select").focus()`, name)),
				chromedp.KeyEvent(kb.ArrowDown),
			)
			if ask[string](b, wordsOf) == before {
				t.Errorf("%s changes no chart", name)
			}
			if got := ask[string](b, `document.getElementById("problem").textContent`); got == problem {
				t.Errorf("after another %s the charts are still of %q", name, got)
			}
		}
		if got := ask[string](b, `document.getElementById("problem").textContent`); got != "Backward, causal mask, one head, d = 128, 2 threads" {
			t.Errorf("four filters lead to %q", got)
		}
	})

	const order = `[...document.querySelectorAll("#points tbody tr")].filter((e) => !e.hidden).map((e) => Number(e.dataset.row))`
	within("table", func(t *testing.T) {
		header := func(column string) chromedp.CSS {
			return chromedp.CSS(fmt.Sprintf("#points th[data-column=%s] button", column))
		}
		if got := ask[[]int](b, order); len(got) != len(rows) || !slices.IsSorted(got) {
			t.Errorf("%d rows, want %d in the order planned", len(got), len(rows))
		}
		times := func() (ns []float64) { // down to the first line that has none
			for _, row := range ask[[]int](b, order) {
				if !run.Known(rows[row].Ns.Mid) {
					break
				}
				ns = append(ns, rows[row].Ns.Mid)
			}
			return ns
		}
		b.do(chromedp.Click(header("ns_median")))
		if got := times(); len(got) != measured || !slices.IsSorted(got) {
			t.Errorf("not ascending: %v", got)
		}
		b.do(chromedp.Click(header("ns_median")))
		got := times()
		slices.Reverse(got)
		if len(got) != measured || !slices.IsSorted(got) || ask[string](b, `document.querySelector("#points th[data-column=ns_median]").getAttribute("aria-sort")`) != "descending" {
			t.Errorf("not descending: %v", got)
		}
		b.do(chromedp.Click(header("kernel")))
		if first := ask[[]int](b, order)[0]; rows[first].Kernel != "flash" {
			t.Errorf("by kernel, %s is first", rows[first].Kernel)
		}
		for _, want := range []int{20, len(rows)} {
			b.do(chromedp.Click(chromedp.CSS("#only input")))
			if got := ask[[]int](b, order); len(got) != want {
				t.Errorf("%d rows are shown, want %d", len(got), want)
			}
		}
	})

	within("download", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := chromedp.CallBrowser(b.ctx, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
			Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, EventsEnabled: new(true),
		}); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}, 1)
		if err := chromedp.ListenBrowser(b.ctx, func(event any) {
			if e, ok := event.(*cdpbrowser.EventDownloadProgress); ok && e.State == cdpbrowser.DownloadProgressStateCompleted {
				done <- struct{}{}
			}
		}); err != nil {
			t.Fatal(err)
		}
		b.do(chromedp.Click(chromedp.CSS("#download")))
		select {
		case <-done:
		case <-b.ctx.Done():
			t.Fatal("nothing was downloaded")
		}
		got, err := os.ReadFile(filepath.Join(dir, run.CSVFile))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(r.Dir, run.CSVFile))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the download is not %s: %d bytes, want %d", run.CSVFile, len(got), len(want))
		}
	})

	within("roles", func(t *testing.T) {
		tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err != nil {
			t.Fatal(err)
		}
		value := func(v *accessibility.Value) string {
			if v == nil {
				return ""
			}
			return strings.Trim(string(v.Value), `"`)
		}
		seen := map[string]int{}
		for _, n := range tree.Nodes {
			role, name := value(n.Role), value(n.Name)
			if n.Ignored {
				continue
			}
			seen[role]++
			switch role {
			case "button", "checkbox", "combobox", "link", "region", "columnheader", "image":
				if name == "" {
					t.Errorf("a %s without a name", role)
				}
			}
			seen[role+" "+name]++
		}
		for _, want := range []string{
			"combobox pass", "combobox mask", "combobox dim", "combobox threads", "group Kernels shown", "group Problem", "group Time of one call against length", "group Roofline",
			"region All points", "region Summary", "button Download sweep.csv", "main", "heading The ladder",
		} {
			if seen[want] == 0 {
				t.Errorf("no %s", want)
			}
		}
		if got := ask[[]string](b, `[...document.querySelectorAll("a[href^='#']")].map((a) => a.getAttribute("href")).filter((h) => !document.getElementById(h.slice(1)))`); len(got) > 0 {
			t.Errorf("links lead nowhere: %v", got)
		}
		if got := ask[int](b, `document.querySelectorAll("figcaption a[href^='#define-']").length`); got != 7 {
			t.Errorf("%d of 7 charts lead to what they show", got)
		}
		if seen["row"] < len(rows) || seen["image"] < len(rows) {
			t.Errorf("%d rows and %d marks", seen["row"], seen["image"])
		}
	})

	within("light and dark", func(t *testing.T) {
		grounds := map[string]bool{}
		for _, scheme := range []string{"light", "dark"} {
			b.media("", scheme)
			grounds[ask[string](b, "getComputedStyle(document.body).backgroundColor")] = true
			b.legible("h1", "header p", ".card.bad b", ".card.warn b, .card.good b", ".card span", "figure svg text", "#legend button", "#points td", "tr.skipped td", "tr.failed td", "#filters label", "a[href]")
		}
		if len(grounds) != 2 {
			t.Errorf("light and dark are the same: %v", grounds)
		}
	})

	within("print", func(t *testing.T) {
		b.media("print", "dark")
		if got := ask[string](b, "getComputedStyle(document.body).backgroundColor"); got != "rgb(255, 255, 255)" {
			t.Errorf("paper is %s", got)
		}
		if got := ask[[]string](b, `[...document.querySelectorAll("main section, main table, figure, #problem, #legend")].filter((e) => e.getClientRects().length === 0).map((e) => e.outerHTML.slice(0, 80))`); len(got) > 0 {
			t.Errorf("paper lacks %v", got)
		}
		if got := ask[[]string](b, `[...document.querySelectorAll("main div")].filter((e) => e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== "visible").map((e) => e.outerHTML.slice(0, 80))`); len(got) > 0 {
			t.Errorf("paper cuts off %v", got)
		}
		if ask[bool](b, `document.getElementById("filters").getClientRects().length > 0`) {
			t.Error("there are filters on paper")
		}
		b.shoot("report-print")
		b.media("", "light")
	})

	b.pictures("report")
	b.quiet(address)
}

var picture = flag.String("picture", "", "run folder from which to renew docs/report.png")

// TestReportPicture renews docs/report.png, the README's picture of a report, from a real run:
//
//	go test ./reports -run ReportPicture -picture RUN
func TestReportPicture(t *testing.T) {
	if *picture == "" {
		t.Skip("no -picture asks for it")
	}
	r, err := run.Load(*picture)
	if err != nil {
		t.Fatal(err)
	}
	b := openTab(t)
	b.open(htmlOf(t, r))
	b.do(chromedp.EmulateViewport(1280, 900))
	ask[bool](b, `(() => { // the verdicts and the charts; the tables are in the page
		for (const e of document.querySelectorAll(".warnings, #before .scroll, #before h3, #before .hint, section[aria-labelledby=ladder], #after, #end, #charts ~ section, #charts .hint")) e.remove();
		return true;
	})()`)
	shot, err := chromedp.Run(b.ctx, chromedp.Screenshot(chromedp.CSS("html")))
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer // of the 256 colours that the picture has most of
	few := image.NewPaletted(img.Bounds(), commonColours(img, 256))
	draw.Draw(few, few.Bounds(), img, img.Bounds().Min, draw.Src)
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, few); err != nil {
		t.Fatal(err)
	}
	if small.Len() >= 300e3 {
		t.Errorf("the picture has %d bytes", small.Len())
	}
	if err := os.WriteFile(filepath.Join("..", "docs", "report.png"), small.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commonColours(img image.Image, n int) color.Palette {
	counts := map[color.Color]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			counts[img.At(x, y)]++
		}
	}
	p := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	return p[:min(n, len(p))]
}
