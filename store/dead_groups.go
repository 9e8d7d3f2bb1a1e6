package store

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// DeadGroup is the dead tasks of a biz_type that died of the same error.
type DeadGroup struct {
	BizType        uint64
	Error          string // last_error with # instead of ids and numbers, at most 160 characters of it
	Count          int
	Oldest, Newest time.Time // death
	JobID          uint64    // one of them
}

// Bounds of DeadGroups: the groups that it returns, the rows that it reads of each table: minGroupRows, or in a small
// layout as many as make groupRows a database; and from how many dead tasks on some tables stand for all.
const (
	maxGroups    = 1000
	minGroupRows = 1000
	groupRows    = 200_000
	groupSample  = 12_000 // rows of the sample, about
)

// DeadGroups sums up the dead tasks of a biz_type, or of all (nil), by their error: the largest groups first. partial
// reports that there are more tasks or more groups than these. If there are very many dead tasks in many tables, the
// counts are estimated from some of the tables, which is partial, too.
func (s *queries) DeadGroups(ctx context.Context, bizType *uint64) (list []DeadGroup, partial bool, err error) {
	type key struct {
		bizType uint64
		err     string
	}
	var mu sync.Mutex
	groups := make(map[key]*DeadGroup)
	perTable := max(minGroupRows, groupRows/s.layout.TablesPerDatabase)
	f := DeadFilter{BizType: bizType}
	where, args := f.where(s.backend)
	args = append(args, int64(perTable))
	shards, err := s.groupShards(ctx)
	if err != nil {
		return nil, false, err
	}
	scale := float64(s.layout.Shards()) / float64(len(shards))
	partial = scale > 1
	read := make(map[int]int) // rows by shard
	err = s.scanAll(ctx, "group dead tasks", shards, func(u *union, shard int) {
		u.add("SELECT biz_type,last_error,COUNT(*),MIN(gmt_modified),MAX(gmt_modified),MIN(job_id) FROM (SELECT biz_type,last_error,gmt_modified,job_id FROM "+
			s.indexed(shard, indexDue)+where+" ORDER BY action_time LIMIT ?) AS x GROUP BY biz_type,last_error", args...)
	}, func(rows *sql.Rows) error {
		var bizType, jobID unsigned
		var oldest, newest utc
		var g DeadGroup
		if err := rows.Scan(&bizType, &g.Error, &g.Count, &oldest, &newest, &jobID); err != nil {
			return err
		}
		g.BizType, g.JobID, g.Oldest, g.Newest = uint64(bizType), uint64(jobID), time.Time(oldest), time.Time(newest)
		g.Error = WithoutIDs(g.Error)
		shard, _ := s.layout.ShardOf(g.JobID)
		mu.Lock()
		defer mu.Unlock()
		read[shard] += g.Count
		partial = partial || read[shard] == perTable
		if sum, ok := groups[key{g.BizType, g.Error}]; ok {
			sum.add(&g)
		} else {
			groups[key{g.BizType, g.Error}] = &g
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	for _, g := range groups {
		g.Count = int(math.Round(float64(g.Count) * scale))
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b DeadGroup) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.BizType, b.BizType), cmp.Compare(a.Error, b.Error))
	})
	return list[:min(maxGroups, len(list))], partial || len(list) > maxGroups, nil
}

// groupShards returns the shards to read: all, or some, evenly spread, if those have enough dead tasks.
func (s *queries) groupShards(ctx context.Context) ([]int, error) {
	all := make([]int, s.layout.Shards())
	for i := range all {
		all[i] = i
	}
	sample := spread(all, upcomingSample)
	if len(sample) == len(all) {
		return all, nil
	}
	var mu sync.Mutex
	dead := 0
	err := s.scanAll(ctx, "count dead tasks", sample, func(u *union, shard int) {
		u.add("SELECT COUNT(*) FROM (SELECT 1 FROM "+s.indexed(shard, indexDue)+" WHERE status=4 LIMIT ?) AS x", int64(groupSample))
	}, func(rows *sql.Rows) error {
		var n int
		err := rows.Scan(&n)
		mu.Lock()
		defer mu.Unlock()
		dead += n
		return err
	})
	if err != nil {
		return nil, err
	}
	if density := float64(dead) / float64(len(sample)); density*float64(len(all)) > 2*groupSample {
		return spread(all, max(len(sample), int(groupSample/density))), nil
	}
	return all, nil
}

// add adds tasks of the same group. The example is the task with the smallest id, in any order of reading.
func (g *DeadGroup) add(more *DeadGroup) {
	g.Count += more.Count
	g.JobID = min(g.JobID, more.JobID)
	if more.Oldest.Before(g.Oldest) {
		g.Oldest = more.Oldest
	}
	if more.Newest.After(g.Newest) {
		g.Newest = more.Newest
	}
}

// ids is what differs from task to task in an error: the near end of a connection, a quoted word with a digit, a UUID, a long
// hexadecimal number, a number. What says which fault it is stays, and is the second group: an address with a port or a host that was
// asked, and an HTTP status.
var ids = regexp.MustCompile(`[0-9.]+:[0-9]+(->)|(\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}:[0-9]{1,5}\b|\b(?:POST|lookup) [\w.-]+(?::[0-9]{1,5})?|\b[1-5][0-9]{2} [A-Z][a-z]|\bstatus:? [1-5][0-9]{2}\b)` +
	"|[\"'`][^\\s\"'`]*[0-9][^\\s\"'`]*[\"'`]" +
	`|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b(?:0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8,})\b|[0-9]+(?:\.[0-9]+)*`)

// WithoutIDs is an error with # instead of ids and numbers. It is cut to 160 characters: last_error itself is cut, and
// a longer id would move the end.
func WithoutIDs(text string) string {
	var out strings.Builder
	end := 0
	for _, at := range ids.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[end:at[0]])
		end = at[1]
		switch arrow, kept := at[2], at[4]; {
		case arrow >= 0:
			out.WriteString("#->")
		case kept >= 0:
			out.WriteString(text[kept:end])
		default:
			out.WriteString("#")
		}
	}
	return cut(out.String()+text[end:], 160)
}
