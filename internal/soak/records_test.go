package soak_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/audit"
)

// newVerdict judges a fleet in its end.
func newVerdict(f *fleet, faults []*audit.Fault, histories []*audit.History) *audit.Verdict {
	faults = slices.Concat(faults, f.ended)
	return audit.Judge(audit.Evidence{Center: f.center(), Faults: append(faults, readStalls(f, faults)...), Histories: histories,
		Runs: readRuns(f), Rows: readRows(f), Tenures: readTenures(f),
		Artifacts: f.t.ArtifactDir(), Goals: map[string]time.Duration{rolling: 1500 * time.Millisecond, kill: 8 * time.Second}})
}

func (f *fleet) center() audit.Center {
	return audit.Center{Layout: f.layout(), Types: audit.Types(f.cfg.BizTypes), Within: within}
}

// readTenures reads the records of all processes.
func readTenures(f *fleet) audit.Tenures {
	all := make(audit.Tenures, f.cfg.Cluster.Partitions)
	for _, n := range f.nodes {
		for _, l := range n.processes {
			list, err := readLedger(l.dir, tenuresFile)
			require.NoError(f.t, err)
			for _, s := range list {
				all[s.Key] = append(all[s.Key], audit.Tenure{By: &l.Process, From: s.From, Till: s.Till, Ended: s.End == audit.Closed})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b audit.Tenure) int { return cmp.Compare(a.From, b.From) })
	}
	return all
}

// readRuns reads the runs of all processes, by job_id, in the order of their beginning.
func readRuns(f *fleet) map[uint64][]audit.Run {
	all := map[uint64][]audit.Run{}
	for _, n := range f.nodes {
		for _, p := range n.processes {
			list, err := readLedger(p.dir, runsFile)
			require.NoError(f.t, err)
			for _, s := range list {
				all[s.Key] = append(all[s.Key], audit.Run{By: &p.Process, Span: s})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b audit.Run) int { return cmp.Compare(a.Span.From, b.Span.From) })
	}
	return all
}

// readStalls makes faults of what stood still though nobody was told to.
func readStalls(f *fleet, known []*audit.Fault) (list []*audit.Fault) {
	for _, n := range f.nodes {
		for _, p := range n.processes {
			stalls, err := readLedger(p.dir, stallsFile)
			require.NoError(f.t, err)
			for _, s := range stalls {
				if !slices.ContainsFunc(known, func(f *audit.Fault) bool { return f.Overlaps(&p.Process, s.From, s.Till+int64(within.Record)) }) {
					list = append(list, &audit.Fault{Kind: "stood still", Nodes: []string{n.name}, Process: &p.Process, Explains: true,
						Begin: time.Unix(0, s.From), End: time.Unix(0, s.Till), Whole: time.Unix(0, s.Till)})
				}
			}
		}
	}
	return list
}
