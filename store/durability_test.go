package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/store"
)

// isDurable: the databases of these tests lose no answered write, and say so.
func isDurable(t *testing.T, p place) {
	f := p.open(t, small)
	for d := range small.Databases {
		faults, err := f.Durability(t.Context(), d)
		require.NoError(t, err)
		require.Empty(t, faults)
	}
	_, err := f.Durability(cancelled(t), 1)
	require.ErrorAs(t, err, new(*store.DatabaseError))
}
