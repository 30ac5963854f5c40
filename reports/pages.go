package reports

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"attnlab/harness/run"
)

// A generated block of a Markdown page stands between two marks, each on a line of its own:
//
//	<!-- KIND: FOLDER [FOLDER ...] -->
//	...
//	<!-- end -->
//
// KIND is one of kinds. Each FOLDER holds run.json and sweep.csv of a run. It is relative to the
// module's root and has forward slashes.
type block struct {
	kind    string
	folders []string
	body    []byte
}

const blockEnd = "<!-- end -->"

var blockBegin = regexp.MustCompile(`^<!-- ([a-z][a-z-]*): *(.*?) *-->$`)

// begin returns the mark that begins the block.
func (b *block) begin() string {
	return "<!-- " + b.kind + ": " + strings.Join(b.folders, " ") + " -->"
}

// rewrite calls fill for each block of a page, in order, and returns the page with what fill made
// of them. Errors name the line of the block.
func rewrite(page []byte, fill func(*block) error) ([]byte, error) {
	var out bytes.Buffer
	var open *block
	opened := 0
	for i, line := range bytes.SplitAfter(page, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		begin := blockBegin.FindStringSubmatch(text)
		switch {
		case begin != nil && open != nil:
			return nil, fmt.Errorf("line %d: a block begins inside that of line %d: end that with %s", i+1, opened, blockEnd)
		case begin != nil:
			open, opened = &block{kind: begin[1], folders: strings.Fields(begin[2])}, i+1
		case text == blockEnd && open == nil:
			return nil, fmt.Errorf("line %d: %s without a block before it", i+1, blockEnd)
		case text == blockEnd:
			if err := fill(open); err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", opened, open.kind, err)
			}
			fmt.Fprintf(&out, "%s\n%s%s", open.begin(), open.body, line)
			open = nil
		case open != nil:
			open.body = append(open.body, line...)
		default:
			out.Write(line)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block has no end: write %s behind it", opened, blockEnd)
	}
	return out.Bytes(), nil
}

// A File is a page or a picture that it shows. Its name is relative to the module's root and has
// forward slashes.
type File struct {
	Name string
	Data []byte
}

// Write writes the file below the module's root.
func (f File) Write(root string) error {
	name := filepath.Join(root, filepath.FromSlash(f.Name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return run.Replace(name, f.Data)
}

// A source is a run that a block is made from, and the folder that the block's mark names.
type source struct {
	folder string
	run.Summary
}

// Page returns the Markdown page root/name as its committed runs make it, and the pictures that its
// blocks show. It writes nothing.
func Page(root, name string) ([]File, error) {
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	var pictures []File
	page, err = rewrite(page, func(b *block) error {
		var sources []source
		for _, folder := range b.folders {
			s, err := run.ReadSummary(filepath.Join(root, filepath.FromSlash(folder)))
			if err != nil {
				return err
			}
			sources = append(sources, source{folder, s})
		}
		made, err := b.make(name, sources)
		pictures = append(pictures, made...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return append([]File{{name, page}}, pictures...), nil
}

// README puts a run into the README at file: into each block that is made from one run and that
// this run can fill. Their marks then name the run. It also writes the pictures of these blocks. It
// is an error if the run fills none.
func README(file string, r *run.Run) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	root, name := filepath.Dir(file), filepath.Base(file)
	folder := r.Dir
	if from, err := filepath.Abs(root); err == nil {
		if to, err := filepath.Abs(r.Dir); err == nil {
			if rel, err := filepath.Rel(from, to); err == nil {
				folder = rel
			}
		}
	}
	at := source{filepath.ToSlash(folder), run.Summary{Meta: r.Meta, Rows: r.Rows()}}
	var pictures []File
	var unfit []error
	filled := 0
	page, err = rewrite(page, func(b *block) error {
		if len(b.folders) != 1 {
			unfit = append(unfit, fmt.Errorf("%s is made from %d runs", b.kind, len(b.folders)))
			return nil
		}
		with := block{kind: b.kind, folders: []string{at.folder}}
		made, err := with.make(name, []source{at})
		if err != nil {
			unfit = append(unfit, fmt.Errorf("%s: %w", b.kind, err))
			return nil
		}
		*b, pictures, filled = with, append(pictures, made...), filled+1
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	case filled == 0 && len(unfit) == 0:
		return fmt.Errorf("%s has no block to fill: put %s and %s where the table belongs", file, (&block{kind: "ladder", folders: []string{at.folder}}).begin(), blockEnd)
	case filled == 0:
		return fmt.Errorf("%s: %s fills no block: %w", file, r.Dir, errors.Join(unfit...))
	}
	for _, p := range append(pictures, File{name, page}) {
		if err := p.Write(root); err != nil {
			return err
		}
	}
	return nil
}

// make renders the block for the page of this name, and returns the pictures that it shows.
func (b *block) make(page string, sources []source) ([]File, error) {
	if len(sources) == 0 {
		return nil, errors.New("the mark names no run: name its folder, such as reports/history/MACHINE/COMMIT/RUN")
	}
	var out bytes.Buffer
	w := &blockWriter{document: document{w: &out}, up: strings.Repeat("../", strings.Count(path.Clean(page), "/"))}
	for i := range kinds {
		if kinds[i].name != b.kind {
			continue
		}
		if err := kinds[i].write(w, sources); err != nil {
			return nil, err
		}
		b.body = out.Bytes()
		return w.pictures, w.err
	}
	var names []string
	for i := range kinds {
		names = append(names, kinds[i].name)
	}
	return nil, fmt.Errorf("no such block: write one of %s", strings.Join(names, ", "))
}
