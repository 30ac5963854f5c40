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

// A Checkpoint is everything that training needs to continue: the parameters, the optimiser's
// state, and other data of the training. Other data is JSON, such as the number of the step or the
// state of random numbers. Gradients are not included, because a step clears them first.
//
// A file has these parts:
//
//   - the mark "attnlabC"
//   - the length of the head: 8 bytes, lowest first
//   - the head as JSON: names and shapes of the parameters, shapes of the optimiser's matrices, its
//     steps, the other data
//   - the float32 numbers of the parameters and then of the optimiser, row by row, lowest byte
//     first
//   - the SHA-256 of all of this
type Checkpoint struct {
	Params    []*Param
	Optimiser Optimiser
	Rest      any // other data; a pointer, for Load
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

// head returns the head of the file to write or to expect, and the matrices behind it.
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

// Save writes the checkpoint to a file beside path and renames it to path when it is complete. If
// the process dies before that, the previous checkpoint stays.
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

// replace writes a file beside path, syncs it, and renames it to path.
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

// Load reads a checkpoint into parameters, an optimiser and other data of the same kind. If the
// file was truncated, altered, or written for others, it returns an error and changes nothing.
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
		return errors.New("not a checkpoint, or cut off")
	}
	body := text[:len(text)-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], text[len(body):]) {
		return errors.New("the checksum is wrong: the file was cut off or altered")
	}
	n := binary.LittleEndian.Uint64(body[len(checkpointMark):])
	if n > uint64(len(body)-begin) {
		return errors.New("the head is longer than the file")
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
		return fmt.Errorf("the parameters differ: there are %d, want %d, and number %d is %v, want %v",
			len(h.Params), len(want.Params), at, h.Params[at:min(at+1, len(h.Params))], want.Params[at:min(at+1, len(want.Params))])
	}
	if !slices.Equal(h.Memory, want.Memory) {
		return errors.New("the checkpoint has another optimiser")
	}
	numbers := body[begin+int(n):]
	size := 0
	for _, m := range all {
		size += 4 * m.Rows * m.Cols
	}
	if len(numbers) != size {
		return fmt.Errorf("the file has %d bytes of numbers, want %d", len(numbers), size)
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
