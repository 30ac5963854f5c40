package cases

import "testing"

// TestPairs checks that some case has each pair of choices that a call can have, and that there are
// few such cases.
func TestPairs(t *testing.T) {
	// These cannot be combined: a sink with infinite temperature. With gradients: types other than
	// float32, pages and infinite temperature, each with everything else.
	covered(t, parameters(), 1, 60)
	covered(t, differentiated(), -1, 40)
}

func covered(t *testing.T, of [][]choice, contradictions, most int) {
	t.Helper()
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
	if contradictions >= 0 && refused != contradictions || len(rows) > most {
		t.Errorf("%d pairs contradict each other, want %d, in %d cases, want %d or less", refused, contradictions, len(rows), most)
	}
}
