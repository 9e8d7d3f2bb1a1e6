package work

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/result"
)

// clockwork is a peer that fires each task late by so much, and loses the first few.
type clockwork struct {
	parts peer.Part
	late  time.Duration
	lose  int

	mu      sync.Mutex
	loads   []peer.Load
	fired   peer.Fired
	done    int
	working bool
	down    bool
}

func (c *clockwork) Info() peer.Info { return peer.Info{Name: "clockwork", Parts: c.parts} }

func (c *clockwork) Version(context.Context, peer.Env) (string, error) { return "1", nil }

func (c *clockwork) Up(context.Context, peer.Env) error { return nil }

func (c *clockwork) Work(context.Context) error {
	c.working = true
	return nil
}

func (c *clockwork) Load(_ context.Context, l peer.Load) (peer.Loaded, error) {
	c.mu.Lock()
	c.loads = append(c.loads, l)
	c.mu.Unlock()
	took := time.Second
	if l.Rate > 0 {
		took = time.Duration(l.N) * time.Second / time.Duration(l.Rate)
	}
	time.Sleep(took)
	if l.After >= soonest {
		return peer.Loaded{Took: took}, nil
	}
	due := l.At
	if due.IsZero() {
		due = time.Now().Add(l.After)
	}
	time.AfterFunc(time.Until(due)+c.late, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fired.First = time.Now()
		for range l.N - c.lose {
			c.fired.Late = append(c.fired.Late, c.late)
		}
		c.fired.Tasks += l.N - c.lose
		c.done += l.N - c.lose
	})
	return peer.Loaded{Took: took, Calls: []time.Duration{time.Millisecond}}, nil
}

func (c *clockwork) Done(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done, nil
}

func (c *clockwork) Heard(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fired.Late), nil
}

func (c *clockwork) Fired(context.Context) (peer.Fired, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired, nil
}

func (c *clockwork) Reset(context.Context, int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fired = peer.Fired{}
	return nil
}

func (c *clockwork) Processes() []peer.Process {
	return []peer.Process{{Name: "client", PID: os.Getpid()}}
}

func (c *clockwork) Down() error {
	c.down = true
	return nil
}

func (c *clockwork) isDown() bool { return c.down }

// do runs a workload of quick sizes on a clock that only waiting moves.
func do(t *testing.T, name string, c peer.Peer) (run result.Run, err error) {
	s := Quick()
	all := s.All()
	i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == name })
	require.GreaterOrEqual(t, i, 0)
	synctest.Test(t, func(t *testing.T) {
		err = Do(t.Context(), c, peer.Env{}, s, all[i:i+1], func(_ string, r result.Run) error {
			run = r
			return nil
		})
	})
	require.True(t, c.(interface{ isDown() bool }).isDown())
	return run, err
}

func TestLateness(t *testing.T) {
	c := &clockwork{late: 3 * time.Millisecond}
	run, err := do(t, "lateness-1000", c)
	require.NoError(t, err)
	require.True(t, c.working)
	require.Equal(t, 4000, run.N)
	require.InDelta(t, 3, run.Values["p50_ms"], 1e-9)
	require.InDelta(t, 3, run.Values["max_ms"], 1e-9)
	require.InDelta(t, 1000, run.Values["rate_per_s"], 1e-9)
	require.Zero(t, run.Values["lost"])
	require.Len(t, run.Curve, len(result.Quantiles))
	steady := c.loads[len(c.loads)-1]
	require.Equal(t, 1, steady.Batch, "it has no calls for many")
	require.Equal(t, 2*time.Second, steady.After)
	require.Equal(t, 2*time.Second, steady.Spread)
}

// Who loses tasks is not punctual with the rest.
func TestLostTasksAreLate(t *testing.T) {
	run, err := do(t, "lateness-1000", &clockwork{late: time.Millisecond, lose: 100})
	require.NoError(t, err)
	require.InDelta(t, 100, run.Values["lost"], 1e-9)
	require.InDelta(t, 1, run.Values["p50_ms"], 1e-9)
	require.InDelta(t, millis(patience), run.Values["p99_ms"], 1e-9, "100 of 4,000 are more than a hundredth")
}

func TestEarlyTasksAreCounted(t *testing.T) {
	run, err := do(t, "lateness-1000", &clockwork{late: -time.Millisecond})
	require.NoError(t, err)
	require.InDelta(t, 4000, run.Values["early"], 1e-9)
}

func TestDrainIsTimedFromTheInstant(t *testing.T) {
	run, err := do(t, "drain", &clockwork{late: 2 * time.Second, parts: peer.Batches})
	require.NoError(t, err)
	require.Equal(t, Quick().Drain, run.N)
	require.InDelta(t, float64(Quick().Drain)/2, run.Values["per_s"], 50)
	require.InDelta(t, 2000, run.Values["first_ms"], 1e-6)
	require.Greater(t, run.Values["flow_per_s"], 10*run.Values["per_s"])
}

func TestDrainThatDoesNotEndHasFailed(t *testing.T) {
	_, err := do(t, "drain", &clockwork{lose: 1})
	require.ErrorContains(t, err, "1 outcomes are not recorded")
}

// A crowd comes twice: the first one finds caches cold.
func TestCrowdComesTwice(t *testing.T) {
	c := &clockwork{late: 5 * time.Millisecond}
	run, err := do(t, "crowd+20000", c)
	require.NoError(t, err)
	require.InDelta(t, 5, run.Values["first_p99_ms"], 1e-9)
	require.InDelta(t, 5, run.Values["p99_ms"], 1e-9)
	var sizes []int
	for _, l := range c.loads {
		sizes = append(sizes, l.N)
	}
	require.Equal(t, []int{20_000, Quick().Singles / 10, Quick().Crowd, Quick().Crowd}, sizes, "park, warm, crowd, crowd")
}

// A peer parks once for all workloads beside the same parked tasks. What it does after it lost tasks is no measurement.
func TestWorkloadsShareWhatIsParked(t *testing.T) {
	s := Quick()
	beside := s.beside(20_000)
	for lose, want := range map[int]int{0: len(beside), 1: 4} {
		var names []string
		c := &clockwork{lose: lose}
		synctest.Test(t, func(t *testing.T) {
			err := Do(t.Context(), c, peer.Env{}, s, beside, func(name string, r result.Run) error {
				require.Positive(t, r.N, name)
				names = append(names, name)
				return nil
			})
			if lose > 0 {
				require.ErrorContains(t, err, "crowd+20000 left tasks behind")
			} else {
				require.NoError(t, err)
			}
		})
		require.Len(t, names, want, names)
		parks := 0
		for _, l := range c.loads {
			if l.N == 20_000 && l.After == soonest && l.Batch == 1 && l.Callers == callers {
				parks++
			}
		}
		require.Equal(t, 1, parks)
	}
}

// restarted counts its kills, and runs a tenth of the tasks again after one.
type restarted struct {
	clockwork
	kills int
}

func (r *restarted) Kill() { r.kills++ }

func (r *restarted) Restart(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired.Twice = len(r.fired.Late) / 10
	return nil
}

func TestKillCountsLostAndTwice(t *testing.T) {
	r := &restarted{clockwork: clockwork{late: time.Second, lose: 3}}
	run, err := do(t, "kill", r)
	require.NoError(t, err)
	require.Equal(t, 1, r.kills)
	require.InDelta(t, 3, run.Values["lost"], 1e-9)
	require.InDelta(t, 199, run.Values["twice"], 1e-9)
	require.InDelta(t, 1, run.Values["last_s"], 1e-9)

	_, err = do(t, "kill", &clockwork{})
	require.ErrorContains(t, err, "no servers")
}

// purged has more rows each time.
type purged struct {
	clockwork
	rows int
}

func (p *purged) Rows(context.Context) (int, error) {
	p.rows += 100
	return p.rows, nil
}

func TestKeepComparesTheLastPartWithTheFirst(t *testing.T) {
	run, err := do(t, "keep", &purged{})
	require.NoError(t, err)
	require.InDelta(t, 2, run.Values["ratio_rows"], 1e-9)
	require.Equal(t, 200*12, run.N)
	require.InDelta(t, 200, run.Values["rate_per_s"], 1e-9)
}

func TestSubmitStartsNoWorkers(t *testing.T) {
	c := &clockwork{}
	run, err := do(t, "submit", c)
	require.NoError(t, err)
	require.False(t, c.working)
	require.InDelta(t, 3000, run.Values["per_s"], 1e-9)
	require.Equal(t, peer.Load{N: 3000, Callers: 32, Batch: 1, After: soonest, Spread: days30 - soonest}, c.loads[1])
}

func TestGrowthNeedsMetrics(t *testing.T) {
	_, err := do(t, "growth", &clockwork{})
	require.ErrorContains(t, err, "metrics")
}

func TestLoadThatEndsTooLateIsNoMeasurement(t *testing.T) {
	b := &bench{Peer: &clockwork{}}
	require.ErrorContains(t, b.loadBefore(t.Context(), peer.Load{N: 1, At: time.Now().Add(-time.Hour), After: soonest}), "too little time")
}

func TestRestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	require.ErrorIs(t, rest(ctx, time.Hour), context.Canceled)
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Full().All() {
		require.False(t, seen[w.Name], w.Name)
		seen[w.Name] = true
		require.NotEmpty(t, w.Sum)
		require.NotZero(t, w.Part, w.Name)
	}
}
