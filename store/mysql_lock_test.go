package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
)

// ofCluster is a node's part of a cluster.
func ofCluster(id string) store.Holder {
	return store.Holder{Kind: store.HolderCluster, ID: id, Name: "toc"}
}

// A server may hang up on idle connections: a clean stop is clean all the same.
func TestMySQLHangsUpBeforeTheStop(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	s := f.another(t, f.cfg)
	l, err := s.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.NoError(t, s.Probe(t.Context(), 0).Down)
	_, err = s.Load(t.Context(), []uint64{1})
	require.NoError(t, err)
	f.hangUp(t)
	require.NoError(t, l.Release(true))
	f.hangUp(t)
	require.NoError(t, s.Close())
}

// hangUp ends the server's connections to database 0, except our own.
func (f *fixture) hangUp(t *testing.T) (n int) {
	rows, err := f.hands[0].QueryContext(t.Context(),
		"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	require.NoError(t, err)
	defer rows.Close()
	for ; rows.Next(); n++ {
		var id int64
		require.NoError(t, rows.Scan(&id))
		_, _ = f.hands[1].ExecContext(t.Context(), fmt.Sprintf("KILL CONNECTION %d", id)) // it may be gone by itself
	}
	require.NoError(t, rows.Err())
	return n
}

// A hold does not depend on connections: the server may cut them all. Before, each cut freed the lock while its
// holder continued to work, for up to 7 s.
func TestMySQLLockOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	l, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.Positive(t, f.hangUp(t))

	stop := make(chan struct{})
	beats := make(chan int)
	go func() { // fails once, where its connection was cut
		good := 0
		for {
			select {
			case <-stop:
				beats <- good
				return
			case <-time.After(100 * time.Millisecond):
				if l.Check(context.Background()) == nil {
					good++
				}
			}
		}
	}()
	_, err = f.another(t, f.cfg).Lock(t.Context(), 0, alone("the next"))
	close(stop)
	require.Positive(t, <-beats)
	require.ErrorContains(t, err, "held by me")
	require.NoError(t, l.Check(t.Context()))
}

// A silent holder is replaced after its lease, and then learns that it has lost the lock. Before, the lock of a
// host that had died was held for hours.
func TestMySQLLockOfASilentHolderIsTakenOver(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	silent, err := f.Lock(t.Context(), 0, alone("silent"))
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, silent.Check(t.Context()))
	next, err := f.another(t, f.cfg).Lock(t.Context(), 0, alone("the next"))
	require.NoError(t, err)
	require.Greater(t, time.Since(began), store.Lease)
	require.True(t, next.TakenUncleanly())

	require.ErrorIs(t, silent.Check(t.Context()), store.ErrLockLost)
	require.ErrorContains(t, silent.Check(t.Context()), "the next")
	require.ErrorIs(t, silent.Release(true), store.ErrLockLost)
	require.NoError(t, next.Check(t.Context()))
	_, err = f.hands[0].ExecContext(t.Context(), "DELETE FROM toc_meta WHERE name = 'holder'")
	require.NoError(t, err)
	require.ErrorIs(t, next.Check(t.Context()), store.ErrLockLost, "who deletes the row takes the hold away")
}

// A beat that was made, but whose answer was lost, proves nothing by itself.
func TestMySQLLockAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	me := alone("me")
	l, err := f.Lock(t.Context(), 0, me)
	require.NoError(t, err)
	made := "single " + me.ID + " 2 held me" // the first Check makes the second beat
	_, err = f.hands[0].ExecContext(t.Context(), "UPDATE toc_meta SET value = ? WHERE name = 'holder'", made)
	require.NoError(t, err)
	require.NoError(t, l.Check(t.Context()))
	var text string
	require.NoError(t, f.hands[0].QueryRowContext(t.Context(), "SELECT value FROM toc_meta WHERE name = 'holder'").Scan(&text))
	require.Equal(t, "single "+me.ID+" 3 held me", text)
}

// A row lock on the holder's row is waited for for one second, not for the server's 50.
func TestMySQLLockWaitsForNobodyLong(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	l, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	tx, err := f.hands[0].BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE toc_meta SET value = CONCAT(value, '!') WHERE name = 'holder'")
	require.NoError(t, err)
	began := time.Now()
	require.Error(t, l.Check(t.Context()))
	require.Less(t, time.Since(began), 45*time.Second, "the server itself would wait for 50 s")
	require.NoError(t, tx.Rollback())
	require.NoError(t, l.Check(t.Context()))
}

// A cluster's nodes hold a database together. No other holder gets it: no single node, no other cluster of the
// same name. Before, two owners fired every task twice.
func TestMySQLLockOfACluster(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	a, err := f.Lock(t.Context(), 0, ofCluster("11"))
	require.NoError(t, err)
	b, err := f.another(t, f.cfg).Lock(t.Context(), 0, ofCluster("11"))
	require.NoError(t, err)
	require.False(t, b.TakenUncleanly())
	stopA, stopB := checked(t, a), checked(t, b)
	for _, other := range []store.Holder{alone("me"), ofCluster("22")} {
		_, err = f.another(t, f.cfg).Lock(t.Context(), 0, other)
		require.ErrorContains(t, err, `held by the cluster "toc" (id 11)`)
	}
	stopA()
	require.NoError(t, a.Release(true))
	_, err = f.another(t, f.cfg).Lock(t.Context(), 0, alone("me"))
	require.ErrorContains(t, err, `the cluster "toc"`, "one node of it goes on")
	stopB()
	single, err := f.another(t, f.cfg).Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.ErrorIs(t, b.Check(t.Context()), store.ErrLockLost)
	stopSingle := checked(t, single)
	_, err = f.Lock(t.Context(), 0, ofCluster("11"))
	require.ErrorContains(t, err, "held by me")
	stopSingle()
}

// Each check reads the server's clock.
func TestMySQLServerClock(t *testing.T) {
	t.Parallel()
	f := onMySQL().open(t, small)
	_, ok := f.ServerClock(0)
	require.False(t, ok, "never asked")
	l, err := f.Lock(t.Context(), 0, alone("me"))
	require.NoError(t, err)
	require.NoError(t, l.Check(t.Context()))
	c, ok := f.ServerClock(0)
	require.True(t, ok)
	require.False(t, c.Received.Before(c.Sent))
	require.WithinRange(t, c.Server, c.Sent.Add(-time.Minute), c.Received.Add(time.Minute))
	_, ok = f.ServerClock(1)
	require.False(t, ok)
}
