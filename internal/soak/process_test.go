package soak_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/child"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// node is one place in the center, in which one process follows the other.
type node struct {
	fleet     *fleet
	name      string
	cfg       configs.Config
	lines     map[string]*testrig.Proxy // by server
	proc      *child.Process
	processes []*life
	down      bool // on purpose

	mu     sync.Mutex
	client *client.Client // nil while it is down
	base   string         // URL of the API
	serves *life          // whose API that is
}

// life is one process of a node, with its files.
type life struct {
	audit.Process
	dir  string
	gone bool // it is known to serve no more; guarded by the node's mu
}

// start starts a process and waits until it listens.
func (n *node) start() {
	n.fleet.t.Helper()
	n.begin()
	n.awaitListening()
}

// begin starts a process.
func (n *node) begin() {
	t := n.fleet.t
	t.Helper()
	name := fmt.Sprintf("%s.%d", n.name, len(n.processes)+1)
	p := &life{Process: audit.Process{Name: name, Node: n.name}, dir: filepath.Join(n.fleet.dir, name)}
	require.NoError(t, os.Mkdir(p.dir, 0o755))
	raw, err := json.Marshal(n.cfg)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, configFile), raw, 0o600))
	n.processes = append(n.processes, p)
	n.writeReloadFile()
	logFile, err := os.Create(filepath.Join(p.dir, "log"))
	require.NoError(t, err)
	defer logFile.Close()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+p.dir)
	cmd.Stdout, cmd.Stderr = in, logFile
	n.proc, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	proc := n.proc
	t.Cleanup(func() { _ = proc.Signal(syscall.SIGKILL); <-proc.Done() })
	n.down = false
	go func() {
		defer out.Close()
		if addr, err := bufio.NewReader(out).ReadString('\n'); err == nil {
			n.setAPI(p, "http://"+strings.TrimSpace(addr))
		}
	}()
}

// startPatience is how long a process may need until it listens, on a busy machine.
const startPatience = 3 * time.Minute

// awaitListening waits until the process serves requests. One that a poison ends before is followed by another.
func (n *node) awaitListening() {
	t := n.fleet.t
	t.Helper()
	for deadline := time.Now().Add(startPatience); n.api() == nil; {
		require.True(t, time.Now().Before(deadline), "%s does not listen:\n%s", n.name, n.process().tail())
		n.fleet.rest(10 * time.Millisecond)
	}
}

// endedByPoison writes down that the process, which has ended, was ended by a task.
func (n *node) endedByPoison() bool {
	var exit *exec.ExitError
	if !errors.As(n.proc.Wait(), &exit) || exit.ExitCode() != poisonExit {
		return false
	}
	now := time.Now()
	p := n.process()
	if p.Ended.IsZero() {
		p.Ended = now
		n.fleet.ended = append(n.fleet.ended, &audit.Fault{Kind: poisoned, Nodes: []string{n.name}, Process: &p.Process, Explains: true,
			Begin: now.Add(-time.Second), End: now, Whole: now.Add(within.Adopt)})
	}
	return true
}

// revive starts a process again that a poison has ended.
func (n *node) revive() {
	t := n.fleet.t
	t.Helper()
	if n.proc == nil || n.down {
		return
	}
	select {
	case <-n.proc.Done():
	default:
		return
	}
	n.setAPI(n.process(), "")
	require.True(t, n.endedByPoison(), "%s ended by itself:\n%s", n.process(), n.process().tail())
	n.begin()
}

func (n *node) process() *life { return n.processes[len(n.processes)-1] }

// setAPI tells where a process serves requests; empty: it does not.
func (n *node) setAPI(by *life, base string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	by.gone = by.gone || base == ""
	n.client, n.base, n.serves = nil, base, by
	if !by.gone { // its address may be read after its end
		n.client = client.New(base, client.WithHTTPClient(n.fleet.http))
	}
}

func (n *node) api() *client.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.client
}

// now is how the node can be asked; nil: it cannot.
func (n *node) now() *traffic.Target {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		return nil
	}
	return &traffic.Target{Node: n.name, By: &n.serves.Process, API: n.client, URL: n.base}
}

// signal sends a signal to the process; one that a poison has just ended does not get it.
func (n *node) signal(s syscall.Signal) {
	if err := n.proc.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(n.fleet.t, err)
	}
}

// kill ends the process with SIGKILL.
func (n *node) kill() {
	n.down = true
	n.signal(syscall.SIGKILL)
	<-n.proc.Done()
	n.setAPI(n.process(), "")
	if !n.endedByPoison() {
		n.process().Ended = time.Now()
	}
}

// stop ends the process with SIGTERM, after which it must answer that all is recorded.
func (n *node) stop() {
	t := n.fleet.t
	t.Helper()
	n.down = true
	n.signal(syscall.SIGTERM)
	// Whoever asks meanwhile is answered, or refused.
	<-n.proc.Done()
	n.setAPI(n.process(), "")
	if !n.endedByPoison() {
		n.process().Ended = time.Now()
		require.NoError(t, n.proc.Wait(), "%s did not drain:\n%s", n.process(), n.process().tail())
	}
}

// freeze stops the process with SIGSTOP until thaw. It answers false if a poison has just ended it.
func (n *node) freeze() bool {
	if err := n.proc.Freeze(); err == nil {
		return true
	}
	<-n.proc.Done()
	return false
}

func (n *node) thaw() { n.signal(syscall.SIGCONT) }

// setModes gives each biz_type its mode while the process runs. Some are told by a signal, the others look at the file.
func (n *node) setModes(modes []string, bySignal bool) {
	for i := range n.cfg.BizTypes {
		n.cfg.BizTypes[i].Mode = modes[i]
	}
	n.writeReloadFile()
	if bySignal && n.api() != nil { // a process that has just started takes SIGHUP for its end
		n.signal(syscall.SIGHUP)
	}
}

func (n *node) writeReloadFile() {
	t := n.fleet.t
	t.Helper()
	file := filepath.Join(n.process().dir, reloadFile)
	require.NoError(t, os.WriteFile(file+".new", []byte(n.cfg.String()), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// tail is the end of a process's log.
func (p *life) tail() string {
	raw, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(raw[max(0, len(raw)-4000):])
}
