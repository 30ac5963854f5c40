package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"attnlab/harness"
	"attnlab/harness/profile"
	"attnlab/harness/run"
)

// profileFile returns the path of a point's profile, whose ext is .pprof, or of its listing: .txt.
func profileFile(dir string, at run.Point, ext string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(at.Name(), "Attention/"), "/", ",")
	return filepath.Join(dir, run.ProfilesDir, run.FileName(name)+ext)
}

// profiles profiles every point that has numbers and no profile yet. A point that cannot be
// profiled keeps its numbers.
func (c *SweepCmd) profiles(
	ctx context.Context, stop <-chan struct{}, client *harness.Client, r *run.Run, o *harness.Outcome, to streams, tell func(harness.Progress),
) error {
	for i, cell := range r.Cells {
		if cell.Row().Status != run.OK || c.profiled(r.Dir, cell.Point) {
			continue
		}
		select {
		case <-stop:
			o.Reason = harness.Interrupted
		default:
		}
		if o.Reason == harness.Interrupted {
			return nil
		}
		if tell != nil {
			tell(harness.Progress{Phase: "profile", Done: i, Total: len(r.Cells), Point: cell.Point, Width: math.Inf(1), Left: -1})
		}
		data, err := client.Profile(ctx, cell.Point)
		switch {
		case ctx.Err() != nil:
			o.Reason = harness.Interrupted
			return nil
		case errors.Is(err, harness.ErrNoWorker):
			return err
		case err != nil:
			fmt.Fprintf(to.Err, "benchrun: no profile of %s: %v\n", cell.Point.Name(), err)
			continue
		}
		if err := c.keepProfile(r.Dir, cell.Point, data); err != nil {
			return err
		}
		fmt.Fprintf(to.Err, "profile: %s\n", profileFile(r.Dir, cell.Point, ".pprof"))
	}
	return nil
}

// profiled reports whether the files that the flags ask for exist.
func (c *SweepCmd) profiled(dir string, at run.Point) bool {
	_, err := os.Stat(profileFile(dir, at, ".pprof"))
	if err == nil && c.Disasm {
		_, err = os.Stat(profileFile(dir, at, ".txt"))
	}
	return err == nil
}

// keepProfile writes a profile, and its listing if --disasm asks for it. The worker ran this
// program, so addresses have the same meaning here.
func (c *SweepCmd) keepProfile(dir string, at run.Point, data []byte) error {
	if err := os.MkdirAll(filepath.Join(dir, run.ProfilesDir), 0o755); err != nil {
		return err
	}
	if err := run.Replace(profileFile(dir, at, ".pprof"), data); err != nil || !c.Disasm {
		return err
	}
	p, err := profile.Parse(data)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, at.Name())
	if err := p.WriteListing(&text, program); err != nil {
		return err
	}
	return run.Replace(profileFile(dir, at, ".txt"), text.Bytes())
}
