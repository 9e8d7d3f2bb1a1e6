package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Load reads tasks by job_id, with any status and in no order. It skips ids without a row. It queries all
// databases at the same time, each of them once.
//
// If a database fails, or a table is locked, Load returns the rows of the others together with the
// DatabaseError.
func (s *queries) Load(ctx context.Context, ids []uint64) ([]task.Task, error) {
	perDB := make(map[int][]uint64)
	for _, id := range ids {
		if shard, ok := s.layout.ShardOf(id); ok {
			d := s.layout.Database(shard)
			perDB[d] = append(perDB[d], id)
		}
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if len(perDB) == 1 {
		for d, list := range perDB {
			found, err := s.load(ctx, d, list)
			return found, s.wrap(d, "load", err)
		}
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		found = make([]task.Task, 0, len(ids))
		errs  []error
	)
	for d, list := range perDB {
		wg.Go(func() {
			part, err := s.load(ctx, d, list)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, part...)
			errs = append(errs, s.wrap(d, "load", err))
		})
	}
	wg.Wait()
	return found, errors.Join(errs...)
}

// load reads tasks of one database.
func (s *databases) load(ctx context.Context, database int, ids []uint64) (found []task.Task, err error) {
	found = make([]task.Task, 0, len(ids))
	for part := range slices.Chunk(ids, maxIDs) {
		var failed error
		found, failed = s.loadPart(ctx, database, part, found)
		if err = cmp.Or(err, failed); err != nil && !s.isOfTable(err) {
			break
		}
	}
	return found, err
}

// loadPart reads tasks by at most maxIDs ids.
func (s *databases) loadPart(ctx context.Context, database int, ids []uint64, found []task.Task) ([]task.Task, error) {
	byTable := make(map[int][]uint64)
	var tables []int
	for _, id := range ids {
		shard, _ := s.layout.ShardOf(id)
		table := s.layout.Table(shard)
		if byTable[table] == nil {
			tables = append(tables, table)
		}
		byTable[table] = append(byTable[table], id)
	}
	err := readAround(s, tables, maxMembers, func(tables []int) error {
		text, args := s.loadStatement(tables, byTable)
		rows, err := s.query(ctx, database, text, args, found)
		if err == nil || !s.isOfTable(err) {
			found = rows
		}
		return err
	})
	return found, err
}

// loadStatement is a UNION ALL over some tables.
func (s *databases) loadStatement(tables []int, ids map[int][]uint64) (text string, args []any) {
	count := 0
	for _, table := range tables {
		count += len(ids[table])
	}
	u := union{args: make([]any, 0, count)}
	for _, table := range tables {
		list := ids[table]
		u.add("SELECT " + columns + " FROM " + sharding.TableName(table) + s.backend.hint(indexPrimary, table) +
			" WHERE job_id IN (" + placeholders(len(list)) + ")")
		for _, id := range list {
			u.args = append(u.args, s.backend.idArg(id))
		}
	}
	return u.text.String(), u.args
}

// Get reads one task; task.ErrNotFound if there is none.
func (s *queries) Get(ctx context.Context, jobID uint64) (task.Task, error) {
	shard, ok := s.layout.ShardOf(jobID)
	if !ok {
		return task.Task{}, task.ErrNotFound
	}
	var r row
	err := s.look(ctx, "get", shard, indexPrimary, func(q *gorm.DB) *gorm.DB {
		return q.Where("job_id = ?", s.backend.idArg(jobID)).Take(&r)
	})
	return r.task(), err
}

// look runs a query of the rows of a shard, and repeats it while it meets a lock. No row of a Take is task.ErrNotFound.
func (s *databases) look(ctx context.Context, op string, shard int, index string, query func(*gorm.DB) *gorm.DB) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	d := s.layout.Database(shard)
	err := s.retryLocked(ctx, func() error {
		return query(s.table(ctx, d, s.indexed(shard, index)).Select(columns)).Error
	})
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return task.ErrNotFound
	}
	return s.wrap(d, op, err)
}

// Filter narrows a List.
type Filter struct {
	BizKey  string // the biz_id if it is a text; empty: it is the number
	BizType *uint64
	Status  *task.Status
	After   uint64    // job_id of the last task of the previous page; 0 for the first page
	AsOf    time.Time // only tasks that were submitted by then (gmt_create); zero: all
	Leased  bool      // only tasks that a consumer has, or had when its lease ended, and the one with LeasedOr
	// LeasedOr is a dedup_key.
	LeasedOr string
	Limit    int
}

// List reads tasks of one biz_id in the order of their job_ids, that is, of
// their submission.
func (s *queries) List(ctx context.Context, bizID uint64, f Filter) ([]task.Task, error) {
	var rows []row
	// Without the hint a server without statistics reads the whole table in the order of job_id.
	err := s.look(ctx, "list", s.layout.Shard(bizID), indexBiz, func(q *gorm.DB) *gorm.DB {
		q = q.Where("biz_id = ? AND job_id > ?", s.backend.idArg(bizID), s.backend.idArg(f.After))
		if f.BizKey != "" {
			q = q.Where("biz_key = ?", f.BizKey)
		} else {
			q = q.Where("biz_key IS NULL")
		}
		if f.BizType != nil {
			q = q.Where("biz_type = ?", s.backend.idArg(*f.BizType))
		}
		if f.Status != nil {
			q = q.Where("status = ?", int64(*f.Status))
		}
		if !f.AsOf.IsZero() {
			q = q.Where("gmt_create <= ?", s.backend.timeArg(f.AsOf))
		}
		if f.Leased {
			q = q.Where("(lease IS NOT NULL OR dedup_key = ?)", f.LeasedOr)
		}
		return q.Order("job_id").Limit(f.Limit).Find(&rows)
	})
	list := make([]task.Task, len(rows))
	for i := range rows {
		list[i] = rows[i].task()
	}
	return list, err
}

// First reads the task with a dedup_key; task.ErrNotFound if there is none. bizKey is the biz_id if it is a
// text.
func (s *queries) First(ctx context.Context, bizID uint64, bizKey string, bizType uint64, dedupKey string) (task.Task, error) {
	var r row
	err := s.look(ctx, "look up dedup_key", s.layout.Shard(bizID), indexBiz, func(q *gorm.DB) *gorm.DB {
		return q.Where("biz_id = ? AND biz_type = ? AND dedup_key = ?", s.backend.idArg(bizID), s.backend.idArg(bizType), dedupKey).Take(&r)
	})
	if err == nil && r.BizKey.String != bizKey {
		return task.Task{}, task.ErrNotFound
	}
	return r.task(), err
}
