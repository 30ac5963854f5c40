package peers

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"attnlab/attn"
	"attnlab/internal/group"
)

// A request and an answer in JSON.
type (
	request struct {
		ID      int64    `json:"id"`
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
		Linear  *linear `json:"linear,omitempty"`
	}
	linear struct {
		Feature      string  `json:"feature"`
		Unnormalised bool    `json:"unnormalised"`
		Eps          float64 `json:"eps"`
		Gate         string  `json:"gate"`
		Delta        bool    `json:"delta"`
		Norm         string  `json:"norm"`
		NormEps      float64 `json:"norm_eps"`
		HeadsV       int     `json:"heads_v"`
		State        bool    `json:"state"`
	}
	answer struct {
		ID       int64  `json:"id"`
		Error    string `json:"error"`
		About    string `json:"about"`
		Backward bool   `json:"backward"`
		Linear   bool   `json:"linear"`
		Refused  string `json:"refused"`
		Wall     int64  `json:"wall_ns"`
		CPU      int64  `json:"cpu_ns"`
	}
)

// planning returns a request about a problem.
func planning(do string, p *attn.Problem, threads int) request {
	is := &problem{
		Batch: p.Batch, HeadsQ: p.HeadsQ, HeadsKV: p.HeadsKV, SeqQ: p.SeqQ, SeqKV: p.SeqKV, Dim: p.Dim, DimV: p.DimV,
		Scale: p.Scale(), Mask: p.Mask.String(), Grads: p.Want&attn.WantGrad != 0,
	}
	if l := p.Linear; p.Op == attn.OpLinear {
		is.Linear = &linear{
			Feature: l.Feature.String(), Unnormalised: l.Unnormalised, Eps: l.Eps, Gate: l.Gate.String(), Delta: l.Delta,
			Norm: l.Norm.String(), NormEps: l.NormEps, HeadsV: p.ValueHeads(), State: hasState(p, p.SeqQ, p.SeqKV),
		}
	}
	return request{Do: do, Threads: threads, Problem: is}
}

// hasState reports whether a call with the given numbers of queries and keys sends a state.
func hasState(p *attn.Problem, queries, keys int) bool { return p.Carries() && queries == keys }

const (
	lineLimit  = 64 << 10 // bytes of an answer, without its tensors
	wordsLimit = 2 << 10  // bytes kept of the end of the standard error
	// time to end for a process whose input ended or that was killed
	grace = 3 * time.Second
	// time in which a process that closed its pipes may turn out to have ended
	notice = 200 * time.Millisecond
)

// A process is a running peer. It leads a process group, which is killed when it ends.
type process struct {
	kernel *Kernel
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	in     *bufio.Writer
	out    *bufio.Reader
	words  *tail
	ended  chan struct{} // closed when the process has ended and its group was killed
	killed atomic.Bool   // this program killed it
	asked  int64         // number of requests so far
	about  answer        // answer to the first request
	row    []byte
}

// launch starts a process.
func (k *Kernel) launch() (*process, error) {
	cmd := exec.Command(k.command[0], k.command[1:]...)
	cmd.Env = append(os.Environ(), k.env...)
	group.Lead(cmd)
	// These pipes replace those of exec.Cmd, which closes its own when the process ends, with the
	// last output still in them, and waits for every process that holds them.
	var ours, theirs [3]*os.File
	defer func() { closeAll(theirs[:]) }()
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:])
			return nil, k.fault("start", fmt.Sprintf("no pipe: %v", err))
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	if err := cmd.Start(); err != nil {
		closeAll(ours[:])
		return nil, k.fault("start", fmt.Sprintf("cannot run %s: %v", filepath.Base(k.command[0]), cause(err)))
	}
	p := &process{
		kernel: k, cmd: cmd, stdin: ours[0], stdout: ours[1], in: bufio.NewWriterSize(ours[0], lineLimit), out: bufio.NewReaderSize(ours[1], lineLimit),
		words: &tail{done: make(chan struct{})}, ended: make(chan struct{}),
	}
	k.runs(p, true)
	go func() {
		defer close(p.words.done)
		_, _ = io.Copy(p.words, ours[2])
	}()
	go func() {
		_ = cmd.Wait()
		group.Kill(cmd.Process.Pid)
		k.runs(p, false)
		close(p.ended)
		// A process that left the group may hold the pipes open.
		time.AfterFunc(grace, func() { closeAll(ours[:]) })
	}()
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// cause returns an error without the path that it contains.
func cause(err error) error {
	var program *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &program):
		return program.Err
	case errors.As(err, &path):
		return path.Err
	}
	return err
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool // something before it was dropped
	done chan struct{}
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-wordsLimit):]...)
	if over := len(t.kept) - wordsLimit; over > 0 {
		t.cut = true
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

// within reports whether an event happens within d.
func within(d time.Duration, event <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-event:
		return true
	case <-t.C:
		return false
	}
}

// kill ends a process, its group, and every exchange that waits for its pipes.
func (p *process) kill() {
	select {
	case <-p.ended:
	default:
		p.killed.Store(true)
		group.Kill(p.cmd.Process.Pid)
	}
	p.stdin.Close()
	p.stdout.Close()
	within(grace, p.ended)
}

// end closes the input of a process, and kills the process if it does not end by itself.
func (p *process) end() error {
	p.stdin.Close()
	if !within(grace, p.ended) {
		p.kill()
		return p.kernel.fault("close", fmt.Sprintf("it still ran %v after the end of its input", grace))
	}
	p.stdout.Close()
	if !p.cmd.ProcessState.Success() {
		return p.kernel.fault("close", p.gone(""))
	}
	return nil
}

// gone returns how a process ended. If it was killed, or has not ended, gone returns otherwise:
// what the end of its pipes means then.
func (p *process) gone(otherwise string) string {
	if !within(notice, p.ended) {
		p.kill()
	}
	select {
	case <-p.ended:
	default:
		return otherwise
	}
	if p.killed.Load() && !p.cmd.ProcessState.Exited() {
		return otherwise
	}
	return fmt.Sprintf("it ended (%v)", p.cmd.ProcessState)
}

// lastWords returns the end of the standard error of an ended process, as the end of a sentence.
func (p *process) lastWords() string {
	within(grace, p.words.done)
	p.words.mu.Lock()
	defer p.words.mu.Unlock()
	said := p.kernel.lastOf(p.words.kept, p.words.cut)
	if said == "" {
		return ""
	}
	return fmt.Sprintf("; its standard error ends in %q", said)
}

// ask makes one exchange: it writes a request with its tensors, and reads the answer with its
// tensors. It also returns the time until the answer. A process that fails an exchange is killed.
func (p *process) ask(q request, operands, results []*attn.Tensor) (a answer, took time.Duration, err error) {
	stop := func() bool { return true }
	limit, until := p.kernel.limit()
	if !until.IsZero() {
		stop = time.AfterFunc(time.Until(until), p.kill).Stop
	}
	p.asked++
	q.ID = p.asked
	begun := time.Now()
	fault := p.send(q, operands)
	if fault == "" {
		a, fault = p.receive(&q)
	}
	took = time.Since(begun)
	if fault == "" {
		fault = p.take(results)
	}
	if n := p.out.Buffered(); fault == "" && n > 0 {
		fault = fmt.Sprintf("got %d bytes more than the answer: its standard output is for answers alone", n)
	}
	late := !stop()
	if late {
		fault = fmt.Sprintf("no answer within %v", limit)
	}
	if fault == "" {
		return a, took, nil
	}
	p.kill()
	e := p.kernel.fault(q.stage(), fault+p.lastWords())
	e.Late = late
	return a, took, e
}

// stage returns the name of a request in messages.
func (q *request) stage() string {
	if q.Pass != "" {
		return q.Do + " " + q.Pass
	}
	return q.Do
}

// send writes a request. Like the other steps of an exchange it returns a fault, or "".
func (p *process) send(q request, operands []*attn.Tensor) (fault string) {
	err := json.NewEncoder(p.in).Encode(q) // Encode also ends the line
	for _, t := range operands {
		err = errors.Join(err, p.put(t))
	}
	if errors.Join(err, p.in.Flush()) != nil {
		return p.gone("it closed its standard input")
	}
	return ""
}

// receive reads the line of an answer.
func (p *process) receive(q *request) (a answer, fault string) {
	line, err := p.out.ReadSlice('\n')
	switch quoted := func() string { return p.kernel.quote(line) }; {
	case errors.Is(err, bufio.ErrBufferFull):
		return a, fmt.Sprintf("got %d bytes without an end of line, which begin with %s: want an answer on one line", len(line), quoted())
	case err != nil && len(line) > 0:
		return a, fmt.Sprintf("its answer breaks off after %s: %s", quoted(), p.gone("it closed its standard output"))
	case err != nil:
		return a, p.gone("it closed its standard output")
	}
	err = json.Unmarshal(line, &a)
	switch {
	case err != nil:
		fault = fmt.Sprintf("got %s, want an answer on a line of JSON: %v", p.kernel.quote(line), err)
	case a.ID != q.ID:
		fault = fmt.Sprintf("got the answer to request %d, want that to request %d: every request has one answer, which repeats its id", a.ID, q.ID)
	case a.Error != "":
		fault = "it says: " + p.kernel.clean(a.Error)
	case a.Refused != "" && q.Do != "check":
		fault = "it refuses here, want that at check: " + p.kernel.clean(a.Refused)
	}
	return a, fault
}

// take reads the tensors that follow an answer.
func (p *process) take(results []*attn.Tensor) (fault string) {
	got, all := 0, 0
	for _, t := range results {
		all += 4 * t.B * t.S * t.H * t.D
	}
	for _, t := range results {
		n, err := p.get(t)
		if got += n; err != nil {
			return fmt.Sprintf("got %d of %d bytes of tensors: %s", got, all, p.gone("it closed its standard output"))
		}
	}
	return ""
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

// get reads the rows of a tensor and returns the number of bytes read.
func (p *process) get(t *attn.Tensor) (got int, err error) {
	p.row = append(p.row[:0], make([]byte, 4*t.D)...)
	for row := range rows(t) {
		n, err := io.ReadFull(p.out, p.row)
		if got += n; err != nil {
			return got, err
		}
		if _, err := binary.Decode(p.row, binary.LittleEndian, row); err != nil {
			return got, err
		}
	}
	return got, nil
}

// rows iterates over the rows of a tensor in the order in which they are sent.
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
