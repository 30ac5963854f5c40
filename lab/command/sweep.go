package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"attnlab/harness"
	"attnlab/harness/machine"
	"attnlab/harness/run"
	"attnlab/lab/revision"
	"attnlab/lab/survey"
	"attnlab/reports"

	"github.com/alecthomas/kong"
)

// SweepCmd verifies and times every point of a grid.
type SweepCmd struct {
	Grid
	Samples   int           `placeholder:"N" help:"Samples of each point; default as many as --precision or --accepted takes. Example: 12."`
	Accepted  int           `placeholder:"N" help:"Sample until N samples of each point count for its share of the peak. A sample does not count if the machine's speed changed or another thread used the core meanwhile. --samples is then the least number. Example: 31."`
	Wait      time.Duration `placeholder:"TIME" help:"Longest wait of a sample for a quiet core. Within it a sample that does not count is also repeated. Default 2s with --accepted, else none."`
	Precision float64       `default:"0.02" placeholder:"X" help:"Stop when the 95 % interval of every median is within this share of it, on both sides (${default})."`
	Budget    time.Duration `default:"2m" help:"Stop after this time in any case, verification included (${default}). The first round is always finished."`
	MaxMemory Bytes         `name:"max-memory" placeholder:"SIZE" help:"Skip points that need more memory; default half of what is available. Example: 2GB."`
	Timeout   time.Duration `default:"2m" help:"Fail a point when one of its samples takes longer (${default})."`
	Seed      uint64        `placeholder:"N" help:"Seed of the order of measurements; default random."`
	Resume    bool          `help:"Continue the run in --out. Program, machine, environment, flags and kernel paths must be the same. Give its peers again by --peer."`
	Out       string        `short:"o" placeholder:"DIR" help:"Run folder; default a fresh one under runs/."`

	Profile bool `help:"After all samples, run each point for two seconds under the CPU profiler. Read DIR/profiles with go tool pprof."`
	Disasm  bool `help:"Also list the hottest loop of each point in DIR/profiles, with the samples on each instruction. Includes --profile."`
}

// fixedFlags are the flags that a resumed run keeps: rows already written depend on them.
var fixedFlags = append(gridFlags(), "max-memory", "seed")

// Help is printed above the flags.
func (*SweepCmd) Help() string {
	return `Every flag marked grid takes a comma list, and every combination is a point. Each point is compared with the float64 definition before it is
timed. A point that this machine or kernel cannot do becomes a skipped row, with the reason. A point that answers wrongly, crashes or hangs becomes a
failed row, and the sweep continues.

Features of --with, joined by +:

- Terms of the scores: temp:T softcap:X bias alibi sinks relative relative-clipped:N metric metric-rect:D rope rope-halves.

- Masks: bool and packed show nearly all pairs, or bool:SHARE and packed:SHARE that share of them; block:SIDE:SHARE shows that share of the blocks. Hidden
pairs do not count as work.

- Lengths: lengths gives each batch entry another number of keys. ragged[:LEAST] puts --batch sequences of LEAST to --seq rows into one call;
ragged-alone[:LEAST] runs the same sequences one by one, each through a plan of its own length.

- By-products: lse mean entropy max argmax weights scores.

- Linear attention: elu+1 relu+1 identity unnormalised eps:X. Without a map it has elu+1, and with most rules identity+unnormalised.

Rules of --rule say how the state of linear attention changes with each token. They read tokens in order, so the mask is causal:

- plain: no rule: a token adds its key times its value.

- gated: the same, and the state decays before each token by a gate per head.

- delta, gated-delta, kda: a token replaces what the state has under its key (DeltaNet, gated DeltaNet, Kimi delta attention with a gate per key channel).

- gla, ssd, retnet, lightning: gates per key channel, the state-space dual of Mamba-2, constant gates per head, and their steepest form.

With --seq 1 a rule decodes: each call reads one token and updates the state in place. Such rows are judged by the bytes of the state, read and written,
against a probe that updates the same memory.

The last table shows what a feature costs, where its plain point stands beside it. It does so for features, rules, --store, --page, fewer --kv-heads and
windows, and for ragged beside ragged-alone.

With --layer a kernel is timed inside a layer of package nn, forward or both ways (--pass). The layer's rows are --heads times --dim wide. The table and
bench.txt then show rows per second, and the shares of the time that attention and products take. The note of a row shows which share of the peak the
attention inside the layer reaches.

- mha: multi-head attention: four projections and the attention between them.

- block: a transformer block with its norms first: mha, and a feed-forward layer four times as wide.

- decode: a block that reads one row of each of --batch sequences. Its cache holds the --seq less one rows before, stored as --store and --page say.

Profiles are made after the last sample, in processes of their own, so no time is that of a profiled process. With --resume they are added to a run that
has none. go tool pprof -top FILE shows where the time went, in assembly loops too.

Ctrl-C finishes the current sample, saves, and prints how to resume. A second Ctrl-C stops at once.`
}

// check refuses bad values of flags that are not part of the grid.
func (c *SweepCmd) check() error {
	switch {
	case c.Samples < 0:
		return exitf(exitUsage, "--samples %d: want 1 or more, or 0 to let --precision decide", c.Samples)
	case c.Accepted < 0:
		return exitf(exitUsage, "--accepted %d: want 1 or more, or 0 to take any", c.Accepted)
	case !(c.Precision > 0):
		return exitf(exitUsage, "--precision %v: want a positive part of one, such as 0.02", c.Precision)
	case c.Budget < 0 || c.Timeout < 0 || c.Wait < 0:
		return exitf(exitUsage, "--budget %v --timeout %v --wait %v: want a positive time, or 0 for none", c.Budget, c.Timeout, c.Wait)
	}
	return nil
}

// Run does the sweep.
func (c *SweepCmd) Run(k *kong.Context, to streams, lab Lab) error {
	if c.Resume {
		return c.resume(k, to, lab)
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	lab, peers, err := c.among(lab, c.Timeout)
	if err != nil {
		return err
	}
	defer lab.close()
	measured := lab.server()
	points, err := c.points(lab, to.Err)
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		dir = freshFolder("sweep")
	}
	meta, err := lab.newMeta(k, c.Seed)
	if err != nil {
		return err
	}
	meta.Peers, meta.PeerSum, meta.Paths = peers, c.Peers.sum(), harness.Paths(measured.Kernels).Of(points)
	j, err := run.Create(dir, meta)
	if err != nil {
		return err
	}
	return c.finish(measured, points, j, to)
}

// resume continues a run. A flag that is not given keeps the value with which the run was begun. A
// flag on which rows depend may not change.
func (c *SweepCmd) resume(k *kong.Context, to streams, lab Lab) error {
	if c.Out == "" {
		return exitf(exitUsage, "--resume: name the run folder with -o DIR")
	}
	j, err := run.Resume(c.Out)
	if err != nil {
		return err
	}
	defer j.Close()
	for _, w := range j.Run().Warnings {
		fmt.Fprintf(to.Err, "benchrun: %s\n", w)
	}
	meta := j.Run().Meta
	if err := cmp.Or(lab.sameMachine(meta), sameProgram(meta)); err != nil {
		return exitf(exitUsage, "%s: %w", c.Out, err)
	}
	line, err := againWith(k, meta.Flags, c.Out, fixedFlags, to)
	if err != nil {
		return err
	}
	began := &line.Sweep
	if err := began.check(); err != nil {
		return err
	}
	lab, peers, err := began.among(lab, began.Timeout)
	if err != nil {
		return err
	}
	defer lab.close()
	if err := samePeers(c.Out, meta, peers, began.Peers); err != nil {
		return err
	}
	measured := lab.server()
	points, err := began.points(lab, to.Err)
	if err != nil {
		return err
	}
	if err := samePaths(meta, harness.Paths(measured.Kernels).Of(points)); err != nil {
		return exitf(exitUsage, "%s: %w", c.Out, err)
	}
	for _, cell := range j.Run().Cells {
		if !slices.Contains(points, cell.Point) {
			return exitf(exitUsage, "%s: %s is in this run and not in the grid of its flags: another version of benchrun began it", c.Out, cell.Point.Name())
		}
	}
	return began.finish(measured, points, j, to)
}

// againWith returns the command line with which the run in dir was begun, changed by the flags that
// are given now. Flags in fixed may not change. Peers are started only if they are given now: a
// folder may come from anywhere, and must not choose what runs here.
func againWith(k *kong.Context, flags map[string]string, dir string, fixed []string, to streams) (*commands, error) {
	given, values := given(k), flagValues(k)
	if was := flags["peer"]; was != "" && !given["peer"] {
		return nil, exitf(exitUsage, "%s: the run was begun with peers, which are programs of this machine that you start. Type: benchrun %s --resume --out=%q --peer=%q, with the path and the arguments that they had then, which run.json does not keep",
			dir, k.Selected().Name, dir, shownFlag("peer", was))
	}
	args := []string{k.Selected().Name, "--resume", "--out=" + dir}
	for name, was := range flags {
		switch now := values[name]; {
		case name == "resume" || name == "out":
		case given[name] && shownFlag(name, now) != shownFlag(name, was) && slices.Contains(fixed, name):
			return nil, exitf(exitUsage, "--%s is %s, but the run in %s was begun with %s: leave the flag out, or choose another folder", name, shownFlag(name, now), dir,
				shownFlag(name, was))
		case given[name]:
			args = append(args, "--"+name+"="+now)
		case was != "":
			args = append(args, "--"+name+"="+was)
		}
	}
	line, _, err := parse(args, to)
	if err != nil {
		return nil, exitf(exitUsage, "%s: the flags of this run do not read here: %w", dir, err)
	}
	return line, nil
}

// shownFlag returns the value of a flag for messages and run.json: without the arguments of peers.
func shownFlag(name, value string) string {
	if name == "peer" && value != "" {
		return run.RedactedPeers(value)
	}
	return value
}

// finish sweeps, prints the outcome, and says how to make charts of it.
func (c *SweepCmd) finish(lab *harness.Server, points []run.Point, j *run.Journal, to streams) error {
	o, err := c.sweep(lab, points, j, to)
	if err != nil {
		return err
	}
	err = conclude(o, j, to)
	fmt.Fprintf(to.Err, "charts and tables of it: benchrun report %s\n", j.Run().Dir)
	return err
}

// sweep measures the points into the journal, in worker processes, until it is done or interrupted.
func (c *SweepCmd) sweep(lab *harness.Server, points []run.Point, j *run.Journal, to streams) (o harness.Outcome, err error) {
	client, err := newClient(c.Timeout, c.Peers)
	if err != nil {
		return o, err
	}
	defer client.Close()
	ctx, stop, release := interruptible(to.Err)
	defer release()
	tell, done := newProgress(to.Err)
	s := &harness.Sweep{
		Recorder: harness.Recorder{Workload: lab.Workload, Worker: client, Journal: j, MaxMemory: c.MaxMemory.limit(), CPUs: runtime.NumCPU()},
		Points:   points, Samples: c.Samples, Accepted: c.Accepted, Precision: c.Precision, Budget: c.Budget, Wait: c.Wait, Tell: tell,
	}
	if s.Wait == 0 && s.Accepted > 0 {
		s.Wait = 2 * time.Second
	}
	before, had := machine.ReadUsage()
	o, err = s.Run(ctx, stop)
	if err == nil && (c.Profile || c.Disasm) {
		err = c.profiles(ctx, stop, client, j.Run(), &o, to, tell)
	}
	done()
	r := j.Run()
	if err != nil {
		return o, kept(err, "sweep", r.Dir)
	}
	if after, has := machine.ReadUsage(); had && has {
		if r.Meta.Noise == nil {
			r.Meta.Noise = map[string]string{}
		}
		r.Meta.Noise["stolen during the run"] = machine.Percent(before.Stolen(after))
	}
	return o, errors.Join(run.WriteMeta(r.Dir, r.Meta), r.Write())
}

// kept adds to an error that ended measurements, such as a full disk, how to continue. No sample is
// lost.
func kept(err error, command, dir string) error {
	return fmt.Errorf("%w; what was measured is kept, to go on: benchrun %s --resume -o %s", err, command, dir)
}

// interruptible returns a channel that the first Ctrl-C closes, and a context that the second one
// cancels.
func interruptible(tell io.Writer) (ctx context.Context, stop chan struct{}, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stop = make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			select {
			case <-stop:
				cancel()
			default:
				fmt.Fprintln(tell, "\nfinishing the measurement in hand; Ctrl-C again stops at once")
				close(stop)
			}
		}
	}()
	return ctx, stop, func() { signal.Stop(signals); cancel() }
}

// conclude prints the outcome of a sweep, and turns it into an exit code.
func conclude(o harness.Outcome, j *run.Journal, to streams) error {
	r := j.Run()
	if err := j.Close(); err != nil {
		return err
	}
	if err := reports.Table(to.Out, r); err != nil {
		return err
	}
	fmt.Fprintf(to.Err, "\n%s: %d points, %s", r.Dir, o.Points, o.Reason)
	for _, n := range []struct {
		n    int
		what string
	}{{o.Wide, "with a wider interval than asked"}, {o.Few, "with fewer samples than asked"}, {o.Skipped, "skipped"}, {o.Failed, "failed"}, {o.Wrong, "wrong"}} {
		if n.n > 0 {
			fmt.Fprintf(to.Err, ", %d %s", n.n, n.what)
		}
	}
	fmt.Fprintln(to.Err)
	switch {
	case o.Wrong > 0:
		return exitf(exitWrong, "%d of %d points answer wrongly", o.Wrong, o.Points)
	case o.Reason == harness.Interrupted:
		return exitf(exitIncomplete, "interrupted; to go on: benchrun sweep --resume -o %s", r.Dir)
	case o.Failed > 0:
		return exitf(exitIncomplete, "%d of %d points failed", o.Failed, o.Points)
	}
	return nil
}

// freshFolder names a folder under runs/ that does not exist yet.
func freshFolder(kind string) string {
	base := filepath.Join("runs", time.Now().Format("2006-01-02T150405")+"-"+kind)
	for dir, i := base, 2; ; i++ {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return dir
		}
		dir = fmt.Sprintf("%s-%d", base, i)
	}
}

// newMeta returns the run.json of a run that begins now.
func (l Lab) newMeta(k *kong.Context, seed uint64) (run.Meta, error) {
	flags := flagValues(k)
	flags["seed"] = fmt.Sprint(seed)
	flags["peer"] = shownFlag("peer", flags["peer"])
	program, err := thisProgram()
	if err != nil {
		return run.Meta{}, err
	}
	peaks, noise := l.surveyor().Peaks()
	_, counters, none := machine.Counters()
	d, err := survey.Diagnosed(l.Sets.Available())
	for i := range peaks {
		peaks[i].Slots = max(peaks[i].Slots, d.Slots[peaks[i].ISA])
	}
	return run.Meta{
		Started: time.Now().UTC().Truncate(time.Second), Commit: run.ProgramCommit(), Program: program, Command: run.Redacted(append([]string{"benchrun"}, os.Args[1:]...)),
		Flags: flags, Seed: seed, Machine: machine.Fingerprint(l.Sets.Available()), Env: run.Environment(), Peaks: peaks, Noise: noise,
		Counters: machine.DescribeCounters(counters, none), Floors: d.Floors(),
	}, err
}

// sameMachine refuses to continue a run that was begun on another machine or in another
// environment.
func (l Lab) sameMachine(m run.Meta) error {
	if d := m.Machine.Differences(machine.Fingerprint(l.Sets.Available())); len(d) > 0 {
		return fmt.Errorf("this is another machine than the one the run was begun on: %s", strings.Join(d, "; "))
	}
	if d := run.EnvDifferences(m.Env, run.Environment()); len(d) > 0 {
		return fmt.Errorf("the environment is not the one the run was begun in: %s; set these variables as they were, or begin another run", strings.Join(d, "; "))
	}
	return nil
}

// sameProgram refuses to continue a run of another program. The hash of the program decides: one
// commit can be built into many programs.
func sameProgram(m run.Meta) error {
	now, err := thisProgram()
	if err != nil || now == m.Program {
		return err
	}
	return fmt.Errorf("the run was begun by another program, %.12s of commit %v; this one is %.12s of commit %v: go on with that program, or begin another run",
		cmp.Or(m.Program, "unknown"), m.Commit, now, run.ProgramCommit())
}

// samePaths refuses to continue a run whose kernels take another path now.
func samePaths(m run.Meta, now run.Paths) error {
	if d := m.Paths.Differences(now); len(d) > 0 {
		return fmt.Errorf("kernels take other paths than when the run was begun, and are other kernels: %s; go on where they take the paths that they had, or begin another run", strings.Join(d, "; "))
	}
	return nil
}

// thisProgram returns the SHA-256 of this executable.
func thisProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return revision.Sum(path)
}

// samePeers refuses to continue a run with other peers, other versions of them, or other arguments.
func samePeers(dir string, m run.Meta, now map[string]string, with Peers) error {
	switch sum := with.sum(); {
	case m.PeerSum != "" && m.PeerSum != sum:
		return exitf(exitUsage, "%s: --peer has other arguments than those it was begun with: give them as they were then, or choose another folder", dir)
	case maps.Equal(m.Peers, now):
		return nil
	}
	return exitf(exitUsage, "%s: it was begun with peers %v, and they are %v now", dir, m.Peers, now)
}

// flagValues returns the value of every flag of the selected command, spelt as on a command line.
func flagValues(k *kong.Context) map[string]string {
	values := map[string]string{}
	for _, f := range k.Selected().Flags {
		v := reflect.ValueOf(k.FlagValue(f))
		switch {
		case v.Kind() == reflect.Slice:
			parts := make([]string, v.Len())
			for i := range parts {
				parts[i] = fmt.Sprint(v.Index(i))
			}
			values[f.Name] = kong.JoinEscaped(parts, ',')
		case v.IsZero():
			values[f.Name] = ""
		default:
			values[f.Name] = fmt.Sprint(v)
		}
	}
	return values
}

// given returns the flags that stand on the command line.
func given(k *kong.Context) map[string]bool {
	names := map[string]bool{}
	for _, p := range k.Path {
		if p.Flag != nil {
			names[p.Flag.Name] = true
		}
	}
	return names
}
