package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// whyDown reads a database until it counts as down, and returns the reason.
func whyDown(t *testing.T, s *store.Store, database int) error {
	s.Probe(t.Context(), database)
	return s.Probe(t.Context(), database).Down
}

// changes are the calls of Watch's changed.
type changes struct {
	mu   sync.Mutex
	list []store.Condition // of database 1
	t    *testing.T
}

func (c *changes) note(database int, before, now store.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if database != 1 {
		c.t.Errorf("database %d changed: %v", database, now)
		return
	}
	if n := len(c.list); n > 0 && c.list[n-1] != before {
		c.t.Errorf("before it was %v, not %v", c.list[n-1], before)
	}
	c.list = append(c.list, now)
}

func (c *changes) last() store.Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return store.Condition{}
	}
	return c.list[len(c.list)-1]
}

// Each database has one condition, whichever call finds it, and reports it once.
func TestTheConditionOfADatabase(t *testing.T) {
	t.Parallel()
	shared, own := testrig.MySQL(t), testrig.StartMySQL(t, testrig.BufferPool("64M"))
	f := openFixture(t, store.Config{
		Driver: store.MySQL, Layout: small, Timeout: 3 * time.Second,
		DSNs: []string{fmt.Sprintf(shared.DSN(), 0), fmt.Sprintf(own.DSN(), 1)},
	})
	seen := &changes{t: t}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Watch(ctx, seen.note) }()
	t.Cleanup(func() { stop(); require.ErrorIs(t, <-ended, context.Canceled) })
	is := func(want func(store.Condition) bool) {
		t.Helper()
		await.That(t, func() bool { return want(seen.last()) && seen.last() == f.Condition(1) }, "the condition of database 1, which is %v", f.Condition(1))
		require.True(t, f.Writable(0))
	}
	row := f.put(t, task.Task{BizID: 1, BizType: 1, ActionTime: f.in(0)})[0]

	own.Freeze() // only the watch uses it
	is(func(c store.Condition) bool { return c.Down != nil })
	require.False(t, f.Readable(1))
	own.Thaw()
	is(store.Condition.Usable)

	own.Kill()
	is(func(c store.Condition) bool { return c.Down != nil })
	own.Start()
	is(store.Condition.Usable)

	setReadOnly(t, own, 1)
	is(store.Condition.IsReadOnly)
	require.True(t, f.Readable(1))
	require.False(t, f.Writable(1))
	_, err := f.Get(t.Context(), row.JobID)
	require.NoError(t, err)
	setReadOnly(t, own, 0)
	is(store.Condition.Usable)
	require.Len(t, seen.list, 6, "each once")
}

// A server that is slow with every answer, also while connecting, is slow and not down.
func TestASlowDatabaseIsNotDown(t *testing.T) {
	t.Parallel()
	shared := testrig.MySQL(t)
	line := testrig.StartProxy(t, shared.Addr())
	f := openFixture(t, store.Config{
		Driver: store.MySQL, Layout: small, Timeout: 3 * time.Second,
		DSNs: []string{fmt.Sprintf(shared.DSN(), 0), strings.Replace(fmt.Sprintf(shared.DSN(), 1), shared.Addr(), line.Addr(), 1)},
	})
	seen := &changes{t: t}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Watch(ctx, seen.note) }()
	t.Cleanup(func() { stop(); require.ErrorIs(t, <-ended, context.Canceled) })
	line.Delay(600 * time.Millisecond)
	await.That(t, func() bool { return f.Condition(1).Slow != 0 }, "database 1 is slow")
	for range 5 { // a handshake takes five answers, longer than one may take
		db, err := sql.Open("mysql", f.cfg.DSNs[1])
		require.NoError(t, err)
		require.NoError(t, db.PingContext(t.Context()))
		require.NoError(t, db.Close())
		require.True(t, f.Writable(1), f.Condition(1))
	}
	require.Len(t, seen.list, 1)
	line.Delay(0)
	await.That(t, func() bool { return seen.last() == store.Condition{} && f.Condition(1) == store.Condition{} }, "database 1 is well")
	require.Len(t, seen.list, 2)
}

// A fault of one table, one row or one caller is no evidence against the database.
func TestWhatSaysNothingOfADatabase(t *testing.T) {
	t.Parallel()
	for _, p := range []place{onSQLite(), onMySQL()} {
		t.Run(string(p.driver), func(t *testing.T) {
			f := p.open(t, small)
			stored := f.put(t, f.inEachTable(1)...)
			_, err := f.hands[0].ExecContext(t.Context(), "ALTER TABLE timeout_task_0000 RENAME TO away")
			require.NoError(t, err)
			gaveUp, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			long := string(make([]byte, 70_000))
			for range 5 {
				_, err = f.Get(t.Context(), stored[0].JobID)
				require.ErrorIs(t, err, task.ErrUnavailable)
				_, err = f.Move(t.Context(), store.Move{JobID: stored[0].JobID, To: task.Cancelled})
				require.ErrorIs(t, err, task.ErrUnavailable)
				_, err = f.Get(gaveUp, stored[2].JobID)
				require.Error(t, err)
				_, err = f.Get(cancelled(t), stored[2].JobID)
				require.Error(t, err)
				_ = f.Insert(t.Context(), []task.Task{{BizID: stored[2].BizID, BizType: 1, ActionTime: f.in(0), DedupKey: long}}) // MySQL refuses it
				require.Equal(t, store.Condition{}, f.Condition(0))
			}
		})
	}
}

// Failed reads beside a successful one do not leave a database down for ever: callers that take it for down do
// not read it.
func TestAReadThatSucceedsEndsIt(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	broken := errors.New("broken")
	for range 2000 {
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				if i == 3 {
					store.NoteRead(t.Context(), f.Store, 0, nil)
				} else {
					store.NoteRead(t.Context(), f.Store, 0, broken)
				}
			})
		}
		all.Wait()
		store.NoteRead(t.Context(), f.Store, 0, nil)
		require.Equal(t, store.Condition{}, f.Condition(0))
	}
}

// A time-out is evidence against a database if the store's own time has passed, but not if its caller had less.
// A read-only server stays read-only, even if our user may still write to it, until its own answers change.
func TestWhatATimeoutAndAWriteSay(t *testing.T) {
	t.Parallel()
	f := onSQLite().open(t, small)
	own, cancel := store.Patience(t.Context(), time.Hour)
	defer cancel()
	less, cancel := context.WithTimeout(own, time.Minute)
	defer cancel()
	hasty, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	within, cancel := store.Patience(hasty, time.Hour)
	defer cancel()
	for _, ctx := range []context.Context{less, hasty, within} {
		store.NoteWrite(ctx, f.Store, 0, context.DeadlineExceeded)
		for range 3 {
			store.NoteRead(ctx, f.Store, 0, context.DeadlineExceeded)
		}
		require.Equal(t, store.Condition{}, f.Condition(0))
	}
	store.NoteWrite(own, f.Store, 0, context.DeadlineExceeded)
	require.False(t, f.Writable(0))
	store.NoteWrite(own, f.Store, 0, nil)
	require.True(t, f.Writable(0))

	store.NoteWrite(own, f.Store, 0, store.ErrReadOnly)
	store.NoteWrite(own, f.Store, 0, nil)
	require.True(t, f.Condition(0).IsReadOnly())
	require.True(t, f.Probe(t.Context(), 0).Usable(), "it says that it is not")
}
