package store_test

import (
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
			list, last, err := f.Audit(ctx, q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(list), q.Limit)
			if len(list) == 0 {
				return got
			}
			got, q.After = append(got, list...), last
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
