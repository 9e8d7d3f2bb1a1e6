package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/configs"
)

func TestServerAdvice(t *testing.T) {
	t.Parallel()
	mysql := variables{version: "9.7.4", openCache: 4000, instances: 16, definitionCache: 2000, maxConns: 151}
	maria := variables{version: "10.11.11-MariaDB-0+deb12u1", openCache: 2000, instances: 8, definitionCache: 400, maxConns: 151}
	cluster := configs.Default()
	cluster.Cluster.Provider = configs.ProviderConsul
	for _, row := range []struct {
		v           variables
		tables      int
		connections int
		nodes       int
		says        []string
	}{
		{mysql, 256, 144, leastNodes(configs.Default()), nil},
		{mysql, 8192, 152, 1, []string{
			"table_open_cache is 4000, table_definition_cache is 2000, table_open_cache_instances is 16, and the layout has 8192 tables there; " +
				"start it with table_open_cache=8192, table_definition_cache=8592, table_open_cache_instances=1, and open files to match (open_files_limit)",
			"max_connections is 151, and each node may open 152; set it to that times the number of nodes",
		}},
		{maria, 8192, 100, 1, []string{"table_open_cache is 2000, and the layout has 8192 tables there; start it with table_open_cache=8192, and open files to match (open_files_limit)"}},
		{maria, 1024, 100, 1, nil},
		{variables{version: "9.7.4", openCache: 20000, instances: 1, definitionCache: 10000, maxConns: 500}, 8192, 152, 3, nil},
		{maria, 1024, 144, leastNodes(cluster), []string{"max_connections is 151, and each node may open 144; set it to that times the number of nodes"}},
	} {
		require.Equal(t, row.says, row.v.advice(row.tables, row.connections, row.nodes))
	}
}
