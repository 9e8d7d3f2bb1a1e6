package mysqlsession

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/production.md has the tables of what toc sets and reads.
func TestDocsListTheVariables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	var set, read strings.Builder
	for _, v := range Variables() {
		servers := map[string]string{"": "both", onMariaDB: "MariaDB", onMySQL: "MySQL", "MySQL 80003": "MySQL", "MySQL 80013": "MySQL 8.0.13"}[v.Only]
		require.NotEmpty(t, servers, v.Name)
		fmt.Fprintf(&set, "| `%s` | %s | `%s` | %s |\n", v.Name, servers, v.Value, v.Why)
	}
	for _, v := range ServerVariables {
		_, right, _ := strings.Cut(v.Right, "=")
		fmt.Fprintf(&read, "| `%s` | %s | %s |\n", v.Name, right, v.Why)
	}
	require.Contains(t, string(text), "| variable | server | value | otherwise |\n|---|---|---|---|\n"+set.String()+"\n")
	for name := range fixed {
		require.Contains(t, string(text), "`"+name+"`")
	}
	require.Contains(t, string(text), "| variable | right | otherwise |\n|---|---|---|\n"+read.String()+"\n")
}
