package result

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "results.json")
	r, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, Results{Format: Format}, r)

	r.Put(Session{Work: "drain", Stretches: []Stretch{{Commit: "b", Peers: []string{"x"}}}, Peers: map[string]Peer{}, Order: []string{"x"}, Runs: []Run{{Peer: "x", N: 3, Values: map[string]float64{"per_s": 1.5}}}})
	require.NoError(t, r.Write(path))
	back, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, r, back)
}

func session(work, commit string, peers ...string) Session {
	s := Session{Work: work, Order: peers, Peers: map[string]Peer{}, Stretches: []Stretch{{Commit: commit, Peers: slices.Clone(peers)}}}
	for _, p := range peers {
		s.Peers[p] = Peer{Version: commit}
		s.Runs = append(s.Runs, Run{Peer: p})
	}
	return s
}

// What is compared was measured beside each other: newer numbers of a peer take
// the place of its older ones, and never stand among those of another session.
func TestPutReplacesPeers(t *testing.T) {
	var r Results
	r.Put(session("drain", "1", "a", "b"))
	r.Put(session("idle", "1", "a"))
	r.Put(session("drain", "2", "c"))
	require.Equal(t, []Session{session("drain", "2", "c"), session("drain", "1", "a", "b")}, r.Of("drain"), "the newest first")

	r.Put(session("drain", "3", "b", "c"))
	require.Equal(t, []Session{session("drain", "3", "b", "c"), session("drain", "1", "a")}, r.Of("drain"))
	require.Equal(t, []Session{session("idle", "1", "a")}, r.Of("idle"), "of another workload")
	require.Empty(t, r.Of("none"))
}

// A session that is put again after each repeat takes its own place.
func TestPutTwiceIsPutOnce(t *testing.T) {
	s := session("drain", "1", "a", "b")
	var r Results
	r.Put(s)
	s.Runs = append(s.Runs, Run{Peer: "a", Repeat: 2})
	r.Put(s)
	require.Equal(t, []Session{s}, r.Of("drain"))
	require.Equal(t, []Session{s}, r.Of("drain"), "what is kept shares nothing with what was put")
}

// A run that is split over hours ends as one table, which says of each peer when it was measured.
func TestMergeJoinsTheTable(t *testing.T) {
	names := []string{"a", "b", "c"}
	var r Results
	r.Put(session("drain", "1", "a", "c"))
	r.Merge(session("drain", "2", "b"), names)
	r.Merge(session("drain", "3", "c"), names)
	r.Merge(session("drain", "3", "c"), names)
	require.Len(t, r.Of("drain"), 1)
	s := r.Of("drain")[0]
	require.Equal(t, names, s.Order)
	require.Equal(t, []Stretch{{Commit: "1", Peers: []string{"a"}}, {Commit: "2", Peers: []string{"b"}}, {Commit: "3", Peers: []string{"c"}}}, s.Stretches)
	require.Equal(t, map[string]Peer{"a": {Version: "1"}, "b": {Version: "2"}, "c": {Version: "3"}}, s.Peers)
	require.Len(t, s.Runs, 3)

	elsewhere := session("drain", "4", "b")
	elsewhere.Machine.Cores = 64
	r.Merge(elsewhere, names)
	require.Len(t, r.Of("drain"), 2, "numbers of another machine stand in another table")
	smaller := session("drain", "5", "a")
	smaller.Sum = "less"
	r.Merge(smaller, names)
	require.Len(t, r.Of("drain"), 3, "as do those of other sizes")
}

func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"format": 99}`), 0o644))
	_, err := Read(path)
	require.ErrorContains(t, err, "measure anew")
	require.NoError(t, os.WriteFile(path, []byte(`{`), 0o644))
	_, err = Read(path)
	require.ErrorContains(t, err, path)
}

func TestFailedRunsAreNoNumbers(t *testing.T) {
	s := Session{Runs: []Run{
		{Peer: "a", N: 10, Values: map[string]float64{"v": 1}},
		{Peer: "a", N: 10, Values: map[string]float64{"v": 3}},
		{Peer: "a", Failed: "why", Values: map[string]float64{"v": 1000}},
		{Peer: "b", Failed: "other"},
	}}
	v, ok := s.Value("a", "v")
	require.True(t, ok)
	require.Equal(t, 2, v.Repeats)
	require.InDelta(t, 2, v.Median, 1e-9)
	_, ok = s.Value("b", "v")
	require.False(t, ok)
	_, ok = s.Value("a", "w")
	require.False(t, ok)
	require.Equal(t, 10, s.N("a"))
	require.Zero(t, s.N("b"))
	require.Equal(t, "other", s.Failure("b"))
	require.Nil(t, s.Curve("a"))
}

func TestCurveIsOfMedians(t *testing.T) {
	curve := func(v float64) []float64 {
		list := make([]float64, len(Quantiles))
		for i := range list {
			list[i] = v * float64(i)
		}
		return list
	}
	s := Session{Runs: []Run{{Peer: "a", Curve: curve(1)}, {Peer: "a", Curve: curve(5)}, {Peer: "a", Curve: curve(2)}, {Peer: "a", Curve: []float64{9}}}}
	require.Equal(t, curve(2), s.Curve("a"))
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine(t.TempDir())
	require.Positive(t, m.Cores)
	require.Positive(t, m.Memory)
	require.NotEmpty(t, m.Kernel)
	require.NotEmpty(t, m.Go)
}
