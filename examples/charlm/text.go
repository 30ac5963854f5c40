package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// module is the module whose documentation the model learns.
const module = "attnlab"

// findRoot returns the root folder of the module that a folder is in.
func findRoot(from string) (string, error) {
	dir, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if first, _, _ := strings.Cut(string(text), "\n"); err == nil && strings.TrimSpace(first) == "module "+module {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("%s is in no checkout of module %s, whose documentation the model learns: run it there, or name the folder with -root", from, module)
		}
		dir = filepath.Dir(dir)
	}
}

// documentation returns the text that the model learns: README.md, CONTRIBUTING.md, docs/*.md, and,
// in the order of their paths, the doc comments of all Go files except tests. It takes the comments
// of packages and of exported names.
func documentation(root string) (string, error) {
	var all strings.Builder
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return "", err
	}
	for _, page := range append([]string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}, pages...) {
		text, err := os.ReadFile(page)
		if err != nil {
			return "", fmt.Errorf("%w: the model learns this page: is %s a whole checkout?", err, root)
		}
		all.Write(text)
		all.WriteString("\n")
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "runs"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, text := range comments(f) {
			all.WriteString(text)
			all.WriteString("\n")
		}
		return nil
	})
	return all.String(), err
}

// comments returns the doc comments of a file: that of the package and those of exported names.
func comments(f *ast.File) (texts []string) {
	add := func(c *ast.CommentGroup) {
		if text := c.Text(); text != "" {
			texts = append(texts, text)
		}
	}
	add(f.Doc)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				add(d.Doc)
			}
		case *ast.GenDecl:
			if len(d.Specs) == 0 || d.Tok == token.IMPORT || !slices.ContainsFunc(d.Specs, exported) {
				continue
			}
			add(d.Doc)
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					add(s.Doc)
				}
			}
		}
	}
	return texts
}

// exported reports whether a spec declares an exported name.
func exported(s ast.Spec) bool {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.IsExported()
	case *ast.ValueSpec:
		return slices.ContainsFunc(s.Names, (*ast.Ident).IsExported)
	}
	return false
}

// split holds out every tenth piece of the text. A piece is the given number of characters.
func split(text string, piece int) (train, heldOut string) {
	runes := []rune(text)
	var sides [2]strings.Builder
	for i := 0; i*piece < len(runes); i++ {
		side := 0
		if i%10 == 9 {
			side = 1
		}
		sides[side].WriteString(string(runes[i*piece : min((i+1)*piece, len(runes))]))
	}
	return sides[0].String(), sides[1].String()
}

// unknown replaces characters that are not in the vocabulary.
const unknown = '\uFFFD'

// A vocabulary numbers characters in the order of their code points. Number 0 is unknown.
type vocabulary []rune

// newVocabulary returns the characters that occur at least least times in a text.
func newVocabulary(text string, least int) vocabulary {
	counts := map[rune]int{}
	for _, c := range text {
		counts[c]++
	}
	v := vocabulary{unknown}
	for c, n := range counts {
		if n >= least && c != unknown {
			v = append(v, c)
		}
	}
	slices.Sort(v[1:])
	return v
}

// encode returns the numbers of the characters of a text.
func (v vocabulary) encode(text string) []int32 {
	var tokens []int32
	for _, c := range text {
		i, found := slices.BinarySearch(v[1:], c)
		if i++; !found {
			i = 0
		}
		tokens = append(tokens, int32(i))
	}
	return tokens
}

// decode returns the text of numbered characters.
func (v vocabulary) decode(tokens []int32) string {
	var s strings.Builder
	for _, t := range tokens {
		s.WriteRune(v[t])
	}
	return s.String()
}

// bigram returns the mean of -log p(b | a) over the pairs of neighbours a, b of heldOut. It counts
// p in train and adds one to each count:
//
//	p(b | a) = (count(a b) + 1) / (count(a) + characters)
func bigram(train, heldOut []int32, characters int) float64 {
	pairs, firsts := make([]float64, characters*characters), make([]float64, characters)
	for i, b := range train[1:] {
		pairs[int(train[i])*characters+int(b)]++
		firsts[train[i]]++
	}
	sum := 0.0
	for i, b := range heldOut[1:] {
		a := heldOut[i]
		sum -= math.Log((pairs[int(a)*characters+int(b)] + 1) / (firsts[a] + float64(characters)))
	}
	return sum / float64(len(heldOut)-1)
}

// Files of a run that hold the text it began with. The repository may change before it is resumed.
const (
	trainFile   = "train.txt"
	heldOutFile = "heldout.txt"
)

// errShort reports a text too short to train and test on.
var errShort = errors.New("the text is too short to train and test on: use a whole checkout, or choose a smaller -context")
