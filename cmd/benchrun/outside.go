package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness"
)

// verifyOutside runs the cases that were read from a file or folder on every kernel, and those of
// layers on every instruction set of the kernels, and counts the wrong answers. Every case is
// accounted for: it passes, it is wrong, or it is named with what it would take.
func verifyOutside(ctx context.Context, stop <-chan struct{}, w harness.Worker, picked []attn.Kernel, path string, all []cases.Outside, out io.Writer) (wrong int, err error) {
	report := newOutsideReport()
	for _, k := range picked {
		algo, isa := k.Name()
		for i := range all {
			o := &all[i]
			if o.Lacks != "" || o.Norm != nil {
				continue
			}
			if harness.Stopped(ctx, stop) {
				return 0, exitf(exitIncomplete, "interrupted at %s/%s", algo, isa)
			}
			f, err := w.TryOutside(ctx, algo, isa, path, o)
			switch {
			case ctx.Err() != nil:
				continue
			case errors.Is(err, harness.ErrNoChild):
				return 0, err
			case err != nil:
				f = f.Broken(err)
			}
			report.add(f)
			if f.Late {
				break
			}
		}
	}
	for _, l := range levelsOf(picked) {
		for i := range all {
			if o := &all[i]; o.Norm != nil {
				report.add(tryNorm(l, o))
			}
		}
	}
	passed := 0
	for i := range all {
		o := &all[i]
		switch name := o.File + " " + o.Name; {
		case o.Lacks != "":
			report.lacks[o.Lacks] = append(report.lacks[o.Lacks], o.Name)
		case report.wrongAt[name]:
		case report.answered[name] > 0:
			passed++
		default:
			lack := "a kernel that was not given up before"
			if why, ok := report.refused[name]; ok {
				why = strings.TrimPrefix(why, o.Name+": ")
				lack = "what none of these kernels does: " + strings.TrimPrefix(why, attn.ErrUnsupported.Error()+": ")
			}
			report.lacks[lack] = append(report.lacks[lack], o.Name)
		}
	}
	return len(report.wrong), report.print(out, len(all), passed)
}

// An outsideReport gathers the findings on outside cases.
type outsideReport struct {
	kernels  []outsideKernel
	wrong    []harness.Finding
	answered map[string]int    // by case: kernels that answered rightly
	wrongAt  map[string]bool   // cases that some kernel answered wrongly
	refused  map[string]string // by case: a refusal
	lacks    map[string][]string
	excused  map[string][]string
}

type outsideKernel struct {
	name                   string
	passed, wrong, refused int
	worst                  float64
}

func newOutsideReport() *outsideReport {
	return &outsideReport{
		answered: map[string]int{}, wrongAt: map[string]bool{}, refused: map[string]string{},
		lacks: map[string][]string{}, excused: map[string][]string{},
	}
}

func (r *outsideReport) add(f harness.Finding) {
	name, at := f.Kernel+"/"+f.ISA, f.Family+" "+f.Case
	if n := len(r.kernels); n == 0 || r.kernels[n-1].name != name {
		r.kernels = append(r.kernels, outsideKernel{name: name})
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
		r.wrong = append(r.wrong, f)
		r.wrongAt[at] = true
	}
}

func (r *outsideReport) print(out io.Writer, cases, passed int) error {
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
	for _, f := range r.wrong {
		fmt.Fprintf(&b, "wrong: %v\n", f)
	}
	fmt.Fprintf(&b, "%d outside cases: %d pass, %d answered wrongly, %d unsupported\n", cases, passed, len(r.wrongAt), lacking)
	_, err := io.WriteString(out, b.String())
	return err
}
