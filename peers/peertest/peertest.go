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

// Main is a program that serves. Its argument is honest, or says what is strange: refuses (more than 8 queries), timeless, greedy (for threads), keeps (the output to itself), or
// fails-at-, dies-at- or garbles- with what is asked behind it.
func Main() {
	if err := serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve answers requests until there are no more.
func serve(like string, stdin io.Reader, stdout io.Writer) error {
	in, out := bufio.NewReader(stdin), bufio.NewWriter(stdout)
	var p attn.Problem
	var plan attn.Plan
	var a *attn.Args
	each := func(tensors []*attn.Tensor, do func(row []float32) error) (err error) {
		for _, t := range tensors {
			for b := range t.B {
				for h := range t.H {
					for s := range t.S {
						err = errors.Join(err, do(t.Row(b, s, h)))
					}
				}
			}
		}
		return err
	}
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var q struct {
			Do             string
			Threads, Calls int
			Problem        struct {
				Batch, Dim int
				HeadsQ     int `json:"heads_q"`
				HeadsKV    int `json:"heads_kv"`
				SeqQ       int `json:"seq_q"`
				SeqKV      int `json:"seq_kv"`
				DimV       int `json:"dim_v"`
				Scale      float64
				Mask       string
			}
		}
		if err := json.Unmarshal(line, &q); err != nil {
			return err
		}
		answer := map[string]any{}
		if like == "fails-at-"+q.Do {
			answer["error"] = "out of luck"
		}
		if like == "dies-at-"+q.Do {
			return errors.New("out of luck")
		}
		if like == "garbles-"+q.Do {
			fmt.Fprintln(stdout, "hello")
		}
		switch q.Do {
		case "about":
			answer["about"] = "naive/go, " + like
		case "check", "plan":
			a := q.Problem
			if p.Mask, err = run.ParseMask(a.Mask); err != nil {
				return err
			}
			p.Batch, p.HeadsQ, p.HeadsKV, p.SeqQ, p.SeqKV, p.Dim, p.DimV, p.Score.Scale = a.Batch, a.HeadsQ, a.HeadsKV, a.SeqQ, a.SeqKV, a.Dim, a.DimV, a.Scale
			if like == "refuses" && p.SeqQ > 8 {
				answer["refused"] = "more than 8 queries"
			}
			if q.Do == "plan" {
				if plan, err = naive.New().Plan(p, nil); err != nil {
					return err
				}
			}
		case "load":
			if a, err = cases.NewArgs(p, "bhsd", nil); err != nil {
				return err
			}
			if err := each([]*attn.Tensor{&a.Q, &a.K, &a.V}, func(row []float32) error { return binary.Read(in, binary.LittleEndian, row) }); err != nil {
				return err
			}
		case "run":
			begun := time.Now()
			for range q.Calls {
				plan.Forward(a)
			}
			if like == "greedy" {
				time.Sleep(20 * time.Millisecond)
				answer["cpu_ns"] = 2 * time.Since(begun).Nanoseconds()
			}
			if like != "timeless" {
				answer["wall_ns"] = time.Since(begun).Nanoseconds()
			}
		}
		if err := json.NewEncoder(out).Encode(answer); err != nil {
			return err
		}
		if q.Do == "store" && like != "keeps" {
			if err := each([]*attn.Tensor{&a.Out}, func(row []float32) error { return binary.Write(out, binary.LittleEndian, row) }); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if q.Do == "store" && like == "keeps" {
			return nil
		}
	}
}
