package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever the order of reads and removals: a row is stale exactly if its task left after the read began, and
// nothing is remembered that no open read needs.
func TestTombstonesAreKeptAsLongAsAnOpenReadNeedsThem(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var p reads
		left := map[uint64]uint64{}
		var open []uint64
		for now := uint64(1); now < 60; now++ {
			switch op := rapid.IntRange(0, 3).Draw(rt, "op"); {
			case op == 0:
				p.open = append(p.open, now)
				open = append(open, now)
			case op == 1 && len(open) > 0:
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
				p.end(open[i])
				open = append(open[:i:i], open[i+1:]...)
			default:
				id := rapid.Uint64Range(1, 5).Draw(rt, "id")
				p.add(id, now)
				left[id] = now
			}
			for _, began := range open {
				for id := uint64(1); id <= 5; id++ {
					require.Equal(rt, left[id] > began, p.stale(id, began))
				}
			}
			if len(open) == 0 {
				require.Empty(rt, p.removed)
				require.Empty(rt, p.tombstones)
				continue
			}
			for _, at := range p.removed {
				require.Greater(rt, at, open[0])
			}
		}
	})
}
