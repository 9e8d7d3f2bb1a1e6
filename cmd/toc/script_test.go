package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// TestScripts runs the pages of testdata/script, which show each command: what is typed, and what comes. They are scripts of
// testscript, and toc is this program as a process of its own. Its store is in $WORK/data, of 2 databases × 2 tables.
// go test -run Scripts -update ./cmd/toc writes the pages anew. Beside testscript's own commands there are:
//
//	background NAME COMMAND…  starts a program that listens on a free port, and sets $NAME to its address. Its output is the file
//	                          NAME. At the end of the script it must end as by end.
//	end NAME                  sends SIGTERM, by which the program must end with exit code 0.
//	answers NAME FILE         starts a server that sends the file as its answer, whatever is asked, and sets $NAME to its address.
//	expand FILE               replaces $NAME in a file.
//	session FILE              types the command lines of a file, those after "$ ", into a shell. Its output is the file with what has
//	                          come, for cmp. "  # exit 2" stands after a command that fails, "2> " before the lines of its standard
//	                          error, and "# " before prose. "  # await" types the line again until what comes is as it stands there.
//
// What is different each time has a name in the output of a session: ID1, ETAG1 and CURSOR1 are the first of their kind, and
// a later command may use them. TIME is a time less than a year away. What is ahead is rounded to a minute: (in 30m0s). What was
// lately is (now), and days are N days. 127.0.0.1:PORT is a free port, and $WORK the script's directory.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "TOC_HTTP_LISTEN=127.0.0.1:0", "TOC_NODE_NAME=n1", "TOC_CLUSTER_PARTITIONS=4",
				"TOC_STORE_DATABASES=2", "TOC_STORE_TABLES_PER_DATABASE=2", "TOC_STORE_SQLITE_DIR="+env.WorkDir+"/data",
				"TOC_SCAN_SCHEDULE=@every 1s", "TOC_SCAN_LOOKAHEAD=1s", "TOMORROW="+time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
			env.Values["page"] = &page{env: env, named: map[string]string{}, end: map[string]func(){}}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"answers": answers, "background": background, "end": end, "expand": expand, "session": session,
		},
	})
}

// page is what the commands of a script share.
type page struct {
	env   *testscript.Env
	named map[string]string // ids, etags and cursors by their names
	end   map[string]func() // of the programs
}

func pageOf(ts *testscript.TestScript) *page { return ts.Value("page").(*page) }

// patient is a script for package await.
type patient struct{ *testscript.TestScript }

func (patient) Helper() {}

func background(ts *testscript.TestScript, _ bool, args []string) {
	p := pageOf(ts)
	t := p.env.T().(testing.TB)
	out, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	c := exec.Command(args[1], args[2:]...)
	c.Dir, c.Env, c.Stdout = p.env.WorkDir, p.env.Vars, out
	stderr, err := c.StderrPipe()
	ts.Check(err)
	ts.Check(c.Start())
	listens, ended := make(chan string, 1), make(chan error, 1)
	go func() { // ends with the process
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if addr := regexp.MustCompile(`(?i)listening.*(127\.0\.0\.1:\d+)`).FindStringSubmatch(lines.Text()); addr != nil {
				listens <- addr[1]
			}
			fmt.Fprintln(t.Output(), lines.Text())
		}
		close(listens)
		ended <- c.Wait()
	}()
	p.end[args[0]] = sync.OnceFunc(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := errors.Join(await.Receive(t, ended, "%s ends", args), out.Close()); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	})
	ts.Defer(p.end[args[0]])
	addr := await.Receive(patient{ts}, listens, "%s listens", args)
	if addr == "" {
		ts.Fatalf("%s has ended", args)
	}
	ts.Setenv(args[0], addr)
}

func end(ts *testscript.TestScript, _ bool, args []string) { pageOf(ts).end[args[0]]() }

func answers(ts *testscript.TestScript, _ bool, args []string) {
	answer := ts.ReadFile(args[1])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = conn.Write([]byte(answer))
			}
			_ = conn.Close()
		}
	}()
	ts.Defer(func() { _ = listener.Close(); <-ended })
	ts.Setenv(args[0], listener.Addr().String())
}

func expand(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
}

var (
	chunk  = regexp.MustCompile(`(?m)^\$ |^\n?# `)                          // what begins a command with its output, or prose
	prompt = regexp.MustCompile(`^\$ (.*?)(  # await)?(?:  # exit \d+)?\n`) // the command, and whether its output is waited for
	named  = regexp.MustCompile(`()\b(\d{17,19})\b|(etag"?:?"? *)([\w-]{16})|(cursor"?:?"? *)([\w-]{10,})`)
	moment = regexp.MustCompile(`(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d)[.\d]*Z(?: \((?:now|[\dhms]+ ago)\))?`)
	ahead  = regexp.MustCompile(`\bin (\d[\dhms]*s)\b`)
	days   = regexp.MustCompile(`\d+( days(?: ago)?\))`)
	port   = regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`)
	column = regexp.MustCompile(`(\S)  +`)
)

func session(ts *testscript.TestScript, _ bool, args []string) {
	p, text, seen, begin := pageOf(ts), ts.ReadFile(args[0]), "", 0
	for _, next := range append(chunk.FindAllStringIndex(text, -1), []int{len(text)}) {
		want := text[begin:next[0]]
		begin = next[0]
		typed := prompt.FindStringSubmatch(want)
		if typed == nil { // prose
			seen += want
			continue
		}
		before, got := p.named, ""
		last := time.Now().Add(4 * time.Second) // an update takes what has come by then
		await.That(patient{ts}, func() bool {
			p.named = maps.Clone(before)
			got = p.run(ts, typed[1], typed[2])
			return typed[2] == "" || got == want || *update && time.Now().After(last)
		}, "what comes is as the page has it")
		seen += got
	}
	fmt.Fprint(ts.Stdout(), seen)
}

// run types a command line, and returns it with what has come.
func (p *page) run(ts *testscript.TestScript, line, note string) string {
	typed := line
	for name, text := range p.named {
		typed = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllLiteralString(typed, text)
	}
	err := ts.Exec("sh", "-c", typed)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		note += fmt.Sprintf("  # exit %d", failed.ExitCode())
	} else {
		ts.Check(err)
	}
	text := ts.ReadFile("stdout")
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		text += "2> " + line
	}
	return "$ " + line + note + "\n" + p.normal(text)
}

// normal gives a name to all that is different each time, and aligns the columns again.
func (p *page) normal(text string) string {
	found := replace(named, text, func(m []string) string {
		for i, kind := range []string{"ID", "ETAG", "CURSOR"} {
			if value := m[2*i+2]; value != "" {
				return m[2*i+1] + p.name(kind, value)
			}
		}
		return m[0]
	})
	found = replace(moment, found, func(m []string) string {
		at, err := time.Parse("2006-01-02T15:04:05", m[1])
		switch {
		case err != nil || time.Since(at).Abs() > 365*24*time.Hour:
			return m[0]
		case strings.HasSuffix(m[0], ")"):
			return "TIME (now)"
		}
		return "TIME"
	})
	found = replace(ahead, found, func(m []string) string {
		d, err := time.ParseDuration(m[1])
		if err != nil {
			return m[0]
		}
		return fmt.Sprintf("in %s", d.Round(time.Minute))
	})
	found = port.ReplaceAllString(days.ReplaceAllString(found, "N$1"), "127.0.0.1:PORT")
	found = strings.ReplaceAll(found, p.env.WorkDir, "$WORK")
	if found == text {
		return text
	}
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, column.ReplaceAllString(found, "$1\t"))
	_ = w.Flush()
	return aligned.String()
}

// replace replaces each match by what f makes of it and its groups.
func replace(r *regexp.Regexp, text string, f func(match []string) string) string {
	return r.ReplaceAllStringFunc(text, func(match string) string { return f(r.FindStringSubmatch(match)) })
}

// name is the name of a value: that it has, or the next of its kind.
func (p *page) name(kind, value string) string {
	for n := 1; ; n++ {
		name := kind + strconv.Itoa(n)
		switch p.named[name] {
		case "":
			p.named[name] = value
			fallthrough
		case value:
			return name
		}
	}
}
