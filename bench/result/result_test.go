package result

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "results.json")
	r, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, Results{Format: Format}, r)

	r.Put(Session{Work: "drain", Commit: "a"})
	r.Put(Session{Work: "idle"})
	r.Put(Session{Work: "drain", Commit: "b", Runs: []Run{{Peer: "x", N: 3, Values: map[string]float64{"per_s": 1.5}}}})
	require.NoError(t, r.Write(path))
	back, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, r, back)
	require.Len(t, back.Sessions, 2, "a newer session takes the place of the older")
	s, ok := back.Of("drain")
	require.True(t, ok)
	require.Equal(t, "b", s.Commit)
	_, ok = back.Of("none")
	require.False(t, ok)
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
