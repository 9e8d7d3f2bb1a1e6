package cluster_test

import (
	"database/sql"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/store"
)

// depot is a store on MariaDB that nodes of a test share, each by a handle of its own.
// hands gives plain SQL on a database.
func depot(t *testing.T) (open func() *store.Store, hands func(database int) *sql.DB) {
	t.Helper()
	cfg := store.Config{Driver: store.MySQL, Layout: wide, DSN: testrig.MySQL(t).DSN(), MaxOpenConns: 2}
	m := migrations.Config{Dialect: migrations.MySQL, Layout: wide}
	for i := range wide.Databases {
		dsn, err := store.MySQLDSN(cfg, i)
		require.NoError(t, err)
		require.NoError(t, migrations.CreateDatabase(t.Context(), dsn))
	}
	for i := range wide.Databases {
		dsn, err := store.MySQLDSN(cfg, i)
		require.NoError(t, err)
		db, err := mysqlsession.Open(dsn, migrations.SessionLimits)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		m.Databases = append(m.Databases, migrations.Database{Index: i, DB: db})
	}
	require.NoError(t, migrations.Up(t.Context(), m))
	open = func() *store.Store {
		s, err := store.Open(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	return open, func(database int) *sql.DB { return m.Databases[database].DB }
}

func loneNode(s *store.Store) *cluster.Single {
	return cluster.NewSingle(cluster.SingleConfig{
		Node: "lone", Layout: wide, Locker: s, Logger: slog.New(slog.DiscardHandler), Host: newLocks(),
	})
}

// A store has one cluster, or one single node. Before, a single node beside a cluster, or two clusters with
// different prefixes, silently ran every task twice.
func TestAStoreIsOneClusters(t *testing.T) {
	t.Parallel()
	open, _ := depot(t)
	here, there := newTestCluster(t), newTestCluster(t) // two prefixes
	with := func(c *cluster.ConsulConfig) { c.Locker = open() }
	a := here.join("a", with)
	b := here.join("b", with)
	settled(t, a, b)

	stranger := there.newNode("c", with)
	err := stranger.Acquire(t.Context())
	var occupied *store.OccupiedError
	require.ErrorAs(t, err, &occupied)
	require.ErrorContains(t, err, "the cluster")
	lone := loneNode(open())
	require.ErrorAs(t, lone.Acquire(t.Context()), &occupied)
	require.Empty(t, lone.Ownership().Owned())
	_, unclean := a.Ownership().TakenUncleanly(a.Ownership().Owned()[0])
	require.False(t, unclean, "the first start of a store")

	a.leave()
	settled(t, b)
	require.ErrorAs(t, lone.Acquire(t.Context()), &occupied, "one node of it still works")
	b.leave()
	require.NoError(t, lone.Acquire(t.Context()))
	require.Len(t, lone.Ownership().Owned(), wide.Partitions)
	lone.Release()

	back := here.join("a", with)
	settled(t, back)
}

// The claim is checked while the cluster works: when another holder has a database all the same, its partitions
// stop, and the log has it.
func TestADatabaseThatIsAnothersStops(t *testing.T) {
	t.Parallel()
	open, hands := depot(t)
	w := newTestCluster(t)
	a := w.join("a", func(c *cluster.ConsulConfig) { c.Locker = open() })
	settled(t, a)
	_, err := hands(3).ExecContext(t.Context(), "UPDATE toc_meta SET value = 'single ff 1 held thief' WHERE name = 'holder'")
	require.NoError(t, err)
	first, end := wide.DatabasePartitions(3)
	eventually(t, "the database's partitions stop", func() bool {
		for p := first; p < end; p++ {
			if a.Ownership().Owns(p) {
				return false
			}
		}
		return true
	})
	require.Equal(t, wide.Partitions-(end-first), a.owns())
	logged(t, a, "the cluster's claim on a database is lost")
	// It falls silent: after its lease it is replaced, and uncleanly.
	settled(t, a)
	_, unclean := a.Ownership().TakenUncleanly(first)
	require.True(t, unclean)
}

// Names that are made up for each process do not stay in Consul, whether their nodes
// left or died.
func TestNamesOfNodesThatAreGoneAreDeleted(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		names := func() (list []string) {
			pairs, _, err := w.direct().KV().List(w.prefix+"/nodes/", nil)
			require.NoError(t, err)
			for _, p := range pairs {
				list = append(list, p.Key[len(w.prefix+"/nodes/"):])
			}
			return list
		}
		a, b := w.join("a", nil), w.join("b", nil)
		settled(t, a, b)
		require.Equal(t, []string{"a", "b"}, names())
		a.leave()
		require.Equal(t, []string{"b"}, names())
		settled(t, b)
		b.proxy.Cut() // dies
		b.halt()
		eventually(t, "the dead one's name is free", func() bool {
			pair, _, err := w.direct().KV().Get(w.prefix+"/nodes/b", nil)
			require.NoError(t, err)
			return pair.Session == ""
		})
		c := w.join("c", nil)
		require.Equal(t, []string{"c"}, names())
		settled(t, c)
		p := c.Ownership().Owned()
		taken := 0
		for _, p := range p {
			if _, unclean := c.Ownership().TakenUncleanly(p); unclean {
				taken++
			}
		}
		require.Equal(t, wide.Partitions, taken, "b handed nothing over")
	})
}

// A task that ends its process has ended one before the next owner has started it. Before, that owner handed
// the partition over as if in order, so a task could end a node again and again, each time it had come back and
// got its partitions.
func TestWhatIsUnsettledIsPassedOn(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a, b := w.join("a", nil), w.join("b", nil)
		settled(t, a, b)
		a.proxy.Cut() // dies
		a.halt()
		eventually(t, "b has it all", func() bool { return b.owns() == wide.Partitions })
		known := b.Ownership()
		done := -1 // one of them is settled
		for p := range wide.Partitions {
			if _, unclean := known.TakenUncleanly(p); unclean && done < 0 {
				known.Settled(p, known.Term(p))
				done = p
			}
		}
		var unsettled []int
		for p := range wide.Partitions {
			if _, unclean := known.TakenUncleanly(p); unclean {
				unsettled = append(unsettled, p)
			}
		}
		require.Len(t, unsettled, wide.Partitions/2-1)
		c := w.join("c", nil)
		settled(t, b, c)
		b.leave()
		settled(t, c)
		var passed []int
		for p := range wide.Partitions {
			if _, unclean := c.Ownership().TakenUncleanly(p); unclean {
				passed = append(passed, p)
			}
		}
		require.Equal(t, unsettled, passed)
	})
}

// The id by which a cluster holds its databases outlives the deletion of all its keys.
func TestTheIDOfAClusterIsPutBack(t *testing.T) {
	t.Parallel()
	open, _ := depot(t)
	w := newTestCluster(t)
	with := func(c *cluster.ConsulConfig) { c.Locker = open() }
	a := w.join("a", with)
	settled(t, a)
	id := func() string {
		pair, _, err := w.direct().KV().Get(w.prefix+"/id", nil)
		require.NoError(t, err)
		if pair == nil {
			return ""
		}
		return string(pair.Value)
	}
	before := id()
	require.NotEmpty(t, before)
	_, err := w.direct().KV().DeleteTree(w.prefix+"/", nil)
	require.NoError(t, err)
	eventually(t, "the id is back", func() bool { return id() == before })
	eventually(t, "the locks are back", func() bool { // until then others could have them, too
		locks, _, err := w.direct().KV().List(w.prefix+"/partitions/", nil)
		require.NoError(t, err)
		return len(locks) == wide.Partitions && a.owns() == wide.Partitions
	})
	b := w.join("b", with)
	settled(t, a, b)
}
