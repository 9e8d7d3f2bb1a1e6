package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/migrations"
)

func TestUpTwice(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		cfg := p.config(t, small)
		require.NoError(t, migrations.Up(t.Context(), cfg))
		require.NoError(t, migrations.Up(t.Context(), cfg))
		for _, d := range cfg.Databases {
			require.NoError(t, migrations.Verify(t.Context(), cfg.Dialect, small, d))
		}
	})
}
