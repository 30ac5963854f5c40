package verify

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"attnlab/attn"
	"attnlab/attn/cases"
)

// A Table holds the worst finding of each kernel in each family of cases.
type Table struct {
	Tried, Wrong int // cases that a kernel answered, and wrong answers among them

	families []string
	kernels  []string
	cells    map[[2]string]*cell // by kernel and family
}

// A cell is one kernel on one family.
type cell struct {
	tried, wrong int
	worst        Finding
}

func newTable(list []cases.Case) *Table {
	t := &Table{cells: map[[2]string]*cell{}}
	for _, c := range list {
		if !slices.Contains(t.families, c.Family) {
			t.families = append(t.families, c.Family)
		}
	}
	return t
}

func (t *Table) add(f Finding) {
	kernel := f.Kernel + "/" + f.ISA
	if !slices.Contains(t.kernels, kernel) {
		t.kernels = append(t.kernels, kernel)
	}
	if f.Refused {
		return
	}
	at := [2]string{kernel, f.Family}
	c := t.cells[at]
	if c == nil {
		c = &cell{worst: f}
		t.cells[at] = c
	}
	c.tried++
	t.Tried++
	if !f.Right() {
		c.wrong++
		t.Wrong++
	}
	if !(f.Worst <= c.worst.Worst) {
		c.worst = f
	}
}

// WriteText writes a line for each kernel and a column for each family, then the wrong answers.
func (t *Table) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "err/tol\t%s\t\n", strings.Join(t.families, "\t"))
	var wrong strings.Builder
	for _, kernel := range t.kernels {
		fmt.Fprintf(w, "%s\t", kernel)
		for _, family := range t.families {
			switch c := t.cells[[2]string{kernel, family}]; {
			case c == nil:
				fmt.Fprint(w, "-\t")
			case c.wrong > 0:
				fmt.Fprint(w, "WRONG\t")
				fmt.Fprintf(&wrong, "wrong in %d of %d %s cases, worst: %v\n", c.wrong, c.tried, family, c.worst)
			default:
				fmt.Fprintf(w, "%.2f\t", c.worst.Worst)
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s%d kernels, %d calls compared with the definition, %d wrong\n", wrong.String(), len(t.kernels), t.Tried, t.Wrong)
	return err
}

// An OutsideReport accounts for every case of a list of outside cases: it passes, it is wrong, or
// the report names what it lacks.
type OutsideReport struct {
	Wrong []Finding // wrong answers

	kernels  []kernelCount
	answered map[string]int    // by case: kernels whose answer is right
	wrongAt  map[string]bool   // cases with a wrong answer
	refused  map[string]string // by case: the note of a refusal
	excused  map[string][]string
	lacks    map[string][]string // by what is lacking: names of cases
	cases    int
	passed   int
}

type kernelCount struct {
	name                   string
	passed, wrong, refused int
	worst                  float64
}

func newOutsideReport() *OutsideReport {
	return &OutsideReport{
		answered: map[string]int{}, wrongAt: map[string]bool{}, refused: map[string]string{},
		lacks: map[string][]string{}, excused: map[string][]string{},
	}
}

func (r *OutsideReport) add(f Finding) {
	name, at := f.Kernel+"/"+f.ISA, f.Family+" "+f.Case
	if n := len(r.kernels); n == 0 || r.kernels[n-1].name != name {
		r.kernels = append(r.kernels, kernelCount{name: name})
	}
	k := &r.kernels[len(r.kernels)-1]
	if f.Excused != "" {
		key := name + " does not write " + f.Excused
		r.excused[key] = append(r.excused[key], f.Case)
	}
	switch {
	case f.Refused:
		k.refused++
		r.refused[at] = f.Note
	case f.Right():
		k.passed++
		k.worst = max(k.worst, f.Worst)
		r.answered[at]++
	default:
		k.wrong++
		r.Wrong = append(r.Wrong, f)
		r.wrongAt[at] = true
	}
}

// account counts the cases that pass and names what the others lack. Normalisations lack layers,
// unless there are norms.
func (r *OutsideReport) account(list []cases.Outside, norms bool) {
	r.cases = len(list)
	for i := range list {
		o := &list[i]
		switch at := o.File + " " + o.Name; {
		case o.Lacks != "":
			r.lacks[o.Lacks] = append(r.lacks[o.Lacks], o.Name)
		case o.Norm != nil && !norms:
			r.lacks["layers"] = append(r.lacks["layers"], o.Name)
		case r.wrongAt[at]:
		case r.answered[at] > 0:
			r.passed++
		default:
			lack := "a kernel that was not given up before"
			if why, ok := r.refused[at]; ok {
				why = strings.TrimPrefix(why, o.Name+": ")
				lack = "what none of these kernels does: " + strings.TrimPrefix(why, attn.ErrUnsupported.Error()+": ")
			}
			r.lacks[lack] = append(r.lacks[lack], o.Name)
		}
	}
}

// WriteText writes a line for each kernel, then what is not compared, unsupported or wrong.
func (r *OutsideReport) WriteText(out io.Writer) error {
	var b strings.Builder
	b.WriteString("\noutside cases\n")
	for _, k := range r.kernels {
		fmt.Fprintf(&b, "%12s  %d pass, worst err/tol %.2f; %d wrong; %d refused\n", k.name, k.passed, k.worst, k.wrong, k.refused)
	}
	for _, key := range slices.Sorted(maps.Keys(r.excused)) {
		fmt.Fprintf(&b, "%s, which is not compared (%d): %s\n", key, len(r.excused[key]), strings.Join(r.excused[key], " "))
	}
	lacking := 0
	for _, key := range slices.Sorted(maps.Keys(r.lacks)) {
		lacking += len(r.lacks[key])
		fmt.Fprintf(&b, "unsupported: needs %s (%d): %s\n", key, len(r.lacks[key]), strings.Join(r.lacks[key], " "))
	}
	for _, f := range r.Wrong {
		fmt.Fprintf(&b, "wrong: %v\n", f)
	}
	fmt.Fprintf(&b, "%d outside cases: %d pass, %d answered wrongly, %d unsupported\n", r.cases, r.passed, len(r.wrongAt), lacking)
	_, err := io.WriteString(out, b.String())
	return err
}
