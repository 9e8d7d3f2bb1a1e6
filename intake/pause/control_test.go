package pause_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake/pause"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// databases are some toc_controls in memory.
type databases struct {
	mu   sync.Mutex
	rows []map[uint64]store.Control
	down map[int]bool  // they answer nothing
	hang map[int]bool  // they answer when the caller gives up
	runs map[int]bool  // they have an operation that runs
	slow time.Duration // so late all answer
}

func newDatabases(n int) *databases {
	d := &databases{down: map[int]bool{}, hang: map[int]bool{}, runs: map[int]bool{}}
	for range n {
		d.rows = append(d.rows, map[uint64]store.Control{})
	}
	return d
}

func (d *databases) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *databases) Readable(database int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.down[database]
}

func (d *databases) Writable(database int) bool { return d.Readable(database) }

func (d *databases) wait(ctx context.Context, database int) error {
	d.mu.Lock()
	hangs, slow := d.hang[database], d.slow
	d.mu.Unlock()
	if err := wait.For(ctx, slow); err != nil {
		return err
	}
	if hangs {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (d *databases) Decisions(ctx context.Context, database int) (all store.Decisions, err error) {
	if err := d.wait(ctx, database); err != nil {
		return all, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down[database] {
		return all, errors.New("down")
	}
	for _, row := range d.rows[database] {
		all.Controls = append(all.Controls, row)
	}
	all.Operation = d.runs[database]
	return all, nil
}

func (d *databases) SetControl(ctx context.Context, database int, c store.Control) error {
	if err := d.wait(ctx, database); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down[database] {
		return errors.New("down")
	}
	if c.Replaces(d.rows[database][c.BizType]) {
		d.rows[database][c.BizType] = c
	}
	return nil
}

// node is a Control, and what it has put in force.
type node struct {
	*pause.Control
	mu     sync.Mutex
	paused []uint64
}

func (n *node) SetPaused(bizTypes []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = bizTypes
}

func (n *node) inForce() []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused
}

// start runs a node until the end of the test.
func start(t *testing.T, d *databases) *node {
	n := &node{}
	n.Control = pause.New(pause.Config{
		Store: d, Databases: len(d.rows), Gate: n, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	n.Load(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.ErrorIs(t, <-done, context.Canceled) })
	return n
}

func pauseOf(bizType uint64) store.Control {
	return store.Control{BizType: bizType, Paused: true, Actor: "api"}
}

func TestADecisionIsInForceOnAllNodesWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(3)
		one, two := start(t, d), start(t, d)
		d.change(func() { d.hang[0] = true })
		require.NoError(t, one.Set(t.Context(), pauseOf(7)))
		require.Equal(t, []uint64{7}, one.inForce(), "at the answer")
		time.Sleep(2 * time.Second)
		require.Equal(t, []uint64{7}, two.inForce(), "a database that hangs holds up nobody")
		require.NoError(t, two.Set(t.Context(), store.Control{BizType: 7}))
		require.Empty(t, two.inForce())
		time.Sleep(2 * time.Second)
		require.Empty(t, one.inForce())
	})
}

// An operator pauses when databases are slow: a decision waits for the first that takes it, and then a second for the others.
func TestADecisionWaitsForSlowDatabases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(3)
		n := start(t, d)
		d.change(func() { d.slow, d.hang[0] = 4*time.Second, true })
		begin := time.Now()
		require.NoError(t, n.Set(t.Context(), pauseOf(7)))
		require.Equal(t, []uint64{7}, n.inForce())
		require.Equal(t, 6*time.Second, time.Since(begin), "one to read, four to write, one for the database that hangs")
	})
}

// A database that was down has an old pause when it is back. It must not come into force again, on no node, and not
// after a restart.
func TestTheLastChangeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(3)
		n := start(t, d)
		require.NoError(t, n.Set(t.Context(), pauseOf(7)))
		d.change(func() { d.down[1] = true })
		require.NoError(t, n.Set(t.Context(), store.Control{BizType: 7}))
		d.change(func() { d.down[1] = false })
		time.Sleep(2 * time.Second)
		require.Empty(t, n.inForce())
		d.change(func() { d.down[0], d.down[2] = true, true })
		require.Empty(t, start(t, d).inForce(), "it was copied to the database that had missed it")
	})
}

// A row that was changed by hand in one database is copied to the others.
func TestAChangeInOneDatabaseIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(3)
		n := start(t, d)
		d.change(func() { d.rows[2][7] = store.Control{BizType: 7, Paused: true, Actor: "sql", Changed: time.Now()} })
		time.Sleep(3 * time.Second)
		require.Equal(t, []uint64{7}, n.inForce())
		d.change(func() { require.True(t, d.rows[0][7].Paused && d.rows[1][7].Paused) })
	})
}

func TestAPauseOutlivesARestartAndAllDatabases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(2)
		require.NoError(t, start(t, d).Set(t.Context(), pauseOf(7)))
		n := start(t, d)
		require.Equal(t, []uint64{7}, n.inForce(), "before anything starts")
		d.change(func() { d.down[0], d.down[1] = true, true })
		time.Sleep(time.Minute)
		require.Equal(t, []uint64{7}, n.inForce())
		require.ErrorIs(t, n.Set(t.Context(), store.Control{BizType: 7}), task.ErrUnavailable)
		require.Equal(t, []uint64{7}, n.inForce(), "nothing took it")
	})
}

func TestAPauseEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(2)
		n := start(t, d)
		p := pauseOf(7)
		p.Until = time.Now().Add(time.Minute)
		require.NoError(t, n.Set(t.Context(), p))
		d.change(func() { d.down[0], d.down[1] = true, true })
		time.Sleep(59 * time.Second)
		require.Equal(t, []uint64{7}, n.inForce())
		time.Sleep(2 * time.Second)
		require.Empty(t, n.inForce())
		_, paused := n.Paused(7)
		require.False(t, paused)
	})
}

// Each decision is later than the one that it replaces, also if that came from a node whose clock is ahead.
func TestADecisionReplacesOneOfAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(1)
		d.rows[0][7] = store.Control{BizType: 7, Paused: true, Changed: time.Now().Add(time.Hour)}
		n := start(t, d)
		require.NoError(t, n.Set(t.Context(), store.Control{BizType: 7}))
		require.Empty(t, n.inForce())
		require.False(t, d.rows[0][7].Paused)
	})
}

// The node that decides may not have read yet what another one wrote, whose clock is ahead.
func TestADecisionReplacesOneThatWasNotReadYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(2)
		n := start(t, d)
		for i := range d.rows {
			d.change(func() { d.rows[i][7] = store.Control{BizType: 7, Paused: true, Changed: time.Now().Add(time.Second)} })
		}
		d.change(func() { d.hang[0] = true })
		require.NoError(t, n.Set(t.Context(), store.Control{BizType: 7}))
		d.change(func() { d.hang[0] = false })
		time.Sleep(15 * time.Second) // the read that hangs ends, and the next one comes
		require.Empty(t, n.inForce())
		d.change(func() { require.False(t, d.rows[0][7].Paused || d.rows[1][7].Paused) })
	})
}

// Two nodes decide in the same millisecond, and each reaches one database.
func TestNodesAgreeOnDecisionsOfTheSameMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(2)
		one, two := start(t, d), start(t, d)
		same := time.Now()
		d.change(func() {
			d.rows[0][7] = store.Control{BizType: 7, Paused: true, Changed: same}
			d.rows[1][7] = store.Control{BizType: 7, Changed: same}
		})
		time.Sleep(3 * time.Second)
		require.Equal(t, []uint64{7}, one.inForce(), "the pause wins")
		require.Equal(t, []uint64{7}, two.inForce())
		d.change(func() { require.True(t, d.rows[0][7].Paused && d.rows[1][7].Paused) })
	})
}

// An operation that runs in one database is noticed within two seconds, and so is its end; a database that is down
// counts as it was.
func TestAnOperationIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabases(3)
		n := start(t, d)
		require.False(t, n.OperationRuns())
		d.change(func() { d.runs[1] = true })
		time.Sleep(2 * time.Second)
		require.True(t, n.OperationRuns())
		d.change(func() { d.down[1], d.runs[1] = true, false })
		time.Sleep(time.Minute)
		require.True(t, n.OperationRuns())
		d.change(func() { d.down[1] = false })
		time.Sleep(2 * time.Second)
		require.False(t, n.OperationRuns())
	})
}
