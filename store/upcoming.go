package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// Upcoming is the time of a pending task.
type Upcoming struct {
	BizType uint64
	At      time.Time
}

// The limits of a look at the upcoming tasks. Beyond them, some tables stand for all: a hash spreads tasks over them.
const (
	UpcomingRows   = 16_000 // the default number of rows, about
	upcomingSample = 128    // tables of the first look
	upcomingTable  = 128    // at least so many rows are read of a table in the second
	upcomingLeast  = 16     // tables of the second look
	sparse         = 0.25   // rows a table: with less, the tables with rows are looked for first
)

// Upcoming reads the times of the pending tasks of some shards that are due at or after from and before to. If there are
// many more than rows it reads some tables only, and each row stands for scale rows; else scale is 1. exact reports that
// nothing was left out.
func (s *queries) Upcoming(ctx context.Context, shards []int, from, to time.Time,
	rows int) (list []Upcoming, scale float64, exact bool, err error) {
	sample := spread(shards, upcomingSample)
	if len(sample) == 0 {
		return nil, 1, true, nil
	}
	list, whole, err := s.upcoming(ctx, sample, from, to, max(1, 2*rows/len(sample)), rows)
	if err != nil || whole && len(sample) == len(shards) {
		return list, 1, whole, err
	}
	density := float64(len(list)) / float64(len(sample))
	if density < sparse {
		list, whole, err = s.sparseUpcoming(ctx, shards, from, to, rows)
		return list, 1, whole, err
	}
	n := len(shards)
	if density*float64(n) > float64(rows) {
		n = max(upcomingLeast, int(float64(rows)/density))
	}
	sample = spread(shards, n)
	list, whole, err = s.upcoming(ctx, sample, from, to, max(upcomingTable, int(4*density)), rows)
	return list, float64(len(shards)) / float64(len(sample)), whole && len(sample) == len(shards), err
}

// spread picks n shards, evenly.
func spread(shards []int, n int) []int {
	if n >= len(shards) {
		return shards
	}
	picked := make([]int, n)
	for i := range picked {
		picked[i] = shards[i*len(shards)/n]
	}
	return picked
}

// sparseUpcoming reads the tables that have rows. To look whether there is one costs half of reading it.
func (s *queries) sparseUpcoming(ctx context.Context, shards []int, from, to time.Time, most int) (list []Upcoming, whole bool, err error) {
	first, last := s.backend.timeArg(task.CeilMilli(from)), s.backend.timeArg(task.CeilMilli(to))
	var mu sync.Mutex
	var found []int
	err = s.scanAll(ctx, "look for upcoming tasks", shards, func(u *union, shard int) {
		u.add("SELECT "+strconv.Itoa(shard)+",MIN(action_time) FROM "+s.indexed(shard,
			indexDue)+" WHERE status=0 AND action_time>=? AND action_time<?", first, last)
	}, func(rows *sql.Rows) error {
		var shard int
		var earliest sql.Null[utc]
		err := rows.Scan(&shard, &earliest)
		mu.Lock()
		defer mu.Unlock()
		if earliest.Valid {
			found = append(found, shard)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return s.upcoming(ctx, found, from, to, 2*upcomingTable, most)
}

// upcoming reads at most perTable rows of each shard, and about most of a database. whole reports that there are no
// more.
func (s *queries) upcoming(ctx context.Context, shards []int, from, to time.Time, perTable,
	most int) (list []Upcoming, whole bool, err error) {
	byDatabase := s.byDatabase(shards)
	found := make([][]Upcoming, len(s.dbs))
	var cut atomic.Bool
	err = s.eachDatabase("look for upcoming tasks", func(d int) error {
		for part := range slices.Chunk(byDatabase[d], maxMembers) {
			if len(found[d]) > most {
				cut.Store(true)
				return nil
			}
			var isCut bool
			var err error
			if found[d], isCut, err = s.upcomingOf(ctx, d, part, from, to, perTable, found[d]); err != nil {
				return err
			}
			if isCut {
				cut.Store(true)
			}
		}
		return nil
	})
	return slices.Concat(found...), !cut.Load(), err
}

// upcomingOf reads some shards of a database by one statement.
func (s *queries) upcomingOf(ctx context.Context, database int, shards []int, from, to time.Time, perTable int,
	into []Upcoming) (_ []Upcoming, cut bool, err error) {
	var u union
	first, last := s.backend.timeArg(task.CeilMilli(from)), s.backend.timeArg(task.CeilMilli(to))
	for i, shard := range shards {
		u.add(s.backend.unionMember("SELECT "+strconv.Itoa(i)+",biz_type,action_time FROM "+s.indexed(shard, indexDue)+
			" WHERE status=0 AND action_time>=? AND action_time<? LIMIT ?"), first, last, int64(perTable+1))
	}
	bound, cancel := s.bound(ctx)
	defer cancel()
	ofTable := make([]int, len(shards))
	err = s.scan(bound, database, u.text.String(), u.args, func(rows *sql.Rows) error {
		var i int
		var bizType unsigned
		var at utc
		if err := rows.Scan(&i, &bizType, &at); err != nil {
			return err
		}
		if ofTable[i]++; ofTable[i] > perTable {
			cut = true
			return nil
		}
		into = append(into, Upcoming{uint64(bizType), time.Time(at)})
		return nil
	})
	return into, cut, err
}
