package audit

import (
	"hash/fnv"
	"time"
)

// Span is one record, for as long as something lasted. Times are the wall clock's nanoseconds, which all processes of a
// machine share.
type Span struct {
	Key        uint64 // job_id, or partition
	From, Till int64  // till 0: not over when the process ended
	End        uint64 // how it ended: of a tenure closed; of a run endOK, endFailed or endStopped
	Seen       Seen   // of a run
}

// Seen is the row of a task as a processor, or the audit, reads it.
type Seen struct {
	Attempts  int64
	Action    int64 // action_time in milliseconds
	Attribute uint64
}

// TextHash is what the ledger keeps of a text.
func TextHash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// Late is how long after its action_time a run began.
func (s Span) Late() time.Duration {
	return time.Duration(s.From) - time.Duration(s.Seen.Action)*time.Millisecond
}

// How a span ended; 0: with its process.
const (
	Closed = 1 // a tenure that ended with a no, and not just because nobody asked

	EndOK      = 1
	EndFailed  = 2
	EndStopped = 3 // stopped: the product may run it again
)
