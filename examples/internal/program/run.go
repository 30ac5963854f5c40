package program

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// A Run is a run folder with the options of its command line.
type Run struct {
	Dir     string
	Resume  bool
	Threads int
	Every   int64   // steps between checkpoints
	Levels  []Level // drawn as horizontal lines in the loss curve

	name     string
	settings []byte
	progress io.Writer
}

// A Level is a loss to compare with.
type Level struct {
	Name string
	Y    float64
}

// settingsFile holds the settings that a run began with.
const settingsFile = "settings.json"

// Begin parses a command line. The argument s has the default settings, and flags declares their
// flags. With -resume it returns the settings that the run in the folder began with, and reports
// flags that contradict them as an error. It writes nothing.
func Begin[S comparable](name string, args []string, s S, flags func(*flag.FlagSet, *S), progress io.Writer) (S, *Run, error) {
	r := &Run{name: name, progress: progress}
	parse := func(s *S) error {
		set := flag.NewFlagSet(name, flag.ContinueOnError)
		set.StringVar(&r.Dir, "o", "", "`folder` of the run; default: a new one under runs/")
		set.BoolVar(&r.Resume, "resume", false, "continue the run in the folder of -o, with the settings that it began with")
		set.IntVar(&r.Threads, "threads", runtime.NumCPU(), "`number` of threads; results do not depend on it")
		set.Int64Var(&r.Every, "every", 50, "`steps` between checkpoints")
		flags(set, s)
		set.SetOutput(io.Discard) // the caller prints errors
		err := set.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(progress)
			set.Usage()
		}
		if err == nil && set.NArg() > 0 {
			err = fmt.Errorf("%q: there are only flags; see -help", set.Arg(0))
		}
		return err
	}
	if err := parse(&s); err != nil {
		return s, nil, err
	}
	switch {
	case r.Resume && r.Dir == "":
		return s, nil, errors.New("-resume: name the folder of the run with -o")
	case r.Resume:
		var err error
		if s, err = began[S](r.Dir, parse); err != nil {
			return s, nil, err
		}
	case r.Dir == "":
		r.Dir = fresh(name)
	}
	var err error
	r.settings, err = json.MarshalIndent(s, "", "\t")
	return s, r, err
}

// began reads the settings of a run. It reports an error if parse changes them.
func began[S comparable](dir string, parse func(*S) error) (was S, err error) {
	path := filepath.Join(dir, settingsFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return was, fmt.Errorf("-resume: there is no run in %s", dir)
	}
	if err != nil {
		return was, err
	}
	if err := json.Unmarshal(text, &was); err != nil {
		return was, fmt.Errorf("%s: %w", path, err)
	}
	now := was
	if err := parse(&now); err != nil {
		return was, err
	}
	if now != was {
		return was, fmt.Errorf("the run in %s was begun with other settings: leave these flags out, or choose another folder; its settings are %s", dir, text)
	}
	return was, nil
}

// fresh returns the name of a folder that does not exist.
func fresh(name string) string {
	base := filepath.Join("runs", time.Now().Format("2006-01-02T150405")+"-"+name)
	for dir, i := base, 2; ; i++ {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return dir
		}
		dir = fmt.Sprintf("%s-%d", base, i)
	}
}

// Open creates the folder of a new run, and does nothing for a resumed one. It refuses a folder
// that holds a run.
func (r *Run) Open() error {
	if r.Resume {
		return nil
	}
	if _, err := os.Stat(r.Path(settingsFile)); err == nil {
		return fmt.Errorf("%s holds a run: continue it with -resume, or choose another folder with -o", r.Dir)
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.Path(settingsFile), append(r.settings, '\n'), 0o666)
}

// Settings returns the settings that the run began with, as JSON.
func (r *Run) Settings() string { return string(r.settings) }

// Path returns the path of a file in the run folder.
func (r *Run) Path(file string) string { return filepath.Join(r.Dir, file) }
