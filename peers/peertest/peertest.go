// Package peertest provides a peer for tests: naive/go at the other end of two pipes, with a fault
// if its argument names one.
package peertest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/run"
	"attnlab/kernels/naive"
)

// Processes is the environment variable that names a folder. Every peer leaves a file there that is
// named after its process ID. A process that a peer has started leaves one named after the peer's,
// with the suffix .child.
const Processes = "ATTNLAB_TEST_PEERS"

const child = "child"

// Main is a program that serves. Its first argument is honest, or a kind or fault from the lists
// below. Other arguments do not matter.
//
// Kinds of peers:
//
//	refuses   more than 8 queries
//	learns    has a backward pass that takes 3 µs by its clock where the forward pass takes 1
//	cries     writes a lot to its standard error, and is honest
//	lingers   does not end when its input does
//	fails     with status 3 when its input ends
//
// Clocks, as wall_ns and cpu_ns of a run:
//
//	timeless negative    no time; a negative time
//	boastful endless nan an hour too much; the largest number; not a number
//	greedy hungry owing  processor time of two threads on one; of an hour; negative
//
// Faults, each followed by -at- and the request at which it occurs:
//
//	fails                    answers with an error
//	dies crashes             ends with status 1 and last words; is killed
//	hangs stubborn           does not answer; and ignores signals
//	closes                   closes its output and hangs
//	deaf                     closes its input, answers this request and hangs
//	garbles floods           prints a line besides its answer; prints for ever without a line end
//	trails repeats           adds bytes to its answer; answers twice
//	stale                    answers with the id of the previous request
//	shortens lengthens keeps ends after half of its tensors; adds to them; does not send them
//	leaves breeds            starts a process that holds its pipes, and ends; and hangs
func Main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "want an argument: honest, or what is strange")
		os.Exit(2)
	}
	name := strconv.Itoa(os.Getpid())
	if os.Args[1] == child {
		name = strconv.Itoa(os.Getppid()) + "." + child
	}
	if dir := os.Getenv(Processes); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	if os.Args[1] == child {
		time.Sleep(time.Hour)
	}
	p := peer{like: os.Args[1], in: bufio.NewReader(os.Stdin)}
	p.fault, p.stage, _ = strings.Cut(p.like, "-at-")
	if err := p.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	switch p.like {
	case "lingers":
		time.Sleep(time.Hour)
	case "fails":
		os.Exit(3)
	}
	os.Exit(0)
}

type peer struct {
	like         string
	fault, stage string
	in           *bufio.Reader
	problem      attn.Problem
	plan         attn.Plan
	args         *attn.Args
	grads        *attn.Grads
}

type request struct {
	ID       int
	Do, Pass string
	Calls    int
	Problem  struct {
		Batch, Dim int
		HeadsQ     int `json:"heads_q"`
		HeadsKV    int `json:"heads_kv"`
		SeqQ       int `json:"seq_q"`
		SeqKV      int `json:"seq_kv"`
		DimV       int `json:"dim_v"`
		Scale      float64
		Mask       string
		Grads      bool
	}
}

// errLuck returns the error of a peer that fails. It repeats the other arguments of the peer, as
// programs do.
func errLuck() error { return fmt.Errorf("out of luck %v", os.Args[2:]) }

// serve answers requests until there are no more.
func (p *peer) serve() error {
	for {
		line, err := p.in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var q request
		if err := json.Unmarshal(line, &q); err != nil {
			return err
		}
		strange := q.Do == p.stage
		if strange {
			if err := p.before(); err != nil {
				return err
			}
		}
		answer := map[string]any{"id": q.ID}
		results, err := p.answer(&q, answer)
		if strange && p.fault == "fails" {
			err, results = errLuck(), nil
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		if strange && p.fault == "stale" {
			answer["id"] = q.ID - 1
		}
		first, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		first = append(first, '\n')
		if p.like == "nan" && q.Do == "run" {
			first = fmt.Appendf(nil, "{\"id\":%d,\"wall_ns\":NaN}\n", q.ID)
		}
		var tensors bytes.Buffer
		each(results, func(row []float32) { err = errors.Join(err, binary.Write(&tensors, binary.LittleEndian, row)) })
		if err != nil {
			return err
		}
		all := append(first, tensors.Bytes()...)
		if strange {
			all = p.spoil(all, len(first))
		}
		if p.like == "cries" {
			fmt.Fprintln(os.Stderr, strings.Repeat("oh no! ", 1<<20))
		}
		if _, err := os.Stdout.Write(all); err != nil {
			return err
		}
		switch {
		case strange && p.fault == "deaf":
			time.Sleep(time.Hour)
		case strange && p.fault == "shortens":
			return errLuck()
		}
	}
}

// before commits a fault in place of an answer. It returns only with an error, or if the fault is
// another one.
func (p *peer) before() error {
	switch p.fault {
	case "dies":
		return errLuck()
	case "crashes":
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		_ = self.Kill()
	case "stubborn":
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
	case "closes":
		os.Stdout.Close()
	case "floods":
		for text := bytes.Repeat([]byte("blah "), 1<<12); ; {
			if _, err := os.Stdout.Write(text); err != nil {
				return err
			}
		}
	case "leaves", "breeds":
		cmd := exec.Command(os.Args[0], child)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		if p.fault == "leaves" {
			return errLuck()
		}
	case "hangs":
	default:
		return nil
	}
	time.Sleep(time.Hour)
	return nil
}

// spoil returns a faulty answer. The first line of the answer has line bytes.
func (p *peer) spoil(all []byte, line int) []byte {
	switch p.fault {
	case "garbles":
		return append([]byte("hello\n"), all...)
	case "trails":
		return append(all, "more"...)
	case "repeats":
		return append(all, all...)
	case "shortens":
		return all[:line+(len(all)-line)/2]
	case "lengthens":
		return append(all, 0, 0, 0, 0)
	case "keeps":
		return all[:line]
	case "deaf":
		os.Stdin.Close()
	}
	return all
}

// answer computes a request, and returns the tensors that follow the answer.
func (p *peer) answer(q *request, answer map[string]any) (results []*attn.Tensor, err error) {
	switch q.Do {
	case "about":
		answer["about"], answer["backward"] = "naive/go, "+p.like, p.like == "learns"
	case "check":
		if p.like == "refuses" && q.Problem.SeqQ > 8 {
			answer["refused"] = "more than 8 queries"
		}
	case "plan":
		is := &q.Problem
		p.problem = attn.Problem{
			Batch: is.Batch, HeadsQ: is.HeadsQ, HeadsKV: is.HeadsKV, SeqQ: is.SeqQ, SeqKV: is.SeqKV, Dim: is.Dim, DimV: is.DimV, Score: attn.Score{Scale: is.Scale},
		}
		if is.Grads {
			p.problem.Want = attn.WantGrad
		}
		if p.problem.Mask, err = run.ParseMask(is.Mask); err == nil {
			p.plan, err = naive.New().Plan(p.problem, nil)
		}
	case "load":
		if p.args, err = cases.NewArgs(p.problem, "bhsd", nil); err == nil {
			err = p.read(&p.args.Q, &p.args.K, &p.args.V)
		}
	case "load_grads":
		if p.grads, err = cases.NewGrads(p.problem, p.args, "bhsd", nil); err == nil {
			p.grads.LSE = attn.Tensor{}
			err = p.read(&p.grads.Out)
		}
	case "run":
		begun := time.Now()
		for range q.Calls {
			if q.Pass == "backward" {
				p.plan.(attn.Differentiable).Backward(p.args, p.grads)
			} else {
				p.plan.Forward(p.args)
			}
		}
		if p.like == "greedy" {
			time.Sleep(20 * time.Millisecond)
		}
		p.clock(time.Since(begun), q, answer)
	case "store":
		results = []*attn.Tensor{&p.args.Out}
		if p.problem.Want != 0 {
			results = append(results, &p.args.Stats.LSE)
		}
	case "store_grads":
		results = []*attn.Tensor{&p.grads.Q, &p.grads.K, &p.grads.V}
	}
	return results, err
}

// clock writes the time of a run to its answer.
func (p *peer) clock(took time.Duration, q *request, answer map[string]any) {
	wall := took.Nanoseconds()
	answer["wall_ns"] = wall
	switch p.like {
	case "learns":
		answer["wall_ns"] = q.Calls * map[string]int{"": 1000, "backward": 3000}[q.Pass]
	case "timeless":
		delete(answer, "wall_ns")
	case "negative":
		answer["wall_ns"] = -5
	case "boastful":
		answer["wall_ns"] = wall + time.Hour.Nanoseconds()
	case "endless":
		answer["wall_ns"] = int64(math.MaxInt64)
	case "greedy":
		answer["cpu_ns"] = 2 * wall
	case "hungry":
		answer["cpu_ns"] = time.Hour.Nanoseconds()
	case "owing":
		answer["cpu_ns"] = -1
	}
}

func (p *peer) read(tensors ...*attn.Tensor) (err error) {
	each(tensors, func(row []float32) { err = errors.Join(err, binary.Read(p.in, binary.LittleEndian, row)) })
	return err
}

// each calls do for the rows of tensors in the order in which they are sent.
func each(tensors []*attn.Tensor, do func(row []float32)) {
	for _, t := range tensors {
		for b := range t.B {
			for h := range t.H {
				for s := range t.S {
					do(t.Row(b, s, h))
				}
			}
		}
	}
}
