package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/groupcommit"
	"github.com/timeoutcenter/toc/task"
)

// writer is the batch writer of one kind of work: inserts or moves. Concurrent works of a database share a transaction,
// and so do a few works of several databases of one server. A work that fails, or whose row is locked, does so alone.
type writer[T work] struct {
	*databases
	kind[T]
	op     string // for errors
	lanes  []*lane[T]
	shared []*groupcommit.Group[T] // by database; the databases of one server have the same
}

// lane is the way of works to one database.
type lane[T work] struct {
	own   *groupcommit.Group[T]
	aside *groupcommit.Group[T] // works that met a lock wait here, apart from the others
	// By shard, the time until which its works go aside at once, because one of them met a lock; see request.ofTable.
	locked sync.Map
}

// work is an insert or a move on its way through a writer.
type work interface {
	head() *request
	id() uint64
	// isSeenIn reports whether its row shows that it was made.
	isSeenIn(row *task.Task) bool
	// fail ends it: it was not made, as far as is known.
	fail(err error)
}

// request is the part that all works have.
type request struct {
	ctx   context.Context // of the caller
	shard int
	// ofTable: a lock that it meets is taken for one of its table, so the next works of that table wait apart, too.
	ofTable bool
	// ofApply: it waits for no lock, and its batch is split only to find out which rows are locked.
	ofApply bool
	begun   bool      // it was written, or tried to be: its caller may leave
	since   time.Time // when it met a lock
}

func (r *request) head() *request { return r }

// kind is the difference between inserts and moves.
type kind[T work] interface {
	// begin prepares a batch of a database, before its first try.
	begin(db *database, batch []T)
	// render returns the transaction that makes a batch.
	render(db *database, batch []T, name tableNamer) transaction[T]
	// answer ends the works of a committed transaction, by the number of rows that each statement changed. It returns the
	// works that need another try.
	answer(ctx context.Context, t transaction[T], affected []int64) (again []T)
	// prepareAgain prepares another try. refused: the last one was undone because of a unique key, or nil. An error ends
	// the tries.
	prepareAgain(ctx context.Context, db *database, open []T, refused error) error
}

// tableNamer names a table in a statement: tableName, or backend.qualified.
type tableNamer func(database, table int) string

// maxBatch is the maximum number of rows in a transaction.
const maxBatch = 1000

// burst is the number of waiting works of a server from which on a third flush is made. A call with more tasks
// than that writes per database, where rows share tables.
const burst = 64

func newWriter[T work](s *databases, op string, k kind[T]) *writer[T] {
	w := &writer[T]{databases: s, kind: k, op: op}
	count := make(map[int]int) // databases by server
	for d, db := range s.dbs {
		count[s.backend.server(d)]++
		w.lanes = append(w.lanes, &lane[T]{
			own:   groupcommit.New(maxBatch, 1, func(batch []T) { w.flush(db, w.keepUnlocked(w.keepAwaited(batch))) }),
			aside: groupcommit.New(maxBatch, 1, func(batch []T) { w.flush(db, w.keepAwaited(batch)) }),
		})
	}
	for d := range s.dbs {
		group := w.lanes[d].own // alone on its server
		if server := s.backend.server(d); server < d {
			group = w.shared[server]
		} else if n := count[d]; n > 1 {
			group = groupcommit.New(maxBatch, n, w.flushShared).WithConcurrency(2, burst)
		}
		w.shared = append(w.shared, group)
	}
	return w
}

// wait returns when all works are written.
func (w *writer[T]) wait() {
	for d, l := range w.lanes {
		w.shared[d].Wait()
		l.own.Wait()
		l.aside.Wait()
	}
}

func (w *writer[T]) databaseOf(item T) int { return w.layout.Database(item.head().shard) }

// keepAwaited keeps the works whose callers still wait, and ends the others.
func (w *writer[T]) keepAwaited(batch []T) []T {
	return slices.DeleteFunc(batch, func(item T) bool {
		r := item.head()
		if r.begun {
			return false
		}
		if err := r.ctx.Err(); err != nil {
			item.fail(notBegun(w.op, err))
			return true
		}
		r.begun = true
		return false
	})
}

// keepUnlocked keeps the works whose table has met no lock recently, and sets the others aside.
func (w *writer[T]) keepUnlocked(batch []T) []T {
	return slices.DeleteFunc(batch, func(item T) bool {
		l, shard := w.lanes[w.databaseOf(item)], item.head().shard
		until, locked := l.locked.Load(shard)
		if locked && time.Now().After(until.(time.Time)) {
			l.locked.CompareAndDelete(shard, until)
			locked = false
		}
		if locked {
			l.aside.Add(item)
		}
		return locked
	})
}

// flushShared writes one batch of a server: works of several databases share a commit. If the server refuses it, each
// database writes its own part, so that the others are not affected. A database that did not answer the last time, or
// that cannot be written, always does so.
func (w *writer[T]) flushShared(batch []T) {
	parts := make([][]T, len(w.dbs))
	for _, item := range batch {
		d := w.databaseOf(item)
		parts[d] = append(parts[d], item)
	}
	var together [][]T
	for d, part := range parts {
		if w.dbs[d].condition.isAnswering() && len(part) > 0 {
			together = append(together, part)
		} else {
			w.lanes[d].own.Add(part...)
		}
	}
	if len(together) > 1 {
		for i, part := range together {
			together[i] = w.keepUnlocked(w.keepAwaited(part))
		}
		together = slices.DeleteFunc(together, func(part []T) bool { return len(part) == 0 })
		if len(together) > 1 && w.writeTogether(together) {
			return
		}
	}
	for _, part := range together {
		w.lanes[w.databaseOf(part[0])].own.Add(part...)
	}
}

// writeTogether makes the works of several databases in one transaction and ends them. If nothing was done it does
// neither.
func (w *writer[T]) writeTogether(parts [][]T) (done bool) {
	ctx, cancel := w.bound(context.Background())
	defer cancel()
	made := make([]transaction[T], len(parts))
	var statements []statement
	for i, part := range parts {
		db := w.dbs[w.databaseOf(part[0])]
		w.begin(db, part)
		made[i] = w.render(db, part, w.backend.qualified)
		statements = append(statements, made[i].statements...)
	}
	began := time.Now()
	affected, err := w.backend.transact(ctx, made[0].db.index, statements) // each database alone waits a moment for a lock
	if _, unanswered := errors.AsType[*unansweredError](err); err != nil && !unanswered {
		return false
	}
	took := time.Since(began)
	var answers sync.WaitGroup
	for i, t := range made {
		c, counts := &t.db.condition, affected
		c.unanswered.Store(err != nil)
		if err == nil {
			counts, affected = affected[:len(t.statements)], affected[len(t.statements):]
			c.recordLatency(&c.writes, took)
		}
		answers.Go(func() {
			open, err := w.settle(ctx, t, parts[i], counts, err)
			if err != nil {
				failAll(open, w.wrap(t.db.index, w.op, err))
			} else {
				w.lanes[t.db.index].own.Add(open...)
			}
		})
	}
	answers.Wait()
	return true
}

// flush writes one batch of a database. It ends each of its works, or has them wait for a lock.
func (w *writer[T]) flush(db *database, batch []T) {
	if len(batch) == 0 {
		return
	}
	// The batch belongs to many callers: none of their contexts may end it.
	ctx, cancel := w.bound(context.Background())
	defer cancel()
	w.begin(db, batch)
	err := w.write(ctx, db, batch, w.transact, nil)
	db.condition.unanswered.Store(err != nil && w.backend.refusal(err) == 0)
}

// A batch that meets a lock, or is too large for one text, is split into so many parts, and each part again,
// down to one task. The parts are written at the same time.
const (
	splitParts = 8
	splitting  = 8 // parts of one batch under way
)

// write makes the works of a database. If the database refuses them because of one row, a lock on one, or the size, it
// splits the batch until that row is alone; ofParts makes the transactions of the parts. It returns the error of the batch
// as a whole.
func (w *writer[T]) write(ctx context.Context, db *database, batch []T, transact, ofParts transactor) error {
	open, err := w.try(ctx, db, batch, transact)
	if err == nil {
		return nil
	}
	why := w.backend.refusal(err)
	alone := !slices.ContainsFunc(open, func(item T) bool { return item.id() != open[0].id() })
	ofSome := why == refusedLocked || why == refusedTable || why == refusedSize || why == refusedData && !open[0].head().ofApply
	switch {
	case !alone && ofSome && !w.isOutOfTime(ctx):
		if ofParts == nil {
			ofParts = w.transactParts(err)
		}
		// All writers take their locks in the same order; neighbours share statements.
		slices.SortStableFunc(open, func(a, b T) int { return cmp.Or(a.head().shard-b.head().shard, cmp.Compare(a.id(), b.id())) })
		var parts sync.WaitGroup
		for _, part := range split(open) {
			parts.Go(func() { _ = w.write(ctx, db, part, ofParts, ofParts) })
		}
		parts.Wait()
	case why == refusedLocked:
		for _, item := range open {
			w.setAside(db, item)
		}
	case why == refusedTable:
		w.failLocked(db, open, err)
	case why == refusedData && alone && !open[0].head().ofApply:
		failAll(open, &task.FieldError{Field: "task", Message: err.Error()})
	default:
		failAll(open, w.wrap(db.index, w.op, err))
	}
	return err
}

// split cuts a list into parts; works of the same task stay together.
func split[T work](list []T) (parts [][]T) {
	size := (len(list) + splitParts - 1) / splitParts
	for len(list) > 0 {
		n := min(size, len(list))
		for n < len(list) && list[n].id() == list[n-1].id() {
			n++
		}
		parts = append(parts, list[:n])
		list = list[n:]
	}
	return parts
}

// transactParts makes the transactions of the parts of a batch. A part that would be cut off does not begin: it meets the
// refusal of the batch, as far as is known.
func (s *databases) transactParts(refused error) transactor {
	running := make(chan struct{}, splitting)
	return func(ctx context.Context, database int, statements []statement) ([]int64, error) {
		running <- struct{}{}
		defer func() { <-running }()
		if s.isOutOfTime(ctx) {
			return nil, refused
		}
		return s.transactNow(ctx, database, statements)
	}
}

// isOutOfTime reports that no part should begin any more, because it would be cut off.
func (s *databases) isOutOfTime(ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return ok && time.Until(until) < s.cfg.Timeout/4
}

// setAside lets a work wait for a lock.
func (w *writer[T]) setAside(db *database, item T) {
	r, l := item.head(), w.lanes[db.index]
	if r.ofTable {
		l.locked.Store(r.shard, time.Now().Add(lockWait))
	}
	r.begun = false
	if r.ofApply || !r.retryLater(func() { l.aside.Add(item) }) {
		w.failLocked(db, []T{item}, nil)
	}
}

// failLocked ends works whose rows are locked, or whose table has a fault.
func (w *writer[T]) failLocked(db *database, list []T, table error) {
	for _, item := range list {
		item.fail(w.wrap(db.index, w.op, w.nameBlocked(db.index, &LockedError{map[uint64]error{item.id(): table}})))
	}
}

func failAll[T work](list []T, err error) {
	for _, item := range list {
		item.fail(err)
	}
}

// transaction is the statements of a batch for one database, and the works of each.
type transaction[T work] struct {
	db         *database
	statements []statement
	groups     [][]T
}

// maxTries is how often a batch is tried with new ids.
const maxTries = 8

// try makes a batch in one transaction and ends its works. With an error it returns the works that are still open and,
// as far as is known, not made.
func (w *writer[T]) try(ctx context.Context, db *database, batch []T, transact transactor) (open []T, err error) {
	open = batch
	for range maxTries {
		t := w.render(db, open, tableName)
		affected, err := w.retryConflicts(ctx, db.index, t.statements, transact)
		if open, err = w.settle(ctx, t, open, affected, err); err != nil && w.backend.refusal(err) != refusedDuplicate {
			return open, err
		}
		if len(open) == 0 {
			return nil, nil
		}
		if err := w.prepareAgain(ctx, db, open, err); err != nil {
			return open, err
		}
	}
	return open, errors.New("no way past ids that exist")
}

// settle ends the works of a transaction, by the number of rows that each statement changed or by its error. If the answer
// was lost, it reads whether the transaction was made. It returns the works that are still open.
func (w *writer[T]) settle(ctx context.Context, t transaction[T], batch []T, affected []int64, err error) (open []T, _ error) {
	if isOver(err) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), endTimeout(w.cfg.Timeout))
		defer cancel()
		if w.wasMade(ctx, t.db, batch) {
			affected, err = certainCounts(t.statements), nil
		}
	}
	if err != nil {
		return batch, err
	}
	return w.answer(ctx, t, affected), nil
}

// wasMade reports whether a transaction whose answer was lost was committed: then a row of it shows that. An insert that
// only found first tasks looks like one that was not made.
func (w *writer[T]) wasMade(ctx context.Context, db *database, batch []T) bool {
	ids, items := make([]uint64, len(batch)), make(map[uint64][]T, len(batch))
	for i, item := range batch {
		ids[i], items[item.id()] = item.id(), append(items[item.id()], item)
	}
	found, err := w.load(ctx, db.index, ids)
	return err == nil && slices.ContainsFunc(found, func(row task.Task) bool {
		return slices.ContainsFunc(items[row.JobID], func(item T) bool { return item.isSeenIn(&row) })
	})
}
