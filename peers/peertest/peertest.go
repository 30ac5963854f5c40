// Package peertest is a peer for tests: naive/go, at the other end of two pipes, with something strange about it if asked for.
package peertest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/run"
	"attnlab/kernels/naive"
)

// Main is a program that serves. Its argument is honest, or says what is strange: refuses (more than 8 queries), learns (has a backward pass, which takes 3 µs where the forward
// pass takes 1, by its clock), timeless, greedy
// (for threads), keeps (the output to itself), or fails-at-, dies-at-, hangs-at- or garbles- with what is asked behind it.
func Main() {
	p := peer{like: os.Args[1], in: bufio.NewReader(os.Stdin), out: bufio.NewWriter(os.Stdout)}
	if err := p.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type peer struct {
	like    string
	in      *bufio.Reader
	out     *bufio.Writer
	problem attn.Problem
	plan    attn.Plan
	args    *attn.Args
	grads   *attn.Grads
}

type request struct {
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

var errLuck = errors.New("out of luck")

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
		if p.like == "dies-at-"+q.Do {
			return errLuck
		}
		if p.like == "hangs-at-"+q.Do {
			time.Sleep(time.Hour)
		}
		if p.like == "garbles-"+q.Do {
			fmt.Fprintln(p.out, "hello")
		}
		answer := map[string]any{}
		results, err := p.answer(&q, answer)
		if p.like == "fails-at-"+q.Do {
			err, results = errLuck, nil
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		err = json.NewEncoder(p.out).Encode(answer)
		if p.like == "keeps" && len(results) > 0 {
			return errors.Join(err, p.out.Flush())
		}
		each(results, func(row []float32) { err = errors.Join(err, binary.Write(p.out, binary.LittleEndian, row)) })
		if err := errors.Join(err, p.out.Flush()); err != nil {
			return err
		}
	}
}

// answer does what is asked, and returns the tensors that follow the answer.
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
			answer["cpu_ns"] = 2 * time.Since(begun).Nanoseconds()
		}
		switch p.like {
		case "timeless":
		case "learns":
			answer["wall_ns"] = q.Calls * map[string]int{"": 1000, "backward": 3000}[q.Pass]
		default:
			answer["wall_ns"] = time.Since(begun).Nanoseconds()
		}
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

func (p *peer) read(tensors ...*attn.Tensor) (err error) {
	each(tensors, func(row []float32) { err = errors.Join(err, binary.Read(p.in, binary.LittleEndian, row)) })
	return err
}

// each visits the rows of tensors in the order in which they travel.
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
