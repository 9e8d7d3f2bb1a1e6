package store_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// textsAreIDs: a text biz_id is stored, and found by the text alone; its number is MySQL's hash of it.
func textsAreIDs(t *testing.T, p place) {
	f := p.open(t, small)
	const uuid = "6f1c0b6e-9a53-4a3f-8c6e-1d2f3a4b5c6d"
	number, key, err := task.ParseBizID(uuid)
	require.NoError(t, err)
	require.Equal(t, uuid, key)
	if p.driver == store.MySQL {
		var said string
		err := f.hands[0].QueryRowContext(t.Context(), "SELECT CONV(LEFT(MD5(?), 16), 16, 10)", uuid).Scan(&said)
		if gone := new(mysql.MySQLError); !errors.As(err, &gone) || gone.Number != 1305 { // MySQL 9.7 has no MD5 of its own
			require.NoError(t, err)
			require.Equal(t, strconv.FormatUint(number, 10), said)
		}
	}
	one := f.put(t, task.Task{BizID: number, BizKey: key, BizType: 1, ActionTime: f.in(0), DedupKey: "a"})[0]
	other := f.put(t, task.Task{BizID: number, BizType: 1, ActionTime: f.in(0)})[0]

	for bizKey, want := range map[string]task.Task{uuid: one, "": other} {
		list, err := f.List(t.Context(), number, store.Filter{BizKey: bizKey, Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []task.Task{want}, list)
	}
	got, err := f.First(t.Context(), number, uuid, 1, "a")
	require.NoError(t, err)
	require.Equal(t, one, got)
	_, err = f.First(t.Context(), number, "", 1, "a")
	require.ErrorIs(t, err, task.ErrNotFound)

	// Another text with the same hash must not get this one's task.
	answers := f.Insert(t.Context(), []task.Task{
		{BizID: number, BizKey: uuid, BizType: 1, ActionTime: f.in(5), DedupKey: "a"},
		{BizID: number, BizKey: "a twin", BizType: 1, ActionTime: f.in(5), DedupKey: "a"},
	})
	require.NoError(t, answers[0].Err)
	require.True(t, answers[0].Duplicate)
	require.Equal(t, one, answers[0].Task)
	var refused *task.FieldError
	require.ErrorAs(t, answers[1].Err, &refused)
	require.Equal(t, "dedup_key", refused.Field)
}
