package audit

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// Row is a task as the store has it in the end.
type Row struct {
	Seen
	Status   task.Status
	There    bool
	Error    string    // last_error
	Modified time.Time // gmt_modified
}

// SelectRows reads all task tables, by plain SQL.
func SelectRows(ctx context.Context, dbs []*sql.DB, tables int) (map[uint64]Row, error) {
	found := make([]map[uint64]Row, len(dbs))
	g, ctx := errgroup.WithContext(ctx)
	for i, db := range dbs {
		found[i] = map[uint64]Row{}
		g.Go(func() error {
			rows, err := db.QueryContext(ctx, EachTable(tables, "SELECT job_id, status, action_time, attempts, attribute, last_error, gmt_modified FROM %s"))
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id uint64
				var action, modified any
				var attribute string
				r := Row{There: true}
				if err := rows.Scan(&id, &r.Status, &action, &r.Attempts, &attribute, &r.Error, &modified); err != nil {
					return err
				}
				at, err := TimeOf(action)
				if err != nil {
					return err
				}
				r.Action, r.Attribute = at.UnixMilli(), TextHash(attribute)
				if r.Modified, err = TimeOf(modified); err != nil {
					return err
				}
				found[i][id] = r
			}
			return rows.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := map[uint64]Row{}
	for _, one := range found {
		maps.Copy(all, one)
	}
	return all, nil
}

// TimeOf reads a time as the drivers give it.
func TimeOf(column any) (time.Time, error) {
	switch c := column.(type) {
	case time.Time:
		return c, nil
	case []byte:
		return time.Parse("2006-01-02 15:04:05.000", string(c))
	case string:
		return time.Parse("2006-01-02 15:04:05.000", c)
	}
	return time.Time{}, fmt.Errorf("a time is %T", column)
}

// EachTable makes one query over the tables of a database.
func EachTable(tables int, query string) string {
	parts := make([]string, tables)
	for i := range parts {
		parts[i] = fmt.Sprintf(query, sharding.TableName(i))
	}
	return strings.Join(parts, " UNION ALL ")
}
