package cluster

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/timeoutcenter/toc/sharding"
)

// candidate is a node in the assignment.
type candidate struct {
	name        string
	unreachable []int // databases that it cannot reach
}

// assign returns the node that should own each partition, by name; "" if there are no nodes. It is a pure
// function of the set of candidates, so all nodes get the same result without talking.
//
// It is rendezvous hashing with caps: all pairs (node, partition) are taken in the order of their hash. A pair
// counts unless its partition is assigned or its node is full. The caps make the balance exact: shares differ
// by at most one. A join or a leave moves somewhat more than the share of that node, since a share that shrinks
// elsewhere pushes others on; the test states how much.
//
// A node gets no partition of a database that it cannot reach while another node can. Such databases are
// assigned first, beginning with the ones that the fewest nodes can reach. The others then level the shares.
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

// group is the partitions that the same nodes can reach.
type group struct {
	able       []int // nodes, ascending
	partitions []int
}

// groups joins the databases that the same nodes can reach, starting with the fewest nodes.
func groups(nodes []candidate, layout sharding.Layout) []group {
	var all []group
	for d := range layout.Databases {
		var able []int
		for i, n := range nodes {
			if !slices.Contains(n.unreachable, d) {
				able = append(able, i)
			}
		}
		if len(able) == 0 { // no node can: all are equal
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

// pair is a node and a partition that it could have.
type pair struct {
	score           uint64
	node, partition int
}

// level assigns a group's partitions so that the shares of its nodes are as equal as possible, like water
// poured into vessels.
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

// fillLevel returns the share that all nodes of a group reach, and how many of them get one more.
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

// mix is the finisher of splitmix64: each bit of the result depends on each bit of x.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
