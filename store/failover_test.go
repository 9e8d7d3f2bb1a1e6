package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// grant makes the store's user, which may not write to a read-only server.
func grant(t testing.TB, server *testrig.PrivateMySQL, prefix string) {
	t.Helper()
	db := server.DB(t)
	_, err := db.ExecContext(t.Context(), "CREATE USER app@'%' IDENTIFIED BY 'secret'")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), fmt.Sprintf("GRANT ALL ON `%s%%`.* TO app@'%%'", strings.ReplaceAll(prefix, "_", `\_`)))
	require.NoError(t, err)
}

func setReadOnly(t testing.TB, server *testrig.PrivateMySQL, on int) {
	t.Helper()
	_, err := server.DB(t).ExecContext(t.Context(), fmt.Sprintf("SET GLOBAL read_only=%d", on))
	require.NoError(t, err)
}

// A fail-over that cuts no connection: the old primary becomes read-only, new connections reach the new one.
// Before, all writes were refused until a restart, and pings succeeded.
func TestMySQLFailOverThatKeepsConnections(t *testing.T) {
	t.Parallel()
	old, next := testrig.StartMySQL(t, testrig.BufferPool("64M")), testrig.StartMySQL(t, testrig.BufferPool("64M"))
	dsn := func(login, addr string) string { return login + "@tcp(" + addr + ")/" + old.Prefix() + "%d" }
	on := func(server *testrig.PrivateMySQL) *fixture {
		grant(t, server, old.Prefix())
		return openFixture(t, store.Config{Driver: store.MySQL, Layout: small, DSN: dsn("root", server.Addr())})
	}
	before, after := on(old), on(next)
	proxy := testrig.StartProxy(t, old.Addr())
	cfg := before.cfg
	cfg.DSN = dsn("app:secret", proxy.Addr())
	s := before.another(t, cfg)
	insert := func(biz uint64) store.Inserted {
		return s.Insert(t.Context(), []task.Task{{BizID: biz, BizType: 1, ActionTime: before.in(0)}})[0]
	}
	var wg sync.WaitGroup
	for range 16 { // many connections
		for biz := range uint64(2) {
			wg.Go(func() {
				if r := insert(biz); r.Err != nil {
					t.Error(r.Err)
				}
				if _, err := s.Get(t.Context(), before.NewID(biz)); err == nil {
					t.Error("found")
				}
			})
		}
	}
	wg.Wait()
	require.True(t, s.Probe(t.Context(), 0).Usable())
	require.True(t, s.Probe(t.Context(), 1).Usable())

	setReadOnly(t, old, 1)
	r := insert(0)
	require.ErrorIs(t, r.Err, task.ErrUnavailable)
	require.ErrorContains(t, r.Err, "read-only")
	require.True(t, s.Probe(t.Context(), 1).IsReadOnly())
	require.Empty(t, after.everything(t))

	proxy.Turn(next.Addr())
	var stored []store.Inserted
	for biz := range uint64(2) {
		await.Success(t, func() error {
			r := insert(biz)
			stored = append(stored, r)
			return r.Err
		}, "biz_id %d is stored", biz)
	}
	stored = slices.DeleteFunc(stored, func(r store.Inserted) bool { return r.Err != nil })
	for _, r := range stored {
		require.Contains(t, after.everything(t), r.Task.JobID)
	}
	for d := range 2 {
		await.That(t, func() bool { return s.Probe(t.Context(), d).Usable() }, "database %d is usable", d)
	}
	// Reads have left it, too.
	for _, r := range stored {
		read, err := s.Get(t.Context(), r.Task.JobID)
		require.NoError(t, err)
		require.Equal(t, r.Task, read)
		applied, err := s.Move(t.Context(), store.Move{JobID: r.Task.JobID, To: task.Cancelled})
		require.NoError(t, err)
		require.True(t, applied)
	}
}

// A server that is read-only for a while and then is not works again by itself.
func TestMySQLReadOnlyForAWhile(t *testing.T) {
	t.Parallel()
	own := testrig.StartMySQL(t, testrig.BufferPool("64M"))
	grant(t, own, own.Prefix())
	f := openFixture(t, store.Config{Driver: store.MySQL, Layout: small, DSN: own.DSN()})
	cfg := f.cfg
	cfg.DSN = "app:secret@tcp(" + own.Addr() + ")/" + own.Prefix() + "%d"
	s := f.another(t, cfg)
	one := s.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}})[0]
	require.NoError(t, one.Err)
	hold, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	setReadOnly(t, own, 1)
	for range 20 {
		_, err := s.Move(t.Context(), store.Move{JobID: one.Task.JobID, To: task.Cancelled})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.ErrorContains(t, err, "read-only")
		read, err := s.Get(t.Context(), one.Task.JobID)
		require.NoError(t, err, "it can still be read")
		require.Equal(t, one.Task, read)
	}
	// A user with all rights could write. Once a ping has found the server read-only, nothing is written for it either.
	require.True(t, f.Probe(t.Context(), 0).IsReadOnly())
	refused := f.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}})[0]
	require.ErrorIs(t, refused.Err, task.ErrNotBegun)
	_, err = f.Move(t.Context(), store.Move{JobID: one.Task.JobID, To: task.Cancelled})
	require.ErrorIs(t, err, task.ErrNotBegun)
	require.Equal(t, []bool{false}, []bool{f.MoveAll(t.Context(), []store.Move{{JobID: one.Task.JobID, To: task.Cancelled}})[0].Applied})
	require.Len(t, f.everything(t), 1)
	require.ErrorIs(t, f.SetControl(t.Context(), 0, store.Control{BizType: 1, Paused: true, Changed: f.in(0)}), task.ErrNotBegun)
	require.ErrorIs(t, hold.Check(t.Context()), store.ErrReadOnly)
	for _, holder := range []store.Holder{alone("next"), ofCluster("11")} {
		_, err = f.Lock(t.Context(), 1, holder)
		require.ErrorIs(t, err, store.ErrReadOnly)
	}

	setReadOnly(t, own, 0)
	require.NoError(t, hold.Check(t.Context()))
	require.True(t, f.Probe(t.Context(), 0).Usable())
	require.NoError(t, f.Insert(t.Context(), []task.Task{{BizID: 0, BizType: 1, ActionTime: f.in(0)}})[0].Err)
	applied, err := s.Move(t.Context(), store.Move{JobID: one.Task.JobID, To: task.Cancelled})
	require.NoError(t, err)
	require.True(t, applied)
	require.True(t, s.Probe(t.Context(), 0).Usable())
}
