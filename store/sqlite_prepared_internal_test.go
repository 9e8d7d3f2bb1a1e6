package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
)

// A connection keeps the last statements, and they follow a change of their table.
func TestPreparedStatements(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.db")
	connector, err := sqlite.NewConnector("file:" + file)
	require.NoError(t, err)
	db := sql.OpenDB(preparing{connector})
	db.SetMaxOpenConns(1)
	exec := func(text string, args ...any) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), text, args...)
		require.NoError(t, err, text)
	}
	kept := func() (list map[string]keptStmt) {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.Raw(func(raw any) error { list = raw.(*preparedConn).kept; return nil }))
		return list
	}
	count := func() (n int) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM one WHERE id<>?", 0).Scan(&n))
		return n
	}

	const insert = "INSERT INTO one (id) VALUES (?)"
	exec("CREATE TABLE one (id INTEGER PRIMARY KEY)")
	for i := range 3 {
		exec(insert, i+1)
	}
	require.Equal(t, 3, count())
	first := kept()[insert]
	_, err = db.ExecContext(t.Context(), insert, 1)
	require.ErrorContains(t, err, "UNIQUE")
	exec(insert, 4)
	require.Equal(t, 4, count())
	require.NotZero(t, first)
	require.Equal(t, first, kept()[insert], "also after an error")

	exec("ALTER TABLE one ADD COLUMN more TEXT DEFAULT 'm'")
	exec(insert, 5)
	require.Equal(t, 5, count())
	var all []string
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM one")
	require.NoError(t, err)
	all, err = rows.Columns()
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	require.Equal(t, []string{"id", "more"}, all)
	exec("ALTER TABLE one ADD COLUMN last TEXT")
	rows, err = db.QueryContext(t.Context(), "SELECT * FROM one")
	require.NoError(t, err)
	require.True(t, rows.Next())
	all, err = rows.Columns()
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	require.Equal(t, []string{"id", "more", "last"}, all, "a kept SELECT has the columns of now")

	for i := range 2 * maxPrepared {
		exec(fmt.Sprintf("UPDATE one SET last='%d' WHERE id=?", i), 1)
	}
	require.Len(t, kept(), maxPrepared)
	long := fmt.Sprintf("UPDATE one SET last='%*d' WHERE id=?", longestPrepared, 1)
	exec(long, 1)
	require.NotContains(t, kept(), long)
	require.NoError(t, db.Close())
}
