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

// A Run is a folder, and how what fills it is told.
type Run struct {
	Dir     string
	Resume  bool
	Threads int
	Every   int64   // steps from one checkpoint of a training to the next
	Levels  []Level // drawn across the curve of losses

	name     string
	settings []byte
	progress io.Writer
}

// A Level is a number to compare with.
type Level struct {
	Name string
	Y    float64
}

// settingsFile holds what a run was begun with.
const settingsFile = "settings.json"

// Begin reads a command line over settings with their defaults: flags declares those of the
// settings. With -resume the settings are those that the run in the folder was begun with, and
// flags that contradict them are an error. Nothing is written yet.
func Begin[S comparable](name string, args []string, s S, flags func(*flag.FlagSet, *S), progress io.Writer) (S, *Run, error) {
	r := &Run{name: name, progress: progress}
	parse := func(s *S) error {
		set := flag.NewFlagSet(name, flag.ContinueOnError)
		set.StringVar(&r.Dir, "o", "", "`folder` of the run; default a fresh one under runs/")
		set.BoolVar(&r.Resume, "resume", false, "go on with the run in the folder that -o names, with the settings it was begun with")
		set.IntVar(&r.Threads, "threads", runtime.NumCPU(), "`number` of threads; the numbers that come out are the same")
		set.Int64Var(&r.Every, "every", 50, "`steps` between checkpoints")
		flags(set, s)
		set.SetOutput(io.Discard) // an error is told once, by who gets it
		err := set.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(progress)
			set.Usage()
		}
		if err == nil && set.NArg() > 0 {
			err = fmt.Errorf("%q: there are only flags, see -help", set.Arg(0))
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

// began reads the settings of a run, which parse must leave as they are.
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
		return was, fmt.Errorf("the run in %s was begun with other settings: leave their flags out, or choose another folder; these were %s", dir, text)
	}
	return was, nil
}

// fresh is the name of a folder that is not there yet.
func fresh(name string) string {
	base := filepath.Join("runs", time.Now().Format("2006-01-02T150405")+"-"+name)
	for dir, i := base, 2; ; i++ {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return dir
		}
		dir = fmt.Sprintf("%s-%d", base, i)
	}
}

// Open makes the folder of a run that is not resumed. It refuses one that holds a run.
func (r *Run) Open() error {
	if r.Resume {
		return nil
	}
	if _, err := os.Stat(r.Path(settingsFile)); err == nil {
		return fmt.Errorf("%s holds a run: go on with it by -resume, or choose another folder with -o", r.Dir)
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.Path(settingsFile), append(r.settings, '\n'), 0o666)
}

// Settings is what the run was begun with, as text.
func (r *Run) Settings() string { return string(r.settings) }

// Path is that of a file of the run.
func (r *Run) Path(file string) string { return filepath.Join(r.Dir, file) }
