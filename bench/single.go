package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/result"
	"github.com/timeoutcenter/toc/bench/work"
	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// singleCommand makes this program measure one peer once by each of some workloads, and print a measured for each as JSON.
// Nobody types it: the program starts itself.
const singleCommand = "single"

// single is handed to the process that measures. Without a peer it measures the limits of the machine.
type single struct {
	Works  []string   `json:"works"`
	Peer   string     `json:"peer"`
	Tables []int      `json:"tables"` // of the limits
	Sizes  work.Sizes `json:"sizes"`
	Env    peer.Env   `json:"env"`
}

type measured struct {
	Work   string             `json:"work,omitempty"`
	Run    result.Run         `json:"run"`
	Limits map[string]float64 `json:"limits,omitempty"`
}

func runSingle(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("this command is the program's own")
	}
	var s single
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	if s.Peer == "" {
		limits, err := peer.Limits(ctx, s.Env, s.Tables)
		return errors.Join(err, answers.Encode(measured{Limits: limits}))
	}
	var list []work.Workload
	for _, w := range s.Sizes.All() {
		if slices.Contains(s.Works, w.Name) {
			list = append(list, w)
		}
	}
	for _, p := range peer.All() {
		if p.Info().Name == s.Peer && len(list) > 0 {
			return work.Do(ctx, p, s.Env, s.Sizes, list, func(name string, r result.Run) error {
				return answers.Encode(measured{Work: name, Run: r})
			})
		}
	}
	return fmt.Errorf("no workload %q or no peer %q", s.Works, s.Peer)
}

// do measures a peer by some workloads. A failure is part of the results: of each workload without a run, or, if all have one, of
// the last. The error is for what ends the whole run.
func (o *options) do(ctx context.Context, works []string, name string) (map[string]result.Run, error) {
	start := time.Now()
	answers, failed := o.apart(ctx, single{Works: works, Peer: name})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	runs := make(map[string]result.Run)
	for _, a := range answers {
		runs[a.Work] = a.Run
	}
	if failed != nil && len(runs) == len(works) {
		delete(runs, works[len(works)-1])
	}
	for _, w := range works {
		r, ok := runs[w]
		if !ok {
			r = result.Run{Peer: name, Failed: failed.Error()}
		}
		r.Seconds = time.Since(start).Seconds()
		runs[w] = r
	}
	return runs, nil
}

// limits measures what the machine can do now, by so many tables of each database.
func (o *options) limits(ctx context.Context, tables []int) (map[string]float64, error) {
	answers, err := o.apart(ctx, single{Tables: tables})
	if err != nil {
		return nil, fmt.Errorf("limits of the machine: %w", err)
	}
	return answers[0].Limits, nil
}

// apart measures in a new process and with a new scratch directory. All that it starts ends with it.
func (o *options) apart(ctx context.Context, s single) ([]measured, error) {
	scratch, err := os.MkdirTemp(o.scratch, "toc-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o711); err != nil { // PostgreSQL runs as another user
		return nil, err
	}
	s.Sizes, s.Env = o.sizes, peer.Env{Scratch: scratch, Repo: o.repo}
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	output, err := capture(ctx, o.limit, singleCommand, string(spec))
	var list []measured
	for answers := json.NewDecoder(bytes.NewReader(output)); ; {
		var m measured
		switch decoding := answers.Decode(&m); {
		case decoding == nil:
			list = append(list, m)
		case errors.Is(decoding, io.EOF):
			return list, err
		default:
			return list, errors.Join(err, decoding)
		}
	}
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
		err = fmt.Errorf("%w: %s", err, said[max(0, len(said)-most):])
	}
	output, readErr := os.ReadFile(files[0].Name())
	return output, errors.Join(err, readErr)
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
