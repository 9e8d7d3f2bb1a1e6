package soak_test

import (
	"context"
	"database/sql"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/task"
)

// readRows reads all task tables.
func readRows(f *fleet) map[uint64]audit.Row {
	list, err := app.Databases(f.cfg, true)
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, app.CloseDatabases(list)) }()
	dbs := make([]*sql.DB, len(list))
	for i, d := range list {
		dbs[i] = d.DB
	}
	rows, err := audit.SelectRows(context.WithoutCancel(f.t.Context()), dbs, f.cfg.Store.TablesPerDatabase)
	require.NoError(f.t, err)
	return rows
}

// awaitDone waits until nothing is pending. What still is then, the verdict calls lost.
func (f *fleet) awaitDone(patience time.Duration) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		pending := 0
		for _, r := range readRows(f) {
			if r.Status == task.Pending {
				pending++
			}
		}
		if pending == 0 || time.Now().After(deadline) {
			return
		}
		f.rest(250 * time.Millisecond) // the store tells nobody
	}
}
