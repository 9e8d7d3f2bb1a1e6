package cluster

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/timeoutcenter/toc/sharding"
)

// candidate is a node as the assignment sees it.
type candidate struct {
	name        string
	unreachable []int // databases that it cannot reach
}

// assign says whose each partition should be, by the node's name; "" where there
// are no nodes. It is a pure function of the set of candidates, so that all nodes
// come to the same answer without talking.
//
// It is rendezvous hashing under caps: all pairs (node, partition) are taken in
// the order of their hash, and a pair counts unless its partition is given or its
// node is full. The caps make the balance exact: shares differ by at most one.
// A join or a leave moves somewhat more than the share of the node that came or
// went, since a share that shrinks elsewhere pushes others on; the test states
// how much.
//
// A node gets no partition of a database that it is unable to reach as long as
// another can. Such databases are given out first, the ones with the fewest able
// nodes foremost, and the others then level the shares.
func assign(nodes []candidate, layout sharding.Layout) []string {
	owners := make([]string, layout.Partitions)
	if len(nodes) == 0 {
		return owners
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })

	shares := make([]int, len(nodes))
	for _, g := range groups(nodes, layout) {
		level(g, nodes, shares, owners)
	}
	return owners
}

// group is the partitions that the same nodes are able to work.
type group struct {
	able       []int // nodes, ascending
	partitions []int
}

// groups joins the databases that the same nodes can reach; the fewest nodes
// first.
func groups(nodes []candidate, layout sharding.Layout) []group {
	var all []group
	for d := range layout.Databases {
		var able []int
		for i, n := range nodes {
			if !slices.Contains(n.unreachable, d) {
				able = append(able, i)
			}
		}
		if len(able) == 0 { // nobody is better than anybody
			for i := range nodes {
				able = append(able, i)
			}
		}
		at := slices.IndexFunc(all, func(g group) bool { return slices.Equal(g.able, able) })
		if at < 0 {
			at = len(all)
			all = append(all, group{able: able})
		}
		first, end := layout.DatabasePartitions(d)
		for p := first; p < end; p++ {
			all[at].partitions = append(all[at].partitions, p)
		}
	}
	slices.SortStableFunc(all, func(a, b group) int { return cmp.Compare(len(a.able), len(b.able)) })
	return all
}

// pair is a node that could have a partition.
type pair struct {
	score           uint64
	node, partition int
}

// level gives a group's partitions out so that the shares of its nodes are as
// level as they can be, like water poured into vessels.
func level(g group, nodes []candidate, shares []int, owners []string) {
	full, spare := fillLevel(g, shares)
	pairs := make([]pair, 0, len(g.able)*len(g.partitions))
	for _, n := range g.able {
		h := fnv.New64a()
		_, _ = h.Write([]byte(nodes[n].name))
		seed := h.Sum64()
		for _, p := range g.partitions {
			pairs = append(pairs, pair{mix(seed ^ mix(uint64(p)+1)), n, p})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.partition, b.partition), cmp.Compare(a.node, b.node))
	})
	for _, at := range pairs {
		switch {
		case owners[at.partition] != "" || shares[at.node] > full || shares[at.node] == full && spare == 0:
			continue
		case shares[at.node] == full:
			spare--
		}
		shares[at.node]++
		owners[at.partition] = nodes[at.node].name
	}
}

// waterline says up to which share the nodes of a group are filled, and how many
// of them get one more.
func fillLevel(g group, shares []int) (full, spare int) {
	have := make([]int, len(g.able))
	for i, n := range g.able {
		have[i] = shares[n]
	}
	slices.Sort(have)
	water := len(g.partitions)
	for i := range have {
		water += have[i]
		nodesBelow := i + 1
		if i+1 == len(have) || water/nodesBelow < have[i+1] {
			return water / nodesBelow, water % nodesBelow
		}
	}
	return 0, 0
}

// mix is the finisher of splitmix64: every bit of the result hangs on every bit
// of x.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
