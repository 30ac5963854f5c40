package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns every Markdown page of the module, relative to its root.
func pages(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "node_modules", "runs"}, d.Name())):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".md"):
			return nil
		}
		name, err := filepath.Rel(root, file)
		list = append(list, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("%d Markdown pages below %s: the walk missed some", len(list), root)
	}
	return list
}

var (
	codeSpan  = regexp.MustCompile("`[^`]*`")
	linkTo    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\))?)\)`)
	elsewhere = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// A link is a relative link on a page.
type link struct {
	line   int // of the block that has it
	file   string
	anchor string
}

// links returns the relative links of a page. File is relative to the root of the module.
func links(page string, blocks []Block) []link {
	var list []link
	for _, b := range blocks {
		if b.Kind == Code {
			continue
		}
		for _, m := range linkTo.FindAllStringSubmatch(codeSpan.ReplaceAllString(b.Text, "`"), -1) {
			if elsewhere.MatchString(m[1]) {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			file := page
			if to != "" {
				file = path.Join(path.Dir(page), to)
			}
			list = append(list, link{b.Line, file, anchor})
		}
	}
	return list
}

// broken returns what is wrong with a link, or nothing.
func broken(files fs.FS, l link) string {
	if _, err := fs.Stat(files, l.file); err != nil {
		return fmt.Sprintf("there is no %s", l.file)
	}
	if l.anchor == "" {
		return ""
	}
	text, err := fs.ReadFile(files, l.file)
	if err != nil || !strings.HasSuffix(l.file, ".md") {
		return fmt.Sprintf("%s is no page with headings", l.file)
	}
	if !slices.ContainsFunc(Parse(string(text)), func(b Block) bool { return b.Kind == Heading && b.Anchor == l.anchor }) {
		return fmt.Sprintf("%s has no heading #%s", l.file, l.anchor)
	}
	return ""
}

// TestLinks checks that each relative link of each Markdown page leads to a file and, if it names
// one, to a heading.
func TestLinks(t *testing.T) {
	files, found := os.DirFS(root), 0
	for _, page := range pages(t) {
		for _, l := range links(page, read(t, page)) {
			found++
			if fault := broken(files, l); fault != "" {
				t.Errorf("%s:%d: broken link: %s", page, l.line, fault)
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d links, want 50 or more: the pages have more", found)
	}
}

// TestBroken checks which links a page has, and which of them are broken.
func TestBroken(t *testing.T) {
	const page = "# One\n[a](../README.md) [b](#one) ![c](none.svg) [d](#two) [e](https://example.org/x) `[f](none.md)`\n" +
		"[g](../README.md#attnlab) [h](../README.md#nothing) [i](../go.mod#module)\n\n```\n[j](none.md)\n```\n"
	var got []string
	for _, l := range links("docs/kernels.md", Parse(page)) {
		if l.file == "docs/kernels.md" { // the page above stands in for it
			if l.anchor == "two" {
				got = append(got, "d")
			}
			continue
		}
		if fault := broken(os.DirFS(root), l); fault != "" {
			got = append(got, fault)
		}
	}
	want := []string{"there is no docs/none.svg", "d", "README.md has no heading #nothing", "go.mod is no page with headings"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestDocsAreLinked checks that a Markdown page or the source of a Go package names each file in
// docs.
func TestDocsAreLinked(t *testing.T) {
	linked := map[string]bool{}
	for _, page := range pages(t) {
		for _, l := range links(page, read(t, page)) {
			if l.file != page {
				linked[l.file] = true
			}
		}
	}
	named := regexp.MustCompile(`(?m)^\s*//.*\bdocs/[\w./-]*\w`)
	file := regexp.MustCompile(`\bdocs/[\w./-]*\w`)
	sources(t, func(_, text string) {
		for _, comment := range named.FindAllString(text, -1) {
			for _, name := range file.FindAllString(comment, -1) {
				linked[name] = true
			}
		}
	})
	err := fs.WalkDir(os.DirFS(root), "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !linked[name] {
			t.Errorf("%s: no page links it and no Go doc names it: link it, or remove it", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
