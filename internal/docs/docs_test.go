package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// root is the folder of the module.
const root = "../.."

// read returns the blocks of a page, named relative to the module's root.
func read(t *testing.T, page string) []Block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return Parse(string(text))
}

// sources calls do with the name and the text of each Go file of the module, and of the modules
// below it.
func sources(t *testing.T, do func(name, text string)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files++
		do(filepath.ToSlash(name), string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Fatalf("%d Go files below %s: the walk missed the sources", files, root)
	}
}

// TestParse checks the blocks of a page that has each kind of block.
func TestParse(t *testing.T) {
	const page = "# A page: of `blocks`\ntext\nand more\n\n| a | b \\| c |\n|---|---|\n| 1 | `x|y` |\ndirectly after\n\n```\n# no heading\n\n| no | table |\n```\n## A page: of `blocks`\n- a list\n"
	want := []Block{
		{Line: 1, Kind: Heading, Text: "# A page: of `blocks`", Level: 1, Heading: "A page: of `blocks`", Anchor: "a-page-of-blocks"},
		{Line: 2, Kind: Paragraph, Text: "text\nand more"},
		{Line: 5, Kind: Table, Text: "| a | b \\| c |\n|---|---|\n| 1 | `x|y` |", Header: []string{"a", "b | c"}, Rows: [][]string{{"1", "`x|y`"}}},
		{Line: 8, Kind: Paragraph, Text: "directly after"},
		{Line: 10, Kind: Code, Text: "```\n# no heading\n\n| no | table |\n```"},
		{Line: 15, Kind: Heading, Text: "## A page: of `blocks`", Level: 2, Heading: "A page: of `blocks`", Anchor: "a-page-of-blocks-1"},
		{Line: 16, Kind: Paragraph, Text: "- a list"},
	}
	if got := Parse(page); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
