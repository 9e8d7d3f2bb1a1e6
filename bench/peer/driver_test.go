package peer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// taken is what a driver was given.
type taken struct {
	mu      sync.Mutex
	sizes   []int
	due     []time.Time
	callers map[int]bool
}

func (k *taken) put(_ context.Context, caller int, jobs []job) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sizes = append(k.sizes, len(jobs))
	if k.callers == nil {
		k.callers = map[int]bool{}
	}
	k.callers[caller] = true
	for _, j := range jobs {
		k.due = append(k.due, j.due)
	}
	return nil
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

func TestLoadSubmitsAllInBatches(t *testing.T) {
	var k taken
	d := driver{put: k.put}
	loaded, err := d.Load(t.Context(), Load{N: 1050, Callers: 4, Batch: 100, After: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 1050, sum(k.sizes))
	require.Len(t, k.sizes, 11)
	require.Len(t, loaded.Calls, 11)
	require.Positive(t, loaded.Took)
	for c := range k.callers {
		require.Less(t, c, 4)
	}
}

func TestLoadKeepsNeighboursTogether(t *testing.T) {
	const places = 7
	var calls [][]job
	d := driver{
		put: func(_ context.Context, _ int, jobs []job) error {
			calls = append(calls, slices.Clone(jobs))
			return nil
		},
		place: func(biz uint64) int { return int(biz % places) },
	}
	_, err := d.Load(t.Context(), Load{N: 1000, Callers: 1, Batch: 100, Near: true})
	require.NoError(t, err)
	require.Len(t, calls, 10)
	seen, last := map[uint64]bool{}, 0
	for _, jobs := range calls {
		for _, j := range jobs {
			require.GreaterOrEqual(t, d.place(j.biz), last)
			last = d.place(j.biz)
			seen[j.biz] = true
		}
	}
	require.Len(t, seen, 1000, "each id once")
}

func TestLoadKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k taken
		d := driver{put: k.put}
		start := time.Now()
		loaded, err := d.Load(t.Context(), Load{N: 3000, Callers: 8, Batch: 10, Rate: 1000, After: 2 * time.Second, Spread: 2 * time.Second})
		require.NoError(t, err)
		require.Equal(t, 3000, sum(k.sizes))
		require.Equal(t, 3*time.Second, loaded.Took, "on a clock that only waiting moves")
		for _, due := range k.due {
			require.False(t, due.Before(start.Add(2*time.Second)))
			require.False(t, due.After(start.Add(7*time.Second)))
			require.Zero(t, due.Nanosecond()%int(time.Millisecond))
		}
	})
}

func TestLoadOfOneInstant(t *testing.T) {
	var k taken
	d := driver{put: k.put}
	at := time.Now().Add(time.Minute).Truncate(time.Second)
	_, err := d.Load(t.Context(), Load{N: 10, Callers: 2, Batch: 5, At: at})
	require.NoError(t, err)
	for _, due := range k.due {
		require.True(t, due.Equal(at))
	}
}

func TestLoadEndsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	d := driver{put: func(context.Context, int, []job) error { return broken }}
	_, err := d.Load(t.Context(), Load{N: 1_000_000, Callers: 4, Batch: 1})
	require.ErrorIs(t, err, broken)
}

func TestLoadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var k taken
	d := driver{put: k.put}
	cancel()
	_, err := d.Load(ctx, Load{N: 1000, Callers: 1, Batch: 1, Rate: 1})
	require.ErrorIs(t, err, context.Canceled, "a load that was cut off is no measurement")
}

func TestFiredNotesLatenessAndTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d driver
		require.NoError(t, d.Reset(t.Context(), 3))
		start := time.Now()
		time.Sleep(time.Second)
		d.fired(start, 7)
		time.Sleep(time.Second)
		d.fired(start, 9)
		d.fired(start.Add(3*time.Second), 7) // early
		f, err := d.Fired(t.Context())
		require.NoError(t, err)
		require.Equal(t, []time.Duration{-time.Second, time.Second, 2 * time.Second}, f.Late)
		require.True(t, f.First.Equal(start.Add(time.Second)))
		require.Equal(t, 2, f.Tasks)
		require.Equal(t, 1, f.Twice)
		n, err := d.Heard(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, n)
	})
}

func TestTally(t *testing.T) {
	for _, c := range []struct {
		numbers          []uint64
		different, twice int
	}{{nil, 0, 0}, {[]uint64{1}, 1, 0}, {[]uint64{1, 1, 1, 2, 3, 3}, 3, 2}, {[]uint64{0, 1, 1, 1, 1}, 2, 1}} {
		different, twice := tally(c.numbers)
		require.Equal(t, c.different, different, c.numbers)
		require.Equal(t, c.twice, twice, c.numbers)
	}
}

func TestCeil(t *testing.T) {
	at := time.Unix(100, 1)
	require.True(t, ceil(at, time.Second).Equal(time.Unix(101, 0)))
	require.True(t, ceil(at, time.Millisecond).Equal(time.Unix(100, 1_000_000)))
	require.True(t, ceil(time.Unix(100, 0), time.Second).Equal(time.Unix(100, 0)))
}

func TestDownClosesInReverse(t *testing.T) {
	var d driver
	var order []int
	for i := range 3 {
		d.onDown(func() error { order = append(order, i); return nil })
	}
	require.NoError(t, d.Down())
	require.NoError(t, d.Down())
	require.Equal(t, []int{2, 1, 0}, order)
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range All() {
		i := p.Info()
		require.NotEmpty(t, i.Settings, i.Name)
		require.NotZero(t, i.Parts, i.Name)
		require.False(t, seen[i.Name], i.Name)
		seen[i.Name] = true
	}
	for _, a := range Absent() {
		require.NotEmpty(t, a.Missing)
		require.False(t, seen[a.Name], a.Name)
	}
}

func TestParseRedisBenchmark(t *testing.T) {
	rate, err := parseRedisBenchmark("\"test\",\"rps\",\"avg_latency_ms\"\n\"EVALSHA abc 3\",\"21505.38\",\"0.5\"\n")
	require.NoError(t, err)
	require.InDelta(t, 21505.38, rate, 1e-9)
	_, err = parseRedisBenchmark("Could not connect\n")
	require.Error(t, err)
}
