package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
)

func journals(t *testing.T, p place) {
	f := p.open(t, small)
	read := func(database int) []store.Running {
		list, err := f.Journaled(t.Context(), database)
		require.NoError(t, err)
		slices.SortFunc(list, func(a, b store.Running) int { return int(a.JobID) - int(b.JobID) })
		return list
	}
	require.Empty(t, read(0))
	require.NoError(t, f.Journal(t.Context(), 0, nil, nil))

	a := store.Running{JobID: 7, Instance: "a", Attempts: 2, Since: f.in(0)}
	b := store.Running{JobID: 8, Instance: strings.Repeat("b", 64), Attempts: 255, Cuts: 255, Since: f.in(1)}
	require.NoError(t, f.Journal(t.Context(), 0, []store.Running{a, b}, nil))
	require.Equal(t, []store.Running{a, b}, read(0))
	require.Empty(t, read(1), "each database has its own")

	again := store.Running{JobID: 7, Instance: "c", Attempts: 2, Cuts: 1, Since: f.in(2)}
	require.NoError(t, f.Journal(t.Context(), 0, []store.Running{again}, []store.Running{b}))
	require.Equal(t, []store.Running{again}, read(0), "replaced, and taken out")
	require.NoError(t, f.Journal(t.Context(), 0, nil, []store.Running{a}))
	require.Equal(t, []store.Running{again}, read(0), "it is another instance's now")

	var many, gone []store.Running
	for i := range 2500 {
		many = append(many, store.Running{JobID: uint64(100 + i), Instance: "a", Since: f.in(0)})
		gone = append(gone, store.Running{JobID: uint64(100 + i), Instance: []string{"a", "x"}[i/1250]})
	}
	require.NoError(t, f.Journal(t.Context(), 1, many, nil))
	require.Equal(t, many, read(1))
	require.NoError(t, f.Journal(t.Context(), 1, nil, gone))
	require.Equal(t, many[1250:], read(1))
}
