// Package docs_test keeps the README and docs/ true: what they tell to run is run,
// what they tell to write into a config loads, what they link to is there.
package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"wgsteer/internal/config"
	"wgsteer/loadbalance"
)

// root is the project's folder, seen from this one.
const root = ".."

// pages returns the README and all pages of docs/, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, path := range append(paths, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) < 500 {
			t.Errorf("%s has %d bytes: nobody is helped by that", path, len(text))
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = string(text)
	}
	return found
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocks returns the fenced blocks of a language in a page.
func blocks(page, language string) []string {
	var found []string
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		if block[1] == language {
			found = append(found, block[2])
		}
	}
	return found
}

func TestEveryBlockIsOfALanguageThatIsChecked(t *testing.T) {
	for name, page := range pages(t) {
		for _, block := range fence.FindAllStringSubmatch(page, -1) {
			if language := block[1]; language != "sh" && language != "yaml" && language != "" {
				t.Errorf("%s has a block of %q, which no test looks at", name, language)
			}
			// A block without a language is a picture: nothing in it can be run.
			if block[1] == "" && strings.Contains(block[2], "\n$ ") {
				t.Errorf("%s has a command in a block without a language:\n%s", name, block[2])
			}
		}
	}
}

func TestConfigsLoad(t *testing.T) {
	for name, page := range pages(t) {
		for _, block := range blocks(page, "yaml") {
			for _, side := range []config.Side{config.ForServer, config.ForAgent} {
				if _, err := config.Parse([]byte(block), side); err != nil {
					t.Errorf("%s, side %d: %v\n%s", name, side, err, block)
				}
			}
		}
	}
}

// byCI are the commands that .ci/run runs, and that would be run twice here.
var byCI = map[string]string{
	"make demo":  "make demo",
	"make test":  "make check", // which ends with make test
	"make bench": "make bench BENCHTIME=1x",
}

func TestCommandsRun(t *testing.T) {
	ci, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	path := buildPrograms(t) + ":" + os.Getenv("PATH")
	for name, page := range pages(t) {
		for _, line := range strings.Split(strings.Join(blocks(page, "sh"), ""), "\n") {
			switch run, there := byCI[line]; {
			case line == "":
			case there && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(run)+`$`).Match(ci):
				t.Errorf("%s tells to run %q, but .ci/run does not run %q", name, line, run)
			case there:
			default:
				t.Run(name+": "+line, func(t *testing.T) { shell(t, path, line) })
			}
		}
	}
}

// buildPrograms builds both programs and returns the folder that they are in.
func buildPrograms(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, program := range []string{"server", "agent"} {
		build := exec.Command("go", "build", "-o", filepath.Join(folder, "wgsteer-"+program), "./"+program)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
	}
	return folder
}

// shell runs a command as a reader would, in the project's folder.
func shell(t *testing.T, path, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Dir = root
	command.Env = append(os.Environ(), "PATH="+path)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
}

func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	mention := regexp.MustCompile("(?:`|^|= ?1 )make ([a-z]+)[` ]")
	for name, page := range pages(t) {
		for _, target := range mention.FindAllStringSubmatch(page, -1) {
			if !regexp.MustCompile(`(?m)^` + target[1] + `:`).Match(makefile) {
				t.Errorf("%s mentions `make %s`, which the Makefile does not have", name, target[1])
			}
		}
	}
}

func TestLinksToFilesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^):]+)\)`)
	for name, page := range pages(t) {
		for _, target := range link.FindAllStringSubmatch(page, -1) {
			file, heading, inside := strings.Cut(target[1], "#")
			path := filepath.Join(root, name)
			if file != "" {
				path = filepath.Join(root, filepath.Dir(name), file)
			}
			text, err := os.ReadFile(path)
			if info, statErr := os.Stat(path); statErr == nil && info.IsDir() && !inside {
				continue
			}
			if err != nil {
				t.Errorf("%s links to %s: %v", name, target[1], err)
			} else if inside && !slices.Contains(headings(string(text)), heading) {
				t.Errorf("%s links to %s, but there is no such heading", name, target[1])
			}
		}
	}
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// headings are the headings of a page, as links name them.
func headings(page string) []string {
	var found []string
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		anchor := notInAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
		found = append(found, strings.ReplaceAll(anchor, " ", "-"))
	}
	return found
}

func TestFlagsExist(t *testing.T) {
	path := buildPrograms(t)
	help, err := exec.Command(filepath.Join(path, "wgsteer-server"), "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile("[ `](--[a-z][a-z-]*)")
	for _, mention := range flag.FindAllStringSubmatch(pages(t)["README.md"], -1) {
		if !strings.Contains(string(help), mention[1]) {
			t.Errorf("README.md mentions %s, which --help does not", mention[1])
		}
	}
}

func TestTheWorkedExample(t *testing.T) {
	candidates := []loadbalance.Candidate{
		{Name: "gw04", Weight: 30, Peers: 40}, {Name: "gw05", Weight: 30, Peers: 40},
		{Name: "gw06", Weight: 20, Peers: 40}, {Name: "gw07", Weight: 20, Peers: 40},
	}
	page := pages(t)["docs/steering.md"]
	for _, s := range loadbalance.Explain(candidates) {
		row := fmt.Sprintf("| %s | %d | %d | %g | %+g |", s.Name, s.Weight, s.Peers, s.Target, s.Diff)
		if !strings.Contains(page, strings.ReplaceAll(row, "-", "−")) {
			t.Errorf("the example in docs/steering.md has no row %s", row)
		}
	}
	for _, want := range []string{"gw04", "gw05"} {
		i := loadbalance.Index(candidates)
		if candidates[i].Name != want {
			t.Errorf("the next node goes to %s, docs/steering.md says %s", candidates[i].Name, want)
		}
		candidates[i].Peers++
	}
}
