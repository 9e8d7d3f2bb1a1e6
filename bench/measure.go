package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/report"
	"github.com/timeoutcenter/toc/bench/result"
	"github.com/timeoutcenter/toc/bench/server"
	"github.com/timeoutcenter/toc/bench/work"
)

// measure runs the chosen workloads one after the other, and writes after each, so
// that a later failure loses no results.
func (o *options) measure(ctx context.Context, out io.Writer) error {
	file := filepath.Join(o.docs, "bench", "results.json")
	results, err := result.Read(file)
	if err != nil {
		return err
	}
	if o.reprint {
		return report.Write(results, o.docs)
	}
	for _, w := range o.sizes.All() {
		if !o.only.match(w.Name) {
			continue
		}
		s, err := o.session(ctx, out, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if len(s.Order) == 0 {
			continue
		}
		results.Put(s)
		if err := errors.Join(results.Write(file), report.Write(results, o.docs)); err != nil {
			return err
		}
	}
	return nil
}

// session measures all peers of a workload, in turns.
func (o *options) session(ctx context.Context, out io.Writer, w work.Workload) (result.Session, error) {
	s := result.Session{
		Work: w.Name, Title: w.Title, Sum: w.Sum, Started: time.Now().UTC().Truncate(time.Second), Command: o.command, Commit: o.commit(ctx),
		Machine: result.ThisMachine(o.scratch), Repeats: o.repeats, Full: isFull(w), Peers: map[string]result.Peer{},
	}
	here, err := o.roll(ctx, w, &s)
	if err != nil || len(here) == 0 {
		return s, err
	}
	fmt.Fprintf(out, "%s: %s\n", w.Name, w.Sum)
	for repeat := range o.repeats {
		for _, name := range turn(here, repeat) {
			r, err := o.do(ctx, w, name)
			if err != nil {
				return s, err
			}
			r.Repeat = repeat + 1
			s.Runs = append(s.Runs, r)
			fmt.Fprintf(out, "  %d/%d %-26s %5.0f s  %s\n", r.Repeat, o.repeats, name, r.Seconds, brief(r))
		}
	}
	return s, nil
}

// turn is the order of a repeat. Each begins with another peer.
func turn(names []string, repeat int) []string {
	first := repeat % len(names)
	return slices.Concat(names[first:], names[:first])
}

// isFull reports whether a workload has the sizes that the project is judged by.
func isFull(w work.Workload) bool {
	return slices.ContainsFunc(work.Full().All(), func(f work.Workload) bool { return f.Name == w.Name && f.Sum == w.Sum })
}

// roll finds out who takes part and who is missing.
func (o *options) roll(ctx context.Context, w work.Workload, s *result.Session) (here []string, err error) {
	for _, p := range peer.All() {
		i := p.Info()
		if !w.For(i) || !o.peers.match(i.Name) {
			continue
		}
		told := result.Peer{Settings: i.Settings, Durable: i.Durable, Precise: i.Precise}
		told.Version, err = p.Version(ctx, peer.Env{Repo: o.repo})
		switch {
		case err == nil:
			here = append(here, i.Name)
		case missing(err):
			told.Missing = strings.ReplaceAll(err.Error(), "\n", ": ")
		default:
			return nil, fmt.Errorf("%s: %w", i.Name, err)
		}
		s.Peers[i.Name] = told
		s.Order = append(s.Order, i.Name)
	}
	for _, a := range peer.Absent() {
		if w.For(a.Info) && o.peers.match(a.Name) {
			s.Peers[a.Name] = result.Peer{Missing: a.Missing}
			s.Order = append(s.Order, a.Name)
		}
	}
	return here, nil
}

func missing(err error) bool {
	return errors.Is(err, peer.ErrMissing) || errors.Is(err, server.ErrMissing)
}

// commit is the product that was measured.
func (o *options) commit(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = o.repo
	out, err := cmd.Output()
	if err != nil {
		return "not from a repository"
	}
	return strings.TrimSpace(string(out))
}

// brief is a run in one line, for who watches.
func brief(r result.Run) string {
	if r.Failed != "" {
		line, _, _ := strings.Cut(r.Failed, "\n")
		return "failed: " + line
	}
	keys := make([]string, 0, len(r.Values))
	for key := range r.Values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = fmt.Sprintf("%s=%.4g", key, r.Values[key])
	}
	return strings.Join(parts, " ")
}
