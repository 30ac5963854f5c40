package nn

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// A Checkpoint is all that training goes on from: parameters, what the optimiser remembers, and
// whatever else the training needs, as JSON: the number of the step, the state of its random
// numbers. Gradients are not in it: a step begins by clearing them.
//
// The file is the mark "attnlabC", the length of the head as 8 bytes, lowest first, the head as
// JSON (names and shapes of the parameters, how many matrices the optimiser has, its steps, the
// rest), the float32 numbers of the parameters and then of the optimiser, row by row, lowest byte
// first, and the SHA-256 of all that.
type Checkpoint struct {
	Params    []*Param
	Optimiser Optimiser
	Rest      any // a pointer, for Load
}

const checkpointMark = "attnlabC"

type checkpointHead struct {
	Params []checkpointShape
	Memory []checkpointShape
	Steps  int64
	Rest   json.RawMessage
}

type checkpointShape struct {
	Name       string `json:",omitempty"`
	Rows, Cols int
}

// head describes what is to be written, or must have been.
func (c *Checkpoint) head() (checkpointHead, []Mat) {
	var h checkpointHead
	var all []Mat
	for _, p := range c.Params {
		h.Params = append(h.Params, checkpointShape{p.Name, p.W.Rows, p.W.Cols})
		all = append(all, p.W)
	}
	memory, steps := c.Optimiser.State()
	for _, m := range memory {
		h.Memory = append(h.Memory, checkpointShape{Rows: m.Rows, Cols: m.Cols})
	}
	h.Steps = *steps
	return h, append(all, memory...)
}

// Save writes the checkpoint beside path first, and puts it in its place when it is whole: a
// process that dies meanwhile leaves the last one there.
func (c *Checkpoint) Save(path string) error {
	h, all := c.head()
	var err error
	if h.Rest, err = json.Marshal(c.Rest); err != nil {
		return fmt.Errorf("nn: checkpoint %s: %w", path, err)
	}
	head, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("nn: checkpoint %s: %w", path, err)
	}
	text := binary.LittleEndian.AppendUint64([]byte(checkpointMark), uint64(len(head)))
	text = append(text, head...)
	for _, m := range all {
		for i := range m.Rows {
			for _, x := range m.Row(i) {
				text = binary.LittleEndian.AppendUint32(text, math.Float32bits(x))
			}
		}
	}
	sum := sha256.Sum256(text)
	return replace(path, append(text, sum[:]...))
}

// replace writes a file beside path, sees it on the disk, and renames it.
func replace(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Load reads a checkpoint into parameters, an optimiser and a rest of the same kind. If the file
// was cut, altered, or written for others, the error says which, and nothing has changed.
func (c *Checkpoint) Load(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := c.parse(text); err != nil {
		return fmt.Errorf("nn: checkpoint %s: %w", path, err)
	}
	return nil
}

func (c *Checkpoint) parse(text []byte) error {
	const begin = len(checkpointMark) + 8
	if len(text) < begin+sha256.Size || string(text[:len(checkpointMark)]) != checkpointMark {
		return errors.New("this is no checkpoint, or it was cut off")
	}
	body := text[:len(text)-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], text[len(body):]) {
		return errors.New("its checksum is wrong: it was cut off or altered")
	}
	n := binary.LittleEndian.Uint64(body[len(checkpointMark):])
	if n > uint64(len(body)-begin) {
		return errors.New("its head is longer than the file")
	}
	var h checkpointHead
	if err := json.Unmarshal(body[begin:][:n], &h); err != nil {
		return err
	}
	want, all := c.head()
	if !slices.Equal(h.Params, want.Params) {
		at := 0
		for at < min(len(h.Params), len(want.Params)) && h.Params[at] == want.Params[at] {
			at++
		}
		return fmt.Errorf("its parameters are not these: there are %d, want %d, and from number %d on they are %v, want %v",
			len(h.Params), len(want.Params), at, h.Params[at:min(at+1, len(h.Params))], want.Params[at:min(at+1, len(want.Params))])
	}
	if !slices.Equal(h.Memory, want.Memory) {
		return errors.New("it is of another optimiser")
	}
	numbers := body[begin+int(n):]
	size := 0
	for _, m := range all {
		size += 4 * m.Rows * m.Cols
	}
	if len(numbers) != size {
		return fmt.Errorf("it has %d bytes of numbers, want %d", len(numbers), size)
	}
	if c.Rest != nil {
		if err := json.Unmarshal(h.Rest, c.Rest); err != nil {
			return err
		}
	}
	for _, m := range all {
		for i := range m.Rows {
			row := m.Row(i)
			for j := range row {
				row[j] = math.Float32frombits(binary.LittleEndian.Uint32(numbers))
				numbers = numbers[4:]
			}
		}
	}
	_, steps := c.Optimiser.State()
	*steps = h.Steps
	return nil
}
