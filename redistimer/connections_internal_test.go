package redistimer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
)

// The table of docs/production.md has these times.
func TestTheTableOfConnectionsIsTrue(t *testing.T) {
	require.Equal(t, []string{"rows that are due soon are read all the same", "–", MaxSubscription.String() + ", less up to a third"},
		testrig.DocsRow(t, "../docs/production.md", "Redis, wake-ups"))
}
