package soak_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

// tenure is a span of time in which a process was told that a partition is its own.
type tenure struct {
	by         *process
	from, till int64
	ended      bool // by a no
}

// tenures are all of them, by partition, in the order of their beginning.
type tenures [][]tenure

// readTenures reads the records of all processes.
func readTenures(f *fleet) tenures {
	all := make(tenures, f.cfg.Cluster.Partitions)
	for _, n := range f.nodes {
		for _, l := range n.processes {
			list, err := readLedger(l.dir, tenuresFile)
			require.NoError(f.t, err)
			for _, s := range list {
				all[s.key] = append(all[s.key], tenure{l, s.from, s.till, s.end == closed})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
	}
	return all
}

// conflict is an instant at which a partition had two owners.
type conflict struct {
	partition int
	one, two  tenure
}

func (c conflict) String() string {
	begin, end := c.two.from, min(c.one.till, c.two.till)
	return fmt.Sprintf("partition %d: %s and %s both had it from %s for at least %s", c.partition, c.one.by, c.two.by,
		clock(begin), time.Duration(end-begin))
}

func clock(ns int64) string { return time.Unix(0, ns).Format("15:04:05.000000") }

// conflicts finds the tenures of different processes that have an instant in common.
func (all tenures) conflicts() (list []conflict) {
	for p, of := range all {
		var longest tenure // of those that began before
		for _, r := range of {
			if longest.by != nil && longest.by != r.by && r.from <= longest.till {
				list = append(list, conflict{p, longest, r})
			}
			if r.till > longest.till {
				longest = r
			}
		}
	}
	return list
}

// gap gives the longest time that a partition had no owner, among those that touch the given time. Between two tenures of
// one process that was just not asked there is none.
func (all tenures) gap(from, till int64) (longest time.Duration) {
	for _, of := range all {
		var last tenure
		for _, r := range of {
			known := last.by == nil || last.by == r.by && !last.ended
			if !known && last.till < till && r.from > from {
				longest = max(longest, time.Duration(r.from-last.till))
			}
			if r.till > last.till {
				last = r
			}
		}
	}
	return longest
}
