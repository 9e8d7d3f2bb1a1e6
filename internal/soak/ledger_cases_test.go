package soak_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/audit"
)

// The answers that a node was given, as they are written down.
func TestTenureLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := newLedger(dir, tenuresFile)
	require.NoError(t, err)
	defer l.file.Close()
	of := audit.NewTenureLog(l, 4)
	of.Record(3, false)
	of.Record(3, true)
	of.Record(2, true)
	of.Record(3, true)
	of.Record(3, false)
	of.Record(3, false)
	of.Record(3, true)
	list, err := readLedger(dir, tenuresFile)
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, []uint64{3, audit.Closed, 2, 0, 3, 0}, []uint64{list[0].Key, list[0].End, list[1].Key, list[1].End, list[2].Key, list[2].End})
	require.Less(t, list[0].From, list[0].Till)
	require.LessOrEqual(t, list[0].Till, list[2].From)
}

// A run as it is written down, before and after.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := newLedger(dir, runsFile)
	require.NoError(t, err)
	defer l.file.Close()
	s := audit.Span{Key: 1<<63 - 1, From: 5, Seen: audit.Seen{Attempts: 3, Action: 7, Attribute: audit.TextHash(strings.Repeat("x", 99))}}
	place := l.Add(s)
	list, err := readLedger(dir, runsFile)
	require.NoError(t, err)
	require.Equal(t, []audit.Span{s}, list)
	s.Till, s.End = 9, audit.EndFailed
	l.Set(place, s)
	list, err = readLedger(dir, runsFile)
	require.NoError(t, err)
	require.Equal(t, []audit.Span{s}, list)
}
