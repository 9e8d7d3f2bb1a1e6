package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/timeoutcenter/toc/sharding"
)

// eight is the default layout of a cluster.
var eight = sharding.Layout{Databases: 8, TablesPerDatabase: 1024, Partitions: 256}

func named(names ...string) (list []candidate) {
	for _, n := range names {
		list = append(list, candidate{name: n})
	}
	return list
}

func sharesOf(owners []string) map[string]int {
	shares := make(map[string]int)
	for _, o := range owners {
		shares[o]++
	}
	return shares
}

func TestAssignmentIsCompleteBalancedAndOneForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.IntRange(0, 4).Draw(t, "log2 databases")
		l := sharding.Layout{Databases: 1 << d, TablesPerDatabase: 64, Partitions: 1 << rapid.IntRange(d, d+6).Draw(t, "log2 partitions")}
		nodes := named(rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{1,12}`), 1, 20, rapid.ID).Draw(t, "nodes")...)
		owners := assign(nodes, l)
		shares := sharesOf(owners)
		for _, n := range nodes {
			require.GreaterOrEqual(t, shares[n.name], l.Partitions/len(nodes))
			require.LessOrEqual(t, shares[n.name], (l.Partitions+len(nodes)-1)/len(nodes))
			delete(shares, n.name)
		}
		require.Empty(t, shares, "nobody else has any")
		rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		require.Equal(t, owners, assign(nodes, l), "the order does not matter")
	})
}

func TestUnableNodesGetNothingThatOthersCanWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sharding.Layout{Databases: 8, TablesPerDatabase: 64, Partitions: 128}
		nodes := named("a", "b", "c", "d")[:rapid.IntRange(1, 4).Draw(t, "nodes")]
		able := make(map[int]int)
		for i := range nodes {
			nodes[i].unreachable = rapid.SliceOfDistinct(rapid.IntRange(0, 7), rapid.ID).Draw(t, "unable")
			for d := range 8 {
				if !slices.Contains(nodes[i].unreachable, d) {
					able[d]++
				}
			}
		}
		for p, owner := range assign(nodes, l) {
			require.NotEmpty(t, owner)
			d := l.PartitionDatabase(p)
			at := slices.IndexFunc(nodes, func(n candidate) bool { return n.name == owner })
			if slices.Contains(nodes[at].unreachable, d) {
				require.Zero(t, able[d], "partition %d of database %d", p, d)
			}
		}
	})
}

// The shares are level even though one node cannot work everything.
func TestOtherDatabasesMakeUpForOneThatANodeCannotWork(t *testing.T) {
	nodes := named("a", "b", "c")
	nodes[0].unreachable = []int{2, 5}
	require.Equal(t, map[string]int{"a": 86, "b": 85, "c": 85}, sorted(sharesOf(assign(nodes, eight)), nodes))
	nodes[0].unreachable = []int{0, 1, 2, 3, 4, 5}
	shares := sharesOf(assign(nodes, eight))
	require.Equal(t, map[string]int{"a": 64, "b": 96, "c": 96}, shares)
	require.Equal(t, make([]string, 256), assign(nil, eight))
}

// sorted hands the larger shares to the first nodes: whose they are is chance.
func sorted(shares map[string]int, nodes []candidate) map[string]int {
	var sizes []int
	for _, n := range shares {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	for i, n := range nodes {
		shares[n.name] = sizes[i]
	}
	return shares
}

// A node that comes or goes moves its share, and what its coming or going pushes
// on. Measured over 40 sets of names each, with 256 partitions, in shares of 1/n:
// 1.0 for 1→2 nodes, 1.1 for 4→5, 1.3 for 9→10, 1.5 for 12→13; the worst of them
// up to 10 nodes was 1.5. A leave is a join read backwards.
func TestAJoinMovesLittle(t *testing.T) {
	const sets = 40
	for n := 1; n < 10; n++ {
		moved, worst := 0, 0
		for set := range sets {
			var nodes []candidate
			for i := range n + 1 {
				nodes = append(nodes, candidate{name: fmt.Sprintf("node-%d-%d", set, i)})
			}
			before, after := assign(nodes[:n], eight), assign(nodes, eight)
			moves := 0
			for p := range before {
				if before[p] != after[p] {
					moves++
				}
			}
			moved += moves
			worst = max(worst, moves)
		}
		share := 256 / float64(n+1)
		require.LessOrEqual(t, float64(moved)/sets, 1.35*share, "%d → %d nodes on average", n, n+1)
		require.LessOrEqual(t, float64(worst), 1.6*share, "%d → %d nodes at worst", n, n+1)
	}
}

func BenchmarkAssign(b *testing.B) {
	nodes := named("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	for b.Loop() {
		assign(nodes, eight)
	}
}
