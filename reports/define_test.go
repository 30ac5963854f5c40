package reports

import (
	"os"
	"slices"
	"strings"
	"testing"

	"attnlab/harness/run"
)

// TestDefinitions checks that every number of the table of points and of sweep.csv is defined, in
// the page and in docs/statistics.md.
func TestDefinitions(t *testing.T) {
	doc, err := os.ReadFile("../docs/statistics.md")
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	ids := map[string]bool{}
	for _, d := range definitions {
		if ids[d.ID] {
			t.Errorf("%s is defined twice", d.ID)
		}
		ids[d.ID] = true
		columns = append(columns, d.Columns...)
		for _, name := range d.Columns {
			if !slices.Contains(run.Columns(), name) {
				t.Errorf("sweep.csv has no %s", name)
			}
			if !strings.Contains(string(doc), "`"+name+"`") {
				t.Errorf("docs/statistics.md does not define %s", name)
			}
		}
	}
	measured := false
	for _, c := range append(slices.Clone(pageColumns), layerColumns...) {
		if measured = measured || c.Title == "time"; measured && c.Title != "note" && c.Defined() == "" {
			t.Errorf("%s has no definition", c.Title)
		}
	}
	skip := []string{"status", "note", "layer"}
	names := run.Columns()
	for _, name := range names[slices.Index(names, "status"):] {
		if !slices.Contains(columns, name) && !slices.Contains(columns, strings.TrimSuffix(strings.TrimSuffix(name, "_lo"), "_hi")) && !slices.Contains(skip, name) {
			t.Errorf("%s of sweep.csv has no definition", name)
		}
	}
}
