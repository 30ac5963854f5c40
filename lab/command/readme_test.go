package command

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"attnlab/attn"
	"attnlab/attn/cases"
	"attnlab/harness/run"
	"attnlab/internal/processtest"
	"attnlab/kernels"
	"attnlab/kernels/naive"
	"attnlab/reports"

	"github.com/alecthomas/kong"
)

const (
	root         = "../.."
	readmePage   = "README.md"
	commandsPage = "docs/commands.md"
)

// A shownLine is a command line of benchrun that a page shows.
type shownLine struct {
	page    string
	args    []string
	mention bool // a subcommand without its arguments, in a sentence
}

func (l shownLine) String() string {
	return l.page + ": benchrun " + strings.Join(l.args, " ")
}

var (
	fenced     = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	ofBenchrun = regexp.MustCompile(`^(?:\$ )?(?:go run \./cmd/benchrun|benchrun)(?: (.*))?$`)
	remark     = regexp.MustCompile(`(^| +)#.*`)
	shellWord  = regexp.MustCompile(`'[^']*'|\S+`)
)

// shownLines returns the command lines of benchrun on a page: lines of its code blocks, up to a
// remark that begins with #, and code in its paragraphs.
func shownLines(t *testing.T, page string) []shownLine {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	text := fenced.ReplaceAllStringFunc(string(b), func(block string) string {
		for line := range strings.Lines(block) {
			code = append(code, strings.TrimSpace(remark.ReplaceAllString(line, "")))
		}
		return ""
	})
	inBlocks := len(code)
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		code = append(code, strings.ReplaceAll(m[1], "\n", " "))
	}
	var lines []shownLine
	for i, c := range code {
		if m := ofBenchrun.FindStringSubmatch(c); m != nil {
			args := shellWord.FindAllString(m[1], -1)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "'", "")
			}
			lines = append(lines, shownLine{page, args, i >= inBlocks && len(args) <= 1})
		}
	}
	return lines
}

// pages returns the pages that show commands, relative to the root of the module.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	list := []string{readmePage, "CONTRIBUTING.md"}
	for _, d := range docs {
		list = append(list, "docs/"+filepath.Base(d))
	}
	return list
}

// TestShownCommands checks that the program takes every command line that a page shows, and that
// the grid of each sweep can be laid out.
func TestShownCommands(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		for _, line := range shownLines(t, page) {
			found++
			if slices.Contains(line.args, "...") { // a part is left out
				continue
			}
			if line.mention {
				if name := strings.Join(line.args, ""); name != "" && !slices.Contains(subcommands(t), name) {
					t.Errorf("%v: there is no such subcommand", line)
				}
				continue
			}
			c, k, err := parse(line.args, streams{io.Discard, io.Discard})
			if err != nil {
				t.Errorf("%v: %v", line, err)
				continue
			}
			if k.Command() != "sweep" || c.Sweep.Resume {
				continue
			}
			lab, err := c.Sweep.join(labOf(kernels.All()))
			for i, k := range lab.Kernels {
				if name, isa := k.Name(); isa == attn.Native { // its program may not be installed
					lab.Kernels[i] = standIn{naive.New(), name}
				}
			}
			if err == nil {
				_, err = c.Sweep.points(lab, io.Discard)
			}
			if err != nil {
				t.Errorf("%v: %v", line, err)
			}
		}
	}
	if found < 40 {
		t.Errorf("found %d command lines, want 40 or more: the pages have more", found)
	}
}

// subcommands returns the names of the subcommands that the help lists.
func subcommands(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range commandNodes(t) {
		names = append(names, c.Name)
	}
	return names
}

// commandNodes returns the subcommands that the help lists.
func commandNodes(t *testing.T) (list []*kong.Node) {
	t.Helper()
	_, k, err := parse([]string{"list"}, streams{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range k.Model.Children {
		if !c.Hidden {
			list = append(list, c)
		}
	}
	return list
}

// A standIn is naive under the name of a peer.
type standIn struct {
	attn.Kernel
	name string
}

func (k standIn) Name() (algo, isa string) { return k.name, attn.Native }

// runShown makes TestShownCommandsRun run the lines of docs/commands.md too, which takes a minute.
var runShown = flag.Bool("shown", false, "run every command of docs/commands.md")

// TestShownCommandsRun runs the command lines of the README and of docs/commands.md, one after the
// other, on grids that take no time. Lines that need a revision, a peer, a terminal or minutes are
// left to TestShownCommands.
func TestShownCommandsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures")
	}
	self := processtest.Self(t)
	once := map[string]bool{}
	for page, least := range map[string]int{readmePage: 3, commandsPage: 25} {
		t.Run(page, func(t *testing.T) {
			if page == commandsPage && !*runShown {
				t.Skip("without -shown, the README's alone")
			}
			dir := t.TempDir()
			benchrun := func(args ...string) (output string, code int) {
				cmd := exec.Command(self, args...)
				cmd.Args[0], cmd.Dir = "benchrun", dir
				if len(args) == 0 || !slices.Contains([]string{"sweep", "doctor"}, args[0]) {
					cmd.Args[0] = "fewrun" // these go through every kernel
				}
				cmd.Env = append(os.Environ(), NoRaceSleep+"="+NoRaceSleepValue, "XDG_CACHE_HOME="+dir)
				out, err := cmd.CombinedOutput()
				return string(out), exitOf(err)
			}
			for _, run := range []string{"runs/old", "runs/new"} { // that a reader has
				out, code := benchrun("sweep", "--kernel=flash,naive", "--seq=8,16", "--dim=4,8", "--samples=6", "-o", run)
				if code != 0 {
					t.Fatalf("%s: exit code %d\n%s", run, code, out)
				}
			}
			outside := `[{"case": "one", "node": {"op": "Softplus", "inputs": [], "outputs": [], "attrs": {}}, "inputs": [], "outputs": []}]`
			if err := os.WriteFile(filepath.Join(dir, "node-tests"), []byte(outside), 0o644); err != nil {
				t.Fatal(err)
			}
			ran := 0
			for _, line := range shownLines(t, page) {
				args, ok := tiny(line.args)
				if !ok || line.mention {
					continue
				}
				ran++
				key := page + " " + strings.Join(args, " ")
				switch args[0] {
				case "quick", "doctor", "machine", "verify": // they take long
					key = strings.Join(args, " ")
				}
				if once[key] {
					continue
				}
				once[key] = true
				out, code := benchrun(args...)
				verdict := slices.Contains([]string{"ab", "compare", "gate"}, args[0]) && (code == exitWrong || code == exitUndecided)
				if code != 0 && !verdict {
					t.Errorf("%v, run as %q: exit code %d\n%s", line, args, code, out)
				}
			}
			if ran < least {
				t.Errorf("ran %d lines, want %d or more", ran, least)
			}
		})
	}
}

// tiny returns the arguments with lengths and limits that take no time, and whether they can be run
// at all.
func tiny(args []string) (short []string, ok bool) {
	has := func(flag string) bool { return slices.Contains(args, flag) }
	if has("--peer") || has("--serve") || has("--readme") {
		return nil, false
	}
	command := "quick"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command = args[0]
	}
	short = slices.Clone(args)
	for i := 1; i < len(short); i++ {
		switch short[i-1] {
		case "--seq":
			short[i] = lengths(8, short[i])
		case "--seq-kv":
			short[i] = lengths(64, short[i])
		case "--dim":
			short[i] = lengths(4, short[i])
		}
	}
	switch command {
	case "quick":
		if len(short) == 0 || short[0] != command {
			short = slices.Insert(short, 0, command)
		}
		return append(short, "--seq=8,16", "--budget=1ms"), true
	case "sweep":
		if !has("--seq") && !has("--resume") {
			short = append(short, "--seq=8")
		}
		if !has("--isa") && !has("--resume") {
			short = append(short, "--isa=go")
		}
		if !has("--mask") && !has("--resume") {
			short = append(short, "--mask=full")
		}
		return append(short, "--budget=1ms"), true
	case "verify":
		if !has("--core") {
			short = append(short, "--core")
		}
		if !has("--kernel") {
			short = append(short, "--kernel=naive")
		}
		return short, true
	case "ab":
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "kernel=") }) {
			return nil, false // it would build revisions
		}
		return append(short, "--seq=8", "--budget=1ms"), true
	case "doctor":
		return append(short, "--rounds=1"), true
	case "equations":
		return short, has("--id")
	}
	return short, true
}

// lengths returns two small numbers for a list of lengths, or one for one; 1 stays.
func lengths(step int, list string) string {
	entries := strings.Split(list, ",")
	entries = entries[:min(2, len(entries))]
	for i := range entries {
		if entries[i] != "1" {
			entries[i] = fmt.Sprint(step * (i + 1))
		}
	}
	return strings.Join(entries, ",")
}

// TestCommandsPage checks that docs/commands.md has every subcommand of the program, and every flag
// of each.
func TestCommandsPage(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, commandsPage))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, line := range shownLines(t, commandsPage) {
		if len(line.args) > 0 {
			shown[line.args[0]] = true
		}
	}
	for _, command := range commandNodes(t) {
		if !shown[command.Name] {
			t.Errorf("%s shows no command line of %s", commandsPage, command.Name)
		}
		for _, f := range command.Flags {
			name := regexp.MustCompile(`--` + regexp.QuoteMeta(f.Name) + `\b`)
			if short := f.Short; !f.Hidden && !name.Match(b) && (short == 0 || !strings.Contains(string(b), " -"+string(short)+" ")) {
				t.Errorf("%s does not mention --%s of %s", commandsPage, f.Name, command.Name)
			}
		}
	}
}

// TestREADMEOutput checks the output that the README shows: lines of the table of the run that it
// names, and lines of go test for packages that exist.
func TestREADMEOutput(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, readmePage))
	if err != nil {
		t.Fatal(err)
	}
	at := fenced.FindIndex(b)
	block, rest, _ := strings.Cut(string(b[at[0]:]), "\n```\n")
	link := regexp.MustCompile(`\]\((reports/history/[^)]+)\)`).FindStringSubmatch(rest)
	if link == nil {
		t.Fatalf("%s names no run below its first block", readmePage)
	}
	kept, err := run.ReadSummary(filepath.Join(root, link[1]))
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.Split(reports.Times(kept.Rows), "\n")
	// TestScripts demands this line of quick.
	summary := regexp.MustCompile(`^\d+ kernels, \d+ calls compared with the definition, 0 wrong$`)
	tested := regexp.MustCompile(`^ok\s+attnlab/(\S+)\s+\d+\.\d+s$`)
	outputs := 0
	for i, line := range strings.Split(block, "\n") {
		if i == 0 || strings.HasPrefix(line, "$ ") {
			continue
		}
		outputs++
		if m := tested.FindStringSubmatch(line); m != nil {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s shows a test of %s: %v", readmePage, m[1], err)
			}
		} else if !slices.Contains(printed, line) && !summary.MatchString(line) {
			t.Errorf("%s shows a line that %s did not print: %s", readmePage, link[1], line)
		}
	}
	if outputs != 8 {
		t.Errorf("%s shows %d lines of output, want 8", readmePage, outputs)
	}
}

// TestFamiliesAreExplained checks that the help of verify explains every family that its table
// shows.
func TestFamiliesAreExplained(t *testing.T) {
	_, help, _ := strings.Cut((*VerifyCmd)(nil).Help(), "Families: ")
	for _, c := range cases.All() {
		if !regexp.MustCompile(`\b` + c.Family + `\b`).MatchString(help) {
			t.Fatalf("%s is not in the help of verify", c.Family)
		}
	}
}
