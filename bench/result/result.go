// Package result is what a benchmark leaves behind: the numbers of each run, what
// was measured on what, and results.json, which keeps them.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/bench/stat"
)

// Format is the version of results.json. If you change the stored data so that
// older files are read wrong, raise it: Read rejects older files then, and all must
// be measured again.
const Format = 2

// Results is results.json: the latest numbers of each peer in each workload.
type Results struct {
	Format   int       `json:"format"`
	Sessions []Session `json:"sessions"`
}

// Session is one workload on one machine: what can be compared.
type Session struct {
	Work      string          `json:"work"`
	Title     string          `json:"title"`
	Sum       string          `json:"sum"` // the work in one sentence
	Machine   Machine         `json:"machine"`
	Repeats   int             `json:"repeats"`
	Full      bool            `json:"full"`      // of the sizes that goals are judged by
	Stretches []Stretch       `json:"stretches"` // when it was measured
	Peers     map[string]Peer `json:"peers"`     // by name: the peers that took part or should have
	Order     []string        `json:"order"`     // of the names, in tables
	Runs      []Run           `json:"runs"`
}

// Stretch is a run of the program: it measured some peers of a session, in turns.
type Stretch struct {
	Started time.Time          `json:"started"`
	Command string             `json:"command"`
	Commit  string             `json:"commit"`
	Limits  map[string]float64 `json:"limits,omitempty"` // of the machine then, as peer.Limits names them
	Peers   []string           `json:"peers"`
}

// Peer is the description of a peer beside its numbers.
type Peer struct {
	Version  string `json:"version,omitempty"`
	Settings string `json:"settings,omitempty"`
	Durable  string `json:"durable,omitempty"`
	Precise  string `json:"precise,omitempty"`
	Missing  string `json:"missing,omitempty"` // why it could not be measured
}

// Machine is what it was measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"` // bytes
	Kernel string `json:"kernel"`
	System string `json:"system"`
	Disk   string `json:"disk"` // file system and device below the servers' data
	Go     string `json:"go"`
}

// Run is one peer, measured once.
type Run struct {
	Peer    string             `json:"peer"`
	Repeat  int                `json:"repeat"` // from 1
	N       int                `json:"n"`      // tasks
	Values  map[string]float64 `json:"values,omitempty"`
	Curve   []float64          `json:"curve,omitempty"` // lateness in ms at Quantiles
	Failed  string             `json:"failed,omitempty"`
	Seconds float64            `json:"seconds"` // with bringing up and ending
}

// Quantiles are those of a Run's Curve.
var Quantiles = []float64{0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1}

// Read reads a file; one that is not there has no sessions.
func Read(path string) (Results, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Results{Format: Format}, nil
	}
	if err != nil {
		return Results{}, err
	}
	var r Results
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != Format {
		return r, fmt.Errorf("%s has format %d, this program writes %d: remove it and measure anew", path, r.Format, Format)
	}
	return r, nil
}

// Write replaces the file in one step.
func (r Results) Write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Put adds a session. Older sessions of the workload lose the peers of the new one. A
// peer that was not measured again stays with the peers that it was measured beside.
func (r *Results) Put(s Session) {
	for i := range r.Sessions {
		if old := &r.Sessions[i]; old.Work == s.Work {
			old.drop(s.Order)
		}
	}
	r.Sessions = slices.DeleteFunc(r.Sessions, func(old Session) bool { return old.Work == s.Work && len(old.Order) == 0 })
	r.Sessions = append(r.Sessions, s.clone())
}

// clone shares nothing with s that Put changes.
func (s Session) clone() Session {
	s.Order, s.Runs, s.Peers, s.Stretches = slices.Clone(s.Order), slices.Clone(s.Runs), maps.Clone(s.Peers), slices.Clone(s.Stretches)
	for i := range s.Stretches {
		s.Stretches[i].Peers = slices.Clone(s.Stretches[i].Peers)
	}
	return s
}

// Merge is Put, but the peers join the newest session of the same work, sizes and machine. Their order is that of names.
func (r *Results) Merge(s Session, names []string) {
	r.Put(s)
	last := len(r.Sessions) - 1
	for i := last - 1; i >= 0; i-- {
		if to := &r.Sessions[i]; to.Work == s.Work && to.Sum == s.Sum && to.Machine == s.Machine {
			to.join(r.Sessions[last], names)
			r.Sessions = r.Sessions[:last]
			return
		}
	}
}

func (s *Session) join(other Session, names []string) {
	s.Title, s.Full, s.Repeats = other.Title, other.Full, max(s.Repeats, other.Repeats)
	s.Stretches = append(s.Stretches, other.Stretches...)
	s.Runs = append(s.Runs, other.Runs...)
	maps.Copy(s.Peers, other.Peers)
	s.Order = append(s.Order, other.Order...)
	slices.SortStableFunc(s.Order, func(a, b string) int { return slices.Index(names, a) - slices.Index(names, b) })
}

func (s *Session) drop(peers []string) {
	isDropped := func(name string) bool { return slices.Contains(peers, name) }
	s.Order = slices.DeleteFunc(s.Order, isDropped)
	s.Runs = slices.DeleteFunc(s.Runs, func(r Run) bool { return isDropped(r.Peer) })
	for i := range s.Stretches {
		s.Stretches[i].Peers = slices.DeleteFunc(s.Stretches[i].Peers, isDropped)
	}
	s.Stretches = slices.DeleteFunc(s.Stretches, func(t Stretch) bool { return len(t.Peers) == 0 })
	for _, name := range peers {
		delete(s.Peers, name)
	}
}

// Of gives the sessions of a workload, the newest first. No two have a peer in common.
func (r Results) Of(work string) (list []Session) {
	for _, s := range slices.Backward(r.Sessions) {
		if s.Work == work {
			list = append(list, s)
		}
	}
	return list
}

// Value summarizes a value of a peer over its repeats. Runs without it do not
// count; without any there is none.
func (s Session) Value(peer, key string) (stat.Summary, bool) {
	var values []float64
	for _, run := range s.Runs {
		if v, ok := run.Values[key]; ok && run.Peer == peer && run.Failed == "" {
			values = append(values, v)
		}
	}
	return stat.Of(values), len(values) > 0
}

// N is how many tasks each run of a peer had.
func (s Session) N(peer string) int {
	for _, run := range s.Runs {
		if run.Peer == peer && run.Failed == "" {
			return run.N
		}
	}
	return 0
}

// Curve is a peer's lateness in ms at Quantiles, each the median over the repeats.
func (s Session) Curve(peer string) []float64 {
	var curve []float64
	for q := range Quantiles {
		var values []float64
		for _, run := range s.Runs {
			if run.Peer == peer && run.Failed == "" && len(run.Curve) == len(Quantiles) {
				values = append(values, run.Curve[q])
			}
		}
		if len(values) == 0 {
			return nil
		}
		curve = append(curve, stat.Of(values).Median)
	}
	return curve
}

// Failure is why a peer's latest failed run failed, empty if none did.
func (s Session) Failure(peer string) string {
	why := ""
	for _, run := range s.Runs {
		if run.Peer == peer && run.Failed != "" {
			why = run.Failed
		}
	}
	return why
}
