package peers

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"attnlab/attn"
)

// A request and its answer, as they are written.
type (
	request struct {
		Do      string   `json:"do"`
		Problem *problem `json:"problem,omitempty"`
		Threads int      `json:"threads,omitempty"`
		Calls   int      `json:"calls,omitempty"`
		Pass    string   `json:"pass,omitempty"`
	}
	problem struct {
		Batch   int     `json:"batch"`
		HeadsQ  int     `json:"heads_q"`
		HeadsKV int     `json:"heads_kv"`
		SeqQ    int     `json:"seq_q"`
		SeqKV   int     `json:"seq_kv"`
		Dim     int     `json:"dim"`
		DimV    int     `json:"dim_v"`
		Scale   float64 `json:"scale"`
		Mask    string  `json:"mask"`
		Grads   bool    `json:"grads,omitempty"`
	}
	answer struct {
		Error    string `json:"error"`
		About    string `json:"about"`
		Backward bool   `json:"backward"`
		Refused  string `json:"refused"`
		Wall     int64  `json:"wall_ns"`
		CPU      int64  `json:"cpu_ns"`
	}
)

// planning is a request about a problem.
func planning(do string, p *attn.Problem, threads int) request {
	return request{Do: do, Threads: threads, Problem: &problem{
		Batch: p.Batch, HeadsQ: p.HeadsQ, HeadsKV: p.HeadsKV, SeqQ: p.SeqQ, SeqKV: p.SeqKV, Dim: p.Dim, DimV: p.DimV,
		Scale: p.Scale(), Mask: p.Mask.String(), Grads: p.Want&attn.WantGrad != 0,
	}}
}

// A process is a peer at work.
type process struct {
	cmd   *exec.Cmd
	in    *bufio.Writer
	out   *bufio.Reader
	end   func() error // closes its input, and waits
	about answer       // to the first request
	row   []byte
}

// kill ends a process that may not listen any more. That it dies of it is no news.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	p.end()
	return err
}

func start(command []string) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	apart(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := func() error {
		in.Close()
		return cmd.Wait()
	}
	p := &process{cmd: cmd, in: bufio.NewWriterSize(in, 1<<16), out: bufio.NewReaderSize(out, 1<<16), end: end}
	p.about, err = p.ask(request{Do: "about"})
	if err == nil && p.about.About == "" {
		err = errors.New("about: it does not say what it is")
	}
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// ask writes a request with its tensors, and reads the answer.
func (p *process) ask(q request, operands ...*attn.Tensor) (a answer, err error) {
	err = json.NewEncoder(p.in).Encode(q) // it ends the line
	for _, t := range operands {
		err = errors.Join(err, p.put(t))
	}
	if err = errors.Join(err, p.in.Flush()); err != nil {
		return a, fmt.Errorf("does not take %s: %w", q.Do, err)
	}
	line, err := p.out.ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		return a, fmt.Errorf("ended at %s", q.Do)
	case err != nil:
		return a, fmt.Errorf("answer to %s: %w", q.Do, err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("answer to %s: %.80q is not a line of JSON: %w", q.Do, line, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", q.Do, a.Error)
	}
	return a, nil
}

// put writes the rows of a tensor.
func (p *process) put(t *attn.Tensor) error {
	for row := range rows(t) {
		p.row, _ = binary.Append(p.row[:0], binary.LittleEndian, row)
		if _, err := p.in.Write(p.row); err != nil {
			return err
		}
	}
	return nil
}

// get reads them.
func (p *process) get(t *attn.Tensor) error {
	p.row = append(p.row[:0], make([]byte, 4*t.D)...)
	for row := range rows(t) {
		if _, err := io.ReadFull(p.out, p.row); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		if _, err := binary.Decode(p.row, binary.LittleEndian, row); err != nil {
			return err
		}
	}
	return nil
}

// rows are those of a tensor, in the order in which they travel.
func rows(t *attn.Tensor) func(yield func([]float32) bool) {
	return func(yield func([]float32) bool) {
		for b := range t.B {
			for h := range t.H {
				for s := range t.S {
					if !yield(t.Row(b, s, h)) {
						return
					}
				}
			}
		}
	}
}
