package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// The table of docs/production.md has the times of all pools.
func TestTheTableOfConnectionsIsTrue(t *testing.T) {
	dsn, err := MySQLDSN(Config{DSN: "root@tcp(127.0.0.1:1)/toc_%d"}, 0)
	require.NoError(t, err)
	row := func(name string) []string { return testrig.DocsRow(t, "../docs/production.md", "MySQL, "+name) }
	require.Equal(t, []string{
		"by a statement, after `timeout` or `readTimeout` of the DSN (" + dsn.ReadTimeout.String() + ")",
		idleTime.String(), maxAge.String() + ", less up to a third",
	}, row("statements"))
	require.Equal(t, []string{"by a probe, after " + probeTimeout.String(), "–", pingAge.String()}, row("probes"))
	require.Equal(t, []string{"by a write, after " + holderTimeout.String(), "–", maxAge.String()}, row("single node's hold"))
}
