package store

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/task"
)

// Statement is one statement that a store sent.
type Statement struct {
	Database int
	SQL      string
	Args     []any
}

// Recorder records a store's statements, and can make them fail.
type Recorder struct {
	// OnTransaction stands in for a transaction; do makes it. Set it while the
	// store is at rest. May be nil.
	OnTransaction func(do func() error) error
	// OnQuery comes before a SELECT, which is not made after an error. May be nil.
	OnQuery func() error

	mu           sync.Mutex
	queries      []Statement
	transactions [][]Statement
}

// Record begins to record. The store must be at rest.
func Record(s *Store) *Recorder {
	r := &Recorder{}
	s.backend = &recordingBackend{s.backend, r}
	for _, db := range s.dbs {
		pool := &recordingPool{db.read.ConnPool, r, db.index}
		db.read = db.read.Session(&gorm.Session{})
		db.read.Statement.ConnPool = pool
		db.read.ConnPool = pool
		db.unobserved = &recordingPool{db.unobserved, r, db.index}
	}
	return r
}

// Queries returns the SELECTs since the last Clear.
func (r *Recorder) Queries() []Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.queries)
}

// Transactions returns the transactions since the last Clear.
func (r *Recorder) Transactions() [][]Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.transactions)
}

// Clear empties the record.
func (r *Recorder) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queries, r.transactions = nil, nil
}

type recordingPool struct {
	gorm.ConnPool
	r        *Recorder
	database int
}

func (p *recordingPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	p.r.mu.Lock()
	p.r.queries = append(p.r.queries, Statement{p.database, query, args})
	p.r.mu.Unlock()
	if p.r.OnQuery != nil {
		if err := p.r.OnQuery(); err != nil {
			return nil, err
		}
	}
	return p.ConnPool.QueryContext(ctx, query, args...)
}

type recordingBackend struct {
	backend
	r *Recorder
}

func (b *recordingBackend) transact(ctx context.Context, database int, statements []statement) ([]int64, error) {
	list := make([]Statement, len(statements))
	for i, s := range statements {
		list[i] = Statement{database, s.sql, s.args}
	}
	b.r.mu.Lock()
	b.r.transactions = append(b.r.transactions, list)
	b.r.mu.Unlock()
	if b.r.OnTransaction == nil {
		return b.backend.transact(ctx, database, statements)
	}
	var affected []int64
	err := b.r.OnTransaction(func() (err error) {
		affected, err = b.backend.transact(ctx, database, statements)
		return err
	})
	if err != nil {
		return nil, err
	}
	return affected, nil
}

// Columns is the select list of the hand-written statements.
const Columns = columns

// ModelColumns returns the columns of GORM's model, as GORM understands it.
func ModelColumns(t testing.TB, s *Store) []string {
	statement := &gorm.Statement{DB: s.dbs[0].read}
	require.NoError(t, statement.Parse(&row{}))
	return statement.Schema.DBNames
}

// Hint returns the words by which a statement names an index.
func Hint(s *Store, index string, table int) string { return s.backend.hint(index, table) }

// Reader is the pool that a database's queries go to.
func Reader(s *Store, database int) gorm.ConnPool { return s.dbs[database].read.ConnPool }

// DueByGORM reads the first page of DuePages by GORM, which has no UNION: a SELECT for each table.
func DueByGORM(ctx context.Context, s *Store, partition int, until time.Time, perTable int) (page []task.Task, err error) {
	first, end := s.layout.PartitionShards(partition)
	for shard := first; shard < end && err == nil; shard++ {
		var rows []row
		err = s.table(ctx, s.layout.Database(shard), s.indexed(shard, indexDue)).Select(columns).
			Where("status=0 AND action_time<=?", s.backend.timeArg(until)).Order("action_time,job_id").Limit(perTable).Find(&rows).Error
		for i := range rows {
			page = append(page, rows[i].task())
		}
	}
	return page, err
}

// Unanswered is the error of a transaction whose answer is lost and which is over.
func Unanswered(err error) error { return &unansweredError{err, true} }

// NoteRead and NoteWrite record the result of a read and a write.
func NoteRead(ctx context.Context, s *Store, database int, err error) {
	s.recordRead(ctx, database, err)
}

func NoteWrite(ctx context.Context, s *Store, database int, err error) {
	s.recordWrite(ctx, database, err)
}

// Patience limits a call to the store's own time.
func Patience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return withTimeout(ctx, d)
}

// Spread picks shards, evenly.
func Spread(shards []int, n int) []int { return spread(shards, n) }
