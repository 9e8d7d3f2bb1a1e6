package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test keeps the machine busy for long")
	}
	out := ok(t, "demo", "--tasks", "200", "--seconds", "1")
	require.Contains(t, out, "Submitted 200 order timeouts, due over the next 1s")
	require.Contains(t, out, "fired 200, lost 0, early 0, twice 0, p50 ")
	require.NotContains(t, out, "\r", "progress is drawn on terminals only")
}
