package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// measure runs the chosen workloads one group after the other, and writes after each repeat, so
// that a later failure loses no results.
func (o *options) measure(ctx context.Context, out io.Writer) (err error) {
	file := filepath.Join(o.docs, "bench", "results.json")
	results, err := result.Read(file)
	if err != nil {
		return err
	}
	if o.reprint {
		return report.Write(results, o.docs)
	}
	for _, path := range []*string{&o.repo, &o.scratch} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	// The tables take the most time, and are measured once.
	tables, err := o.limits(ctx, o.sizes.Tables)
	if err != nil {
		return err
	}
	for _, group := range o.groups() {
		err := o.turns(ctx, out, group, tables, func(s result.Session) {
			if o.merge {
				results.Merge(s, peerNames())
			} else {
				results.Put(s)
			}
		}, func() error { return errors.Join(results.Write(file), report.Write(results, o.docs)) })
		if err != nil {
			return fmt.Errorf("%s: %w", group[0].Name, err)
		}
	}
	return nil
}

// groups are the workloads that a peer does one after the other in one process: those beside the same parked tasks, which take long
// to park. Each of the other workloads is a group.
func (o *options) groups() (list [][]work.Workload) {
	for _, w := range o.sizes.All() {
		if !o.only.match(w.Name) {
			continue
		}
		if last := len(list) - 1; w.Parked > 0 && last >= 0 && list[last][0].Parked == w.Parked {
			list[last] = append(list[last], w)
		} else {
			list = append(list, []work.Workload{w})
		}
	}
	return list
}

// turns measures the peers of a group of workloads in turns. After each repeat it puts a session of each workload, and writes.
func (o *options) turns(ctx context.Context, out io.Writer, group []work.Workload, tables map[string]float64, put func(result.Session), write func() error) error {
	sessions := make([]result.Session, len(group))
	works := map[string][]string{} // of each peer that is here
	for i, w := range group {
		var err error
		if sessions[i], err = o.session(ctx, w, works); err != nil {
			return err
		}
	}
	var here []string
	for _, name := range peerNames() {
		if works[name] != nil {
			here = append(here, name)
		}
	}
	if len(here) == 0 {
		return nil
	}
	now, err := o.limits(ctx, nil)
	if err != nil {
		return err
	}
	limits := maps.Clone(tables)
	maps.Copy(limits, now)
	fmt.Fprintf(out, "%s: %s\n", group[0].Name, brief(result.Run{Values: limits}))
	for repeat := range o.repeats {
		for _, name := range turn(here, repeat) {
			runs, err := o.do(ctx, works[name], name)
			if err != nil {
				return err
			}
			for i, w := range group {
				if r, ok := runs[w.Name]; ok {
					r.Repeat = repeat + 1
					sessions[i].Runs = append(sessions[i].Runs, r)
					fmt.Fprintf(out, "  %d/%d %-20s %-26s %5.0f s  %s\n", r.Repeat, o.repeats, w.Name, name, r.Seconds, brief(r))
				}
			}
		}
		for _, s := range sessions {
			if len(s.Order) > 0 {
				s.Stretches[0].Limits = limits
				put(s)
			}
		}
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// session is a workload before it is measured; works gets what each peer that takes part has to do.
func (o *options) session(ctx context.Context, w work.Workload, works map[string][]string) (result.Session, error) {
	s := result.Session{
		Work: w.Name, Title: w.Title, Sum: w.Sum, Machine: result.ThisMachine(o.scratch), Repeats: o.repeats, Full: o.isFull(w), Peers: map[string]result.Peer{},
	}
	here, err := o.roll(ctx, w, &s)
	for _, name := range here {
		works[name] = append(works[name], w.Name)
	}
	s.Stretches = []result.Stretch{{
		Started: time.Now().UTC().Truncate(time.Second), Command: o.command, Commit: o.commit(ctx), Peers: s.Order,
	}}
	return s, err
}

// turn is the order of a repeat. Each begins with another peer.
func turn(names []string, repeat int) []string {
	first := repeat % len(names)
	return slices.Concat(names[first:], names[:first])
}

// isFull reports whether a workload has the sizes that the project is judged by.
func (o *options) isFull(w work.Workload) bool {
	full := work.Full()
	full.Parked = o.sizes.Parked
	return slices.ContainsFunc(full.All(), func(f work.Workload) bool { return f.Name == w.Name && f.Sum == w.Sum })
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

// product names the product's Go code for git: without tests and the packages that only they use.
var product = []string{
	"--", "*.go", ":!*_test.go", ":!bench", ":!examples", ":!internal/testrig", ":!internal/soak", ":!internal/sim",
	":!internal/virtual", ":!internal/fakeconsul", ":!internal/repotest", ":!internal/transcript",
}

// commit is the newest commit that changed the product, so that commits of figures and docs do not count.
func (o *options) commit(ctx context.Context) string {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append(args, product...)...)
		cmd.Dir = o.repo
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	newest, err := git("log", "-1", "--format=%h")
	if err != nil || newest == "" {
		return "not from a repository"
	}
	changed, err := git("status", "--porcelain")
	if err != nil || changed != "" {
		return newest + "-dirty"
	}
	return newest
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
