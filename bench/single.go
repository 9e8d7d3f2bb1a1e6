package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/result"
	"github.com/timeoutcenter/toc/bench/work"
	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// singleCommand makes this program measure one peer once, and print a result.Run
// as JSON. Nobody types it: the program starts itself.
const singleCommand = "single"

// single is one measurement, handed to the process that makes it.
type single struct {
	Work  string     `json:"work"`
	Peer  string     `json:"peer"`
	Sizes work.Sizes `json:"sizes"`
	Env   peer.Env   `json:"env"`
}

func runSingle(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("this command is the program's own")
	}
	var s single
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	for _, w := range s.Sizes.All() {
		for _, p := range peer.All() {
			if w.Name == s.Work && p.Info().Name == s.Peer {
				r, err := w.Do(ctx, p, s.Env, s.Sizes)
				if err != nil {
					return err
				}
				return json.NewEncoder(out).Encode(r)
			}
		}
	}
	return fmt.Errorf("no workload %q or no peer %q", s.Work, s.Peer)
}

// do makes a measurement in a new process and with a new scratch directory. All
// that it starts ends with it. A failure is part of the result; the error is for
// what ends the whole run.
func (o *options) do(ctx context.Context, w work.Workload, name string) (result.Run, error) {
	start := time.Now()
	r := result.Run{Peer: name}
	scratch, err := os.MkdirTemp(o.scratch, "toc-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o711); err != nil { // PostgreSQL runs as another user
		return r, err
	}
	repo, err := filepath.Abs(o.repo)
	if err != nil {
		return r, err
	}
	spec, err := json.Marshal(single{Work: w.Name, Peer: name, Sizes: o.sizes, Env: peer.Env{Scratch: scratch, Repo: repo}})
	if err != nil {
		return r, err
	}
	output, err := capture(ctx, o.limit, singleCommand, string(spec))
	if err == nil {
		err = json.Unmarshal(output, &r)
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err != nil {
		r = result.Run{Peer: name, Failed: err.Error()}
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// capture runs this program again and gives what it prints; its errors come with
// the end of what it said.
func capture(ctx context.Context, limit time.Duration, args ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	files := [2]*os.File{}
	for i := range files {
		if files[i], err = os.CreateTemp("", "bench-peers-"); err != nil {
			return nil, err
		}
		defer os.Remove(files[i].Name())
		defer files[i].Close()
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	proc, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-proc.Done():
		err = proc.Wait()
	case <-ctx.Done():
		err = end(proc, ctx.Err())
	case <-timeout.C:
		err = end(proc, fmt.Errorf("took more than %s", limit))
	}
	if err != nil {
		said, _ := os.ReadFile(files[1].Name())
		const most = 1500
		return nil, fmt.Errorf("%w: %s", err, said[max(0, len(said)-most):])
	}
	return os.ReadFile(files[0].Name())
}

// end gives a process some seconds to end what it has started.
func end(proc *child.Process, why error) error {
	_ = proc.Signal(syscall.SIGTERM)
	select {
	case <-proc.Done():
	case <-time.After(20 * time.Second):
		_ = proc.Signal(syscall.SIGKILL)
		<-proc.Done()
	}
	return why
}
