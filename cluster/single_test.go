package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func TestMain(m *testing.M) {
	// The tests on Consul wait for time-outs, mostly: more of them than there are
	// cores fit beside each other. -parallel wins over this.
	_ = flag.Set("test.parallel", "12")
	testrig.Main(m)
}

// layout has four databases with two partitions each.
var layout = sharding.Layout{Databases: 4, TablesPerDatabase: 4, Partitions: 8}

// locks is a Locker. Each database can be made unreachable, unfit, or occupied, and a lock can be lost.
type locks struct {
	begun atomic.Int32 // calls of BeginWaiting

	mu       sync.Mutex
	down     map[int]bool
	mute     map[int]bool // calls get no answer
	unfit    map[int]error
	occupied map[int]string
	lost     map[int]error // Check answers it
	hangs    map[int]bool  // Check does not answer
	held     map[int]bool
	unclean  bool // the holder before released nothing
	asked    map[int][]time.Time
	holders  []store.Holder
}

func newLocks() *locks {
	return &locks{
		down: map[int]bool{}, mute: map[int]bool{}, unfit: map[int]error{}, occupied: map[int]string{}, lost: map[int]error{},
		hangs: map[int]bool{}, held: map[int]bool{}, asked: map[int][]time.Time{},
	}
}

// set changes what the databases do.
func (l *locks) set(change func(*locks)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

func (l *locks) BeginWaiting() { l.begun.Add(1) }

func (l *locks) Prepare(_ context.Context, database int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[database] = append(l.asked[database], time.Now())
	if l.mute[database] {
		return &store.DatabaseError{Database: database, Op: "connect", Err: context.DeadlineExceeded}
	}
	if l.down[database] {
		return &store.DatabaseError{Database: database, Op: "connect", Err: errors.New("connection refused")}
	}
	return l.unfit[database]
}

func (l *locks) Lock(_ context.Context, database int, holder store.Holder) (store.Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holders = append(l.holders, holder)
	if by := l.occupied[database]; by != "" {
		return nil, &store.OccupiedError{Database: "toc_x", Holder: by}
	}
	l.held[database] = true
	return &lock{locks: l, database: database}, nil
}

type lock struct {
	locks    *locks
	database int
	released bool
}

func (k *lock) Check(ctx context.Context) error {
	k.locks.mu.Lock()
	hangs, err := k.locks.hangs[k.database], k.locks.lost[k.database]
	k.locks.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (k *lock) TakenUncleanly() bool { return k.locks.unclean }

func (k *lock) Release(settled bool) error {
	k.locks.mu.Lock()
	defer k.locks.mu.Unlock()
	if k.released {
		panic("released twice")
	}
	k.released = true
	k.locks.held[k.database] = false
	return k.locks.lost[k.database]
}

// logbook is the log of a test.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), message)
}

func single(l *locks, change ...func(*cluster.SingleConfig)) (*cluster.Single, *logbook) {
	log := &logbook{}
	cfg := cluster.SingleConfig{Node: "here-1", Layout: layout, Locker: l, Host: l, Logger: slog.New(slog.NewTextHandler(log, nil))}
	for _, c := range change {
		c(&cfg)
	}
	return cluster.NewSingle(cfg), log
}

// heldLocks is the number of held locks.
func (l *locks) heldLocks() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.held {
		if held {
			n++
		}
	}
	return n
}

func TestAcquireOwnsAll(t *testing.T) {
	l := newLocks()
	s, _ := single(l)
	require.Empty(t, s.Ownership().Owned(), "nothing before")
	require.NoError(t, s.Acquire(t.Context()))
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, s.Ownership().Owned())
	require.Len(t, l.holders, 4)
	for _, h := range l.holders {
		require.Equal(t, store.Holder{Kind: store.HolderSingle, ID: l.holders[0].ID, Name: "here-1"}, h)
	}
	another, _ := single(l)
	require.NoError(t, another.Acquire(t.Context()))
	require.NotEqual(t, l.holders[0].ID, l.holders[4].ID, "each process is a holder of its own")
	another.Release()
	s.Release()
	require.Empty(t, s.Ownership().Owned())
	require.Zero(t, l.heldLocks())
	s.Release() // nothing is left to release
}

// A node that is started long before its databases waits for them, says so, and starts with the first that comes.
func TestAcquireWaitsForADatabase(t *testing.T) {
	for name, away := range map[string]func(l *locks, d int, is bool){
		"down":   func(l *locks, d int, is bool) { l.down[d] = is },
		"silent": func(l *locks, d int, is bool) { l.mute[d] = is },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLocks()
				for d := range 4 {
					away(l, d, true)
				}
				s, log := single(l)
				start, acquired := time.Now(), make(chan error, 1)
				go func() { acquired <- s.Acquire(t.Context()) }()
				after(10 * time.Minute)
				require.Empty(t, acquired)
				require.EqualValues(t, 1, l.begun.Load())
				require.Len(t, s.Waits(), 4)
				for d, w := range s.Waits() {
					require.Equal(t, d, w.Database)
					require.Equal(t, start, w.Since)
					require.ErrorIs(t, w.Err, task.ErrUnavailable)
				}
				require.InDelta(t, 60, log.count("waiting to start"), 12, "each ten seconds")
				require.Equal(t, log.count("waiting to start"), log.count("database 3, since "+start.UTC().Format(time.RFC3339)), "each line names all")
				l.set(func(l *locks) {
					asked := l.asked[3]
					for i := range asked[1:] {
						require.LessOrEqual(t, asked[i+1].Sub(asked[i]), 3*time.Second)
					}
					away(l, 1, false)
				})
				after(3 * time.Second)
				require.NoError(t, <-acquired)
				require.Equal(t, []int{2, 3}, s.Ownership().Owned(), "it works with what there is")
				require.Len(t, s.Waits(), 3)
				require.Equal(t, 1, log.count("the wait is over"))
				s.Release()
			})
		})
	}
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks()
		for d := range 4 {
			l.down[d] = true
		}
		s, _ := single(l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := s.Acquire(ctx)
		require.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var waited *cluster.WaitError
		require.ErrorAs(t, err, &waited)
		require.Len(t, waited.Waits, 4)
		require.ErrorContains(t, err, "while waiting for database 0, since 2000-01-01T00:00:00Z: connect in database 0: connection refused; database 1")
	})
}

// Files do not come later, unless they are busy.
func TestAcquireDoesNotWaitForFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks()
		for d := range 4 {
			l.down[d], l.mute[d] = true, true
		}
		s, _ := single(l, func(c *cluster.SingleConfig) { c.Local = true })
		acquired := make(chan error, 1)
		go func() { acquired <- s.Acquire(t.Context()) }()
		after(time.Minute)
		require.Empty(t, acquired)
		l.set(func(l *locks) { l.mute[2] = false })
		after(3 * time.Second)
		err := <-acquired
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.ErrorContains(t, err, "none of the databases can be opened: connect in database 2: connection refused")
	})
}

// A node that may not work on the store holds nothing.
func TestAcquireRefuses(t *testing.T) {
	unfit := errors.New("toc_1 was made with another layout")
	for _, c := range []struct {
		name  string
		hurt  func(l *locks)
		check func(t *testing.T, err error)
	}{
		{"another process holds it", func(l *locks) {
			for d := range 4 {
				l.occupied[d] = "there-2"
			}
		}, func(t *testing.T, err error) {
			var occupied *store.OccupiedError
			require.ErrorAs(t, err, &occupied)
			require.EqualError(t, err, "the store is in use: toc_x is held by there-2; stop that process first, or give this one another store")
		}},
		{"another process holds one database", func(l *locks) { l.occupied[3] = "there-2" }, func(t *testing.T, err error) {
			var occupied *store.OccupiedError
			require.ErrorAs(t, err, &occupied)
		}},
		{"one is unfit", func(l *locks) { l.unfit[1] = unfit }, func(t *testing.T, err error) { require.ErrorIs(t, err, unfit) }},
		{"one is unfit, the others down", func(l *locks) {
			l.unfit[1] = unfit
			l.down[0], l.down[2], l.down[3] = true, true, true
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, unfit) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLocks()
			c.hurt(l)
			s, _ := single(l)
			err := s.Acquire(t.Context())
			c.check(t, err)
			require.Empty(t, s.Ownership().Owned())
			require.Zero(t, l.heldLocks())
		})
	}
}

// running runs a Single in a bubble until f returns.
func running(t *testing.T, l *locks, f func(t *testing.T, s *cluster.Single, log *logbook)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, log := single(l)
		require.NoError(t, s.Acquire(t.Context()))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		f(t, s, log)
		stop()
		require.NoError(t, <-ended)
		s.Release()
		require.Empty(t, s.Ownership().Owned())
		require.Zero(t, l.heldLocks())
	})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestADatabaseThatCannotBeReachedAtTheStartIsTakenLater(t *testing.T) {
	l := newLocks()
	l.down[2] = true
	running(t, l, func(t *testing.T, s *cluster.Single, log *logbook) {
		start := time.Now()
		require.Equal(t, []int{0, 1, 2, 3, 6, 7}, s.Ownership().Owned())
		require.Equal(t, 1, log.count("database not usable; its partitions wait"))
		rings := s.Ownership().Watch()
		after(3 * time.Minute)
		require.Empty(t, rings)
		l.set(func(l *locks) {
			// It is asked for with growing pauses. Up to 30 s were too many: a database that
			// was back after an outage stood idle for as long again.
			var at []time.Duration
			for _, asked := range l.asked[2][:6] {
				at = append(at, asked.Sub(start)/time.Second)
			}
			require.Equal(t, []time.Duration{0, 1, 3, 6, 9, 12}, at)
			require.LessOrEqual(t, log.count("database still not usable"), 7, "not at each attempt")
			delete(l.down, 2)
		})
		after(3 * time.Second)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, s.Ownership().Owned())
		require.Len(t, rings, 1)
		require.Equal(t, 1, log.count("database is back"))
	})
}

// While a database is silent its partitions are owned until the lease of the last good check ends. The other
// databases are not affected.
func TestASilentDatabaseLosesItsPartitionsWhenTheLeaseIsOver(t *testing.T) {
	for name, change := range map[string]func(l *locks, silent bool){
		"refuses": func(l *locks, silent bool) {
			l.lost[1], l.down[1] = errors.New("server has gone away"), true
			if !silent {
				delete(l.lost, 1)
				delete(l.down, 1)
			}
		},
		"hangs": func(l *locks, silent bool) { l.hangs[1] = silent },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocks()
			running(t, l, func(t *testing.T, s *cluster.Single, log *logbook) {
				rings := s.Ownership().Watch()
				after(time.Minute)
				require.Empty(t, rings, "all is well")
				term := s.Ownership().Term(2)
				l.set(func(l *locks) { change(l, true) })
				after(1900 * time.Millisecond)
				require.Len(t, s.Ownership().Owned(), 8, "the last good check was a second ago at most")
				after(1100 * time.Millisecond)
				require.Equal(t, []int{0, 1, 4, 5, 6, 7}, s.Ownership().Owned())
				require.Len(t, rings, 1)
				<-rings
				after(2 * time.Second)
				require.Equal(t, 1, log.count("lost a database; its partitions stop"))

				l.set(func(l *locks) { change(l, false) })
				after(5 * time.Second)
				require.Len(t, s.Ownership().Owned(), 8)
				require.NotEqual(t, term, s.Ownership().Term(2), "somebody else may have had it")
				require.Len(t, rings, 1)
				after(time.Hour)
				require.Equal(t, 1, log.count("lost a database"))
			})
		})
	}
}

// A lock that another holder has is lost at once.
func TestALostLockGivesItsPartitionsUpUntilItIsRegained(t *testing.T) {
	l := newLocks()
	running(t, l, func(t *testing.T, s *cluster.Single, log *logbook) {
		after(time.Minute)
		l.set(func(l *locks) {
			l.lost[1] = fmt.Errorf("%w: held by there-2", store.ErrLockLost)
			l.occupied[1] = "there-2"
		})
		after(time.Second)
		require.Equal(t, []int{0, 1, 4, 5, 6, 7}, s.Ownership().Owned())
		require.Equal(t, 1, log.count("lost a database; its partitions stop"))
		after(time.Minute)
		require.Equal(t, []int{0, 1, 4, 5, 6, 7}, s.Ownership().Owned())
		require.Positive(t, log.count("held by there-2"))

		l.set(func(l *locks) {
			delete(l.occupied, 1)
			delete(l.lost, 1)
			l.unclean = true
		})
		began := time.Now()
		after(4 * time.Second)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, s.Ownership().Owned())
		at, unclean := s.Ownership().TakenUncleanly(3)
		require.True(t, unclean, "there-2 released nothing")
		require.WithinRange(t, at, began, time.Now())
		s.Ownership().Settled(3, s.Ownership().Term(3)+1)
		_, unclean = s.Ownership().TakenUncleanly(3)
		require.True(t, unclean, "that was another term")
		s.Ownership().Settled(3, s.Ownership().Term(3))
		_, unclean = s.Ownership().TakenUncleanly(3)
		require.False(t, unclean)
		_, unclean = s.Ownership().TakenUncleanly(2)
		require.True(t, unclean)
		_, unclean = s.Ownership().TakenUncleanly(0)
		require.False(t, unclean)
	})
}

// The end of Run is not a loss: a held lock stays held.
func TestStoppingDuringACheckLosesNothing(t *testing.T) {
	l := newLocks()
	running(t, l, func(t *testing.T, s *cluster.Single, log *logbook) {
		l.set(func(l *locks) { l.hangs[0] = true })
		after(3 * time.Second)
		t.Cleanup(func() { require.Zero(t, log.count("lost a database")) })
	})
}

func TestALockThatIsNotReleasedCleanlyIsLogged(t *testing.T) {
	l := newLocks()
	s, log := single(l)
	require.NoError(t, s.Acquire(t.Context()))
	l.lost[1] = errors.New("broken pipe")
	s.Release()
	require.Equal(t, 1, log.count("lock not released cleanly"))
	require.Zero(t, l.heldLocks())
}
