package fakecenter

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/migrations"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Layout is that of a Stored.
var Layout = sharding.Layout{Databases: 2, TablesPerDatabase: 2, Partitions: 2}

// Stored is a Service on a real store, with no engine: tasks stay as they are.
type Stored struct {
	*intake.Service
	Store  *store.Store
	Queue  *queue.Queue
	Dir    string // of the store
	Config intake.Config
}

// OnStore makes a Stored with these business types; with may change its configuration.
func OnStore(t testing.TB, types []task.BizType, with ...func(*intake.Config)) *Stored {
	t.Helper()
	list, err := task.NewTypes(types...)
	require.NoError(t, err)
	s := &Stored{Dir: t.TempDir(), Queue: queue.New(queue.Config{Partitions: Layout.Partitions})}
	m := migrations.Config{Dialect: migrations.SQLite, Layout: Layout}
	for i := range Layout.Databases {
		db, err := sql.Open("sqlite", store.SQLiteDSN(s.Dir, i, false))
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		m.Databases = append(m.Databases, migrations.Database{Index: i, DB: db})
	}
	require.NoError(t, migrations.Up(t.Context(), m))
	ids, err := sharding.NewIDs(Layout, 1, time.Now)
	require.NoError(t, err)
	s.Store, err = store.Open(store.Config{Driver: store.SQLite, Layout: Layout, Dir: s.Dir, IDs: ids})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Store.Close()) })
	s.Config = intake.Config{Node: "n1", Store: s.Store, Queue: s.Queue, Layout: Layout, Catalog: task.NewCatalog(list), Observer: observer{},
		Now: time.Now}
	s.Service = s.With(with...)
	return s
}

// With makes another Service on the same store and queue.
func (s *Stored) With(with ...func(*intake.Config)) *intake.Service {
	cfg := s.Config
	for _, w := range with {
		w(&cfg)
	}
	return intake.New(cfg)
}

type observer struct{}

func (observer) Submitted(task.BizType, int) {}
