package reports

import (
	"slices"
	"strings"

	"attnlab/harness/run"
)

// ladder returns the group and the length that a ladder is shown for: the length at which most
// series have a time, and of several such lengths the greatest. It returns nil where nothing was
// measured.
func ladder(rows []run.Row) (best *group, seq int) {
	most := 0
	for _, g := range groups(rows) {
		for _, n := range g.seqs {
			count := 0
			for _, s := range g.series {
				if s.at(n) != nil {
					count++
				}
			}
			if count > most || count == most && count > 0 && n > seq {
				best, seq, most = g, n, count
			}
		}
	}
	return best, seq
}

// ladderShare is the column of the ladder that compares its rungs.
const ladderShare = "of the fastest peak"

// ladderTable returns the ladder: a line for each kernel and instruction set that was not skipped,
// with its share of the fastest peak of the machine.
func ladderTable(r *run.Run, rows []run.Row, g *group, seq int) (header []string, lines [][]string) {
	for _, s := range g.series {
		w := s.rows[seq]
		switch {
		case w == nil || w.Status == run.Skipped:
		case s.at(seq) == nil:
			lines = append(lines, []string{strings.TrimSpace(s.kernel + " " + s.features), s.isa, w.Status + ": " + w.Note, "", "", "", digits(w.Err, 2)})
		default:
			share := w.GFlops / fastestPeak(r.Meta, rows, w.Threads)
			lines = append(lines, []string{
				strings.TrimSpace(s.kernel + " " + s.features), s.isa, strings.TrimSpace(seconds(w.Ns.Mid) + " " + within(w.Ns.Mid, w.Ns.Lo, w.Ns.Hi)),
				digits(w.GFlops, 3), percent(share), size(w.Scratch), digits(w.Err, 2),
			})
		}
	}
	return []string{"kernel", "isa", "time of one call", "GFLOP/s", ladderShare, "scratch", "err/tol"}, lines
}

// rungs returns the group with only the rungs of the ladder, in their order:
//
//	naive   portable Go
//	tiled   portable Go, then its fastest instruction set
//	flash   portable Go, then the machine's first instruction set in assembly, then its fastest
//
// Series without a time at seq are left out.
func (g *group) rungs(m run.Meta, seq int) *group {
	find := func(kernel, isa string) *series {
		for _, s := range g.series {
			if s.kernel == kernel && s.isa == isa && s.at(seq) != nil {
				return s
			}
		}
		return nil
	}
	fastest := func(kernel string) (best *series) {
		for _, isa := range m.Machine.ISA {
			if s := find(kernel, isa); s != nil && (best == nil || s.at(seq).NsMin < best.at(seq).NsMin) {
				best = s
			}
		}
		return best
	}
	assembly := ""
	if len(m.Machine.ISA) > 1 {
		assembly = m.Machine.ISA[1] // portable Go is the first
	}
	chosen := group{parts: g.parts, seqs: g.seqs}
	for _, s := range [...]*series{
		find("naive", "go"), find("tiled", "go"), fastest("tiled"), find("flash", "go"), find("flash", assembly), fastest("flash"),
	} {
		if s != nil && !slices.Contains(chosen.series, s) {
			chosen.series = append(chosen.series, s)
		}
	}
	return &chosen
}
