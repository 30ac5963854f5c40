package cases

import "testing"

// Every two choices that a call can have together are together in some case, and there are few of those.
func TestPairs(t *testing.T) {
	of := parameters()
	rows := covering(of)
	refused, all := 0, allPairs(of)
	for x := range of {
		for y := range x {
			refused += len(of[x]) * len(of[y])
		}
	}
	refused -= len(all)
	for _, p := range all {
		n := 0
		for _, c := range rows {
			if c[p[0]] == p[1] && c[p[2]] == p[3] {
				n++
			}
		}
		if n == 0 {
			t.Errorf("no case has %q with %q", of[p[0]][p[1]].name, of[p[2]][p[3]].name)
		}
	}
	for _, c := range rows {
		if p := c.problem(of); p.Validate() != nil {
			t.Errorf("%v: %v", c, p.Validate())
		}
	}
	t.Logf("%d pairs in %d cases; %d pairs contradict each other", len(all), len(rows), refused)
	if refused != 1 || len(rows) > 60 {
		t.Errorf("%d pairs are refused, want 1 (a sink at infinite temperature), in %d cases, want 60 or less", refused, len(rows))
	}
}
