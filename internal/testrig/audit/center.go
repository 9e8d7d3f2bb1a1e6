package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/sharding"
)

// Process is one process of a node, from its start to its end.
type Process struct {
	Name, Node string
	Ended      time.Time // zero: not yet
}

func (p *Process) String() string { return p.Name }

// Fault is something that was done to the center.
type Fault struct {
	Kind    string
	Nodes   []string // the nodes that it hit; nil: all
	Types   []string // the business types that it held up; nil: all
	Process *Process // of a kill: the process that it ended
	// Explains reports whether a run that the fault hits may be off the record, so that its task runs twice.
	Explains   bool
	Leaves     bool          // nodes ended in order, and came back: who gave a lease may be gone
	Frozen     bool          // its node stood still: what it sent and what was sent to it arrived when it went on
	Begin, End time.Time     // while it lasted
	Whole      time.Time     // when all was well again
	Skew       time.Duration // how far clocks were ahead
}

func (f *Fault) String() string {
	names := "all"
	if len(f.Nodes) == 1 {
		names = f.Nodes[0]
	}
	return fmt.Sprintf("%s of %s at %s for %s, whole %s later", f.Kind, names, f.Begin.Format("15:04:05.000"),
		f.End.Sub(f.Begin).Round(time.Millisecond), f.Whole.Sub(f.End).Round(time.Millisecond))
}

// Hits reports whether a fault hit a process. nil is an unknown process, which each fault may have hit.
func (f *Fault) Hits(p *Process) bool {
	if p == nil {
		return true
	}
	return (f.Process == nil || f.Process == p) && (f.Nodes == nil || slices.Contains(f.Nodes, p.Node))
}

// Overlaps reports whether a fault hit a process at some time between the two times.
func (f *Fault) Overlaps(p *Process, from, till int64) bool {
	return f.Hits(p) && from <= f.End.UnixNano() && till >= f.Begin.UnixNano()
}

// hampers reports whether a fault may hold up a business type at some time between the two.
func (f *Fault) hampers(bizType string, from, till int64) bool {
	return from < f.Whole.UnixNano() && till > f.Begin.UnixNano() && (f.Types == nil || slices.Contains(f.Types, bizType))
}

// Windows are the times that a step takes at most, where no fault holds it up. The audit explains by them what it finds.
type Windows struct {
	Start  time.Duration // from the check that a task is pending to its processor
	Record time.Duration // from the end of a run to its outcome in the store
	// From the last reading of a task to its start: a change by hand after that may come too late. The product reads
	// again what it read more than two seconds before; the rest is for the reading itself.
	Hand  time.Duration
	Adopt time.Duration // from the end of a process until the others have taken over its work
	Late  time.Duration // from a task's time to its start: a scan tick and a sweep
	// Calm is how much of the time from a task's time to its start may be without any fault. 0: a fault explains all of it.
	Calm time.Duration
	// Prompt is how late a task of mode redis starts at most, by the kind of the faults in between ("no fault": there was none). A kind
	// without a time is not asked.
	Prompt map[string]time.Duration
}

// Center is what the audit has to know of a center.
type Center struct {
	Layout sharding.Layout
	Types  map[string]configs.BizType
	Within Windows
	Nodes  int // that run at the same time; 0: one
}

// Types lists business types for a center.
func Types(list []configs.BizType) map[string]configs.BizType {
	types := make(map[string]configs.BizType, len(list))
	for _, b := range list {
		types[b.Name] = b
	}
	return types
}

// Partition is where a task is.
func (c *Center) Partition(jobID uint64) int {
	shard, _ := c.Layout.ShardOf(jobID)
	return c.Layout.Partition(shard)
}

func (c *Center) Database(jobID uint64) int {
	shard, _ := c.Layout.ShardOf(jobID)
	return c.Layout.Database(shard)
}
