package peer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What this package hands to the scripts is what they take: redis-benchmark ends
// with the first of them that fails.
func TestScriptsAreCalledAsTheyAre(t *testing.T) {
	ctx := t.Context()
	var p redisScripts
	t.Cleanup(func() { require.NoError(t, p.Down()) })
	require.NoError(t, p.Up(ctx, Env{Scratch: t.TempDir(), Repo: "../.."}))

	rates, err := p.RedisBenchmark(ctx, 500)
	require.NoError(t, err)
	for _, script := range []string{"arm", "claim", "settle"} {
		for _, pipeline := range []string{"_1", "_16"} {
			require.Positive(t, rates[script+pipeline+"_per_s"], script)
		}
	}
}

func TestScriptsDrain(t *testing.T) {
	ctx := t.Context()
	var p redisScripts
	t.Cleanup(func() { require.NoError(t, p.Down()) })
	require.NoError(t, p.Up(ctx, Env{Scratch: t.TempDir(), Repo: "../.."}))
	const n = 2000
	require.NoError(t, p.Reset(ctx, n))
	require.NoError(t, p.Work(ctx))
	_, err := p.Load(ctx, Load{N: n, Callers: 4, Batch: 100, After: 50 * time.Millisecond, Spread: 200 * time.Millisecond})
	require.NoError(t, err)
	require.Eventually(t, func() bool { done, err := p.Done(ctx); return err == nil && done == n }, 20*time.Second, 10*time.Millisecond)
	fired, err := p.Fired(ctx)
	require.NoError(t, err)
	require.Len(t, fired.Late, n)
	require.False(t, fired.First.IsZero())
	require.GreaterOrEqual(t, fired.Late[0], time.Duration(0), "none early")
}
