package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
)

func controls(t *testing.T, p place) {
	f := p.open(t, small)
	read := func(database int) []store.Control {
		all, err := f.Decisions(t.Context(), database)
		require.NoError(t, err)
		return all.Controls
	}
	require.Empty(t, read(0))

	now := time.Now().UTC().Truncate(time.Millisecond)
	paused := store.Control{BizType: 1<<64 - 1, Paused: true, Reason: "der Laden ist zu", Actor: "api", Until: now.Add(time.Hour), Changed: now}
	require.NoError(t, f.SetControl(t.Context(), 0, paused))
	require.Equal(t, []store.Control{paused}, read(0))
	require.Empty(t, read(1), "each database has its own")

	older, same, newer := paused, paused, paused
	older.Changed, older.Paused = now.Add(-time.Millisecond), false
	same.Paused = false
	require.NoError(t, f.SetControl(t.Context(), 0, older))
	require.NoError(t, f.SetControl(t.Context(), 0, same))
	require.Equal(t, []store.Control{paused}, read(0), "the newer row stands")
	newer.Changed, newer.Paused, newer.Until = now.Add(time.Millisecond), false, time.Time{}
	require.NoError(t, f.SetControl(t.Context(), 0, newer))
	require.Equal(t, []store.Control{newer}, read(0))
	same, same.Paused = newer, true
	require.NoError(t, f.SetControl(t.Context(), 0, same))
	require.Equal(t, []store.Control{same}, read(0), "of the same millisecond, the pause wins")

	hand := func(statement string) {
		_, err := f.hands[1].ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	// By hand: an INSERT needs the biz_type alone, and an UPDATE is a change.
	hand("INSERT INTO toc_control (biz_type) VALUES (7)")
	byHand := read(1)[0]
	require.True(t, byHand.Paused)
	require.Equal(t, "sql", byHand.Actor)
	require.WithinDuration(t, time.Now(), byHand.Changed, time.Minute)
	runs := func(database int) bool {
		all, err := f.Decisions(t.Context(), database)
		require.NoError(t, err)
		return all.Operation
	}
	require.False(t, runs(1))
	hand("INSERT INTO toc_operation (id,kind,actor,rate,state,matched,started) VALUES (9,'redrive','sql',1,'running',0,'2026-01-01 00:00:00.000')")
	require.True(t, runs(1))
	require.False(t, runs(0))
	hand("UPDATE toc_operation SET state='stopped'")
	require.False(t, runs(1))
	hand("UPDATE toc_control SET changed_at='2026-01-01 00:00:00.000' WHERE biz_type=7")
	hand("UPDATE toc_control SET paused=0 WHERE biz_type=7")
	byHand = read(1)[0]
	require.False(t, byHand.Paused)
	require.WithinDuration(t, time.Now(), byHand.Changed, time.Minute)
}
