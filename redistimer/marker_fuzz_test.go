package redistimer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseMarker: a marker that can be parsed is written as it was read. Any other text is not a marker.
func FuzzParseMarker(f *testing.F) {
	f.Add("toc/2 0123456789abcdef 8x32x256 serving host-1 1763856000000")
	f.Add("toc/2 - 8x32x256 handed a 99999999999999999999")
	f.Add("toc/1  x")
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := parseMarker(text)
		if !ok {
			return
		}
		again, ok := parseMarker(m.String())
		require.True(t, ok, text)
		require.Equal(t, m, again)
	})
}
