package soak_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// readRows reads all task tables, by plain SQL.
func readRows(f *fleet) map[uint64]row {
	list, err := app.Databases(f.cfg, true)
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, app.CloseDatabases(list)) }()
	found := make([]map[uint64]row, len(list))
	g, ctx := errgroup.WithContext(context.WithoutCancel(f.t.Context()))
	for i, d := range list {
		found[i] = map[uint64]row{}
		g.Go(func() error {
			rows, err := d.DB.QueryContext(ctx, eachTable(f, "SELECT job_id, status, action_time, attempts, attribute FROM %s"))
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id uint64
				var action any
				var attribute string
				r := row{there: true}
				if err := rows.Scan(&id, &r.status, &action, &r.attempts, &attribute); err != nil {
					return err
				}
				at, err := timeOf(action)
				if err != nil {
					return err
				}
				r.action, r.attribute = at.UnixMilli(), textHash(attribute)
				found[i][id] = r
			}
			return rows.Err()
		})
	}
	require.NoError(f.t, g.Wait())
	all := map[uint64]row{}
	for _, one := range found {
		maps.Copy(all, one)
	}
	return all
}

// timeOf reads a time as the drivers give it.
func timeOf(column any) (time.Time, error) {
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

// eachTable makes one query over the tables of a database.
func eachTable(f *fleet, query string) string {
	parts := make([]string, f.cfg.Store.TablesPerDatabase)
	for i := range parts {
		parts[i] = fmt.Sprintf(query, sharding.TableName(i))
	}
	return strings.Join(parts, " UNION ALL ")
}

// awaitDone waits until nothing is pending. What still is then, the verdict calls lost.
func (f *fleet) awaitDone(patience time.Duration) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		pending := 0
		for _, r := range readRows(f) {
			if r.status == task.Pending {
				pending++
			}
		}
		if pending == 0 || time.Now().After(deadline) {
			return
		}
		f.rest(250 * time.Millisecond) // the store tells nobody
	}
}
