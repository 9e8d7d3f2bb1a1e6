package audit

import (
	"fmt"
	"time"
)

// Tenure is a span of time in which a process got the answer that it owns a partition.
type Tenure struct {
	By         *Process
	From, Till int64
	Ended      bool // by a no
}

// Tenures are all of them, by partition, in the order of their beginning.
type Tenures [][]Tenure

// Conflict is an instant at which a partition had two owners.
type Conflict struct {
	Partition int
	One, Two  Tenure
}

func (c Conflict) String() string {
	had := func(t Tenure) string {
		return fmt.Sprintf("%s had it from %s to %s", t.By, Clock(t.From), Clock(t.Till))
	}
	return fmt.Sprintf("partition %d: %s, %s", c.Partition, had(c.One), had(c.Two))
}

func Clock(ns int64) string { return time.Unix(0, ns).Format("15:04:05.000000") }

// Conflicts finds the tenures of different processes that have an instant in common.
func (all Tenures) Conflicts() (list []Conflict) {
	for p, of := range all {
		var longest Tenure // of the tenures that began before
		for _, r := range of {
			if longest.By != nil && longest.By != r.By && r.From <= min(longest.Till, r.Till) {
				list = append(list, Conflict{p, longest, r})
			}
			if r.Till > longest.Till {
				longest = r
			}
		}
	}
	return list
}

// throughout returns the process that was the only owner of a partition during a span of time; nil: there is none, or it is unknown.
func (all Tenures) throughout(partition int, from, till int64) (owner *Process) {
	if len(all) == 0 {
		return nil
	}
	for _, r := range all[partition] {
		switch {
		case r.From <= from:
			if owner = r.By; r.Ended && r.Till < till {
				owner = nil
			}
		case r.From <= till && (r.By != owner || r.Ended && r.Till < till):
			return nil
		}
	}
	if owner != nil && !owner.Ended.IsZero() && owner.Ended.UnixNano() <= till {
		return nil
	}
	return owner
}

// Gap returns the longest time that a partition had no owner, among the times that touch the given one. There is no such time
// between two tenures of one process that was just not asked.
func (all Tenures) Gap(from, till int64) (longest time.Duration) {
	for _, of := range all {
		var last Tenure
		for _, r := range of {
			known := last.By == nil || last.By == r.By && !last.Ended
			if !known && last.Till < till && r.From > from {
				longest = max(longest, time.Duration(r.From-last.Till))
			}
			if r.Till > last.Till {
				last = r
			}
		}
	}
	return longest
}
