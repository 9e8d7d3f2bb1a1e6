package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
)

// audits: entries are read back from the latest to the earliest, page by page, whichever database has them.
func audits(t *testing.T, p place) {
	f := p.open(t, small)
	ctx := t.Context()
	var want []store.AuditEntry
	for i := range 12 {
		e := store.AuditEntry{At: f.in(1000 * (i / 2)), Actor: "api", Action: []string{"redrive", "discard"}[i%2], Target: "order_close", Count: i, Detail: `{"error":"%"}`}
		_, err := f.hands[i%3%f.layout.Databases].ExecContext(ctx, "INSERT INTO toc_audit (at,actor,action,target,count,detail) VALUES (?,?,?,?,?,?)",
			f.at(e.At), e.Actor, e.Action, e.Target, e.Count, e.Detail)
		require.NoError(t, err)
		want = append([]store.AuditEntry{e}, want...)
	}
	page := func(q store.AuditFilter) (got []store.AuditEntry) {
		for {
			list, next, err := f.Audit(ctx, q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(list), q.Limit)
			if got = append(got, list...); next.At.IsZero() {
				return got
			}
			q.After = next
		}
	}
	for _, limit := range []int{1, 5, 100} {
		require.ElementsMatch(t, want, page(store.AuditFilter{Limit: limit}))
	}
	for i, e := range page(store.AuditFilter{Limit: 3}) {
		require.Equal(t, want[i].At, e.At, "the latest first")
	}
	require.Len(t, page(store.AuditFilter{Limit: 3, Action: "discard"}), 6)
	require.Empty(t, page(store.AuditFilter{Limit: 3, Actor: "%"}))
	require.Len(t, page(store.AuditFilter{Limit: 3, From: f.in(1000), To: f.in(3000)}), 4, "from is in, to is not")

	require.NoError(t, f.Record(ctx, store.AuditEntry{At: f.in(9000), Actor: strings.Repeat("ü", 100), Detail: strings.Repeat("ü", 2000)}), "what is too long is cut")
	for d := range f.layout.Databases {
		_, err := f.PurgeAudit(ctx, d, f.in(4000))
		require.NoError(t, err)
		n, err := f.PurgeAudit(ctx, d, f.in(4000))
		require.NoError(t, err)
		require.Zero(t, n)
	}
	left := page(store.AuditFilter{Limit: 100})
	require.Len(t, left, 5)
	require.False(t, left[len(left)-1].At.Before(f.in(4000)))
	require.Len(t, []rune(left[0].Actor), 64)
}

// auditsOnce: an entry whose answer was lost is in two databases, with one id. It is read once, also at the end of a page.
func auditsOnce(t *testing.T, p place) {
	f := p.open(t, small)
	rec := store.Record(f.Store)
	lost := true
	rec.OnTransaction = func(do func() error) error {
		err := do()
		if lost {
			lost, err = false, errors.New("connection reset")
		}
		return err
	}
	require.NoError(t, f.Record(t.Context(), store.AuditEntry{At: f.in(0), Actor: "api", Action: "pause"}))
	require.False(t, lost)
	require.NoError(t, f.Record(t.Context(), store.AuditEntry{At: f.in(-1), Actor: "api", Action: "resume"}))
	rows := 0
	for _, db := range f.hands[:f.layout.Databases] {
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM toc_audit").Scan(&n))
		rows += n
	}
	require.Equal(t, 3, rows)
	for _, limit := range []int{1, 2, 10} {
		var actions []string
		for q := (store.AuditFilter{Limit: limit}); ; {
			list, next, err := f.Audit(t.Context(), q)
			require.NoError(t, err)
			for _, e := range list {
				actions = append(actions, e.Action)
			}
			if q.After = next; next.At.IsZero() {
				break
			}
		}
		require.Equal(t, []string{"pause", "resume"}, actions)
	}
}

// auditsInPieces: a look-up of an actor reads a bounded number of rows, and the next page goes on behind them.
func auditsInPieces(t *testing.T, p place) {
	f := p.open(t, small)
	const rows = 1300 // of one database, more than a page looks at
	text := "INSERT INTO toc_audit (at,actor,action) VALUES " + strings.Repeat("(?,?,'pause'),", rows-1) + "(?,?,'pause')"
	var args []any
	for i := range rows {
		args = append(args, f.at(f.in(i)), "api")
	}
	args[1] = "somebody" // the oldest
	_, err := f.hands[1].ExecContext(t.Context(), text, args...)
	require.NoError(t, err)
	require.NoError(t, f.Record(t.Context(), store.AuditEntry{At: f.in(-1), Actor: "somebody", Action: "resume"})) // in another database
	rec := store.Record(f.Store)
	var got []string
	pages := 0
	for q := (store.AuditFilter{Actor: "somebody", Limit: 10}); ; pages++ {
		rec.Clear()
		list, next, err := f.Audit(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, rec.Queries(), f.layout.Databases)
		for _, q := range rec.Queries() {
			require.Contains(t, q.SQL, " ORDER BY at DESC,id DESC LIMIT ?")
		}
		for _, e := range list {
			got = append(got, e.Action)
		}
		if q.After = next; next.At.IsZero() {
			break
		}
	}
	require.Equal(t, []string{"pause", "resume"}, got)
	require.Equal(t, 1, pages)
}

// auditsAround: a database that is away neither keeps an action from being written down, nor the others from being read.
func auditsAround(t *testing.T, p place) {
	f := p.open(t, small)
	_, err := f.hands[0].ExecContext(t.Context(), "DROP TABLE toc_audit")
	require.NoError(t, err)
	e := store.AuditEntry{At: f.in(0), Actor: "api", Action: "redrive", Count: 3}
	require.NoError(t, f.Record(t.Context(), e))
	got, _, err := f.Audit(t.Context(), store.AuditFilter{Limit: 10})
	require.Error(t, err)
	require.Equal(t, []store.AuditEntry{e}, got)
}
