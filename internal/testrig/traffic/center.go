package traffic

import (
	"database/sql"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/sharding"
)

// Center is the center that the traffic goes to.
type Center struct {
	Layout sharding.Layout
	Types  []configs.BizType
	HTTP   *http.Client
	// Any gives a node that takes requests, other than the given one where there is a choice; nil: there is none.
	Any func(r *rand.Rand, but string) *Target
	// DBs are the databases, for hands.
	DBs []*sql.DB
	// Again is when a caller submits again what was not taken, at the earliest.
	Again time.Duration
	// Redrive is how often somebody redrives dead tasks; 0: each second.
	Redrive time.Duration
	// Excuse reports whether a refusal was to be expected; nil: none is.
	Excuse func(problem string) bool
	// Ahead is how long before its time a task is submitted; nil: up to some seconds.
	Ahead func(r *rand.Rand) time.Duration
	// BizID is the biz_id of a task; nil: another one each time.
	BizID func(r *rand.Rand, bizType string) uint64
	// Burst is how often many tasks of one business type fall due at once; 0: never.
	Burst time.Duration
	// LockFor is how long a hand forgets a transaction.
	LockFor func(r *rand.Rand) time.Duration
}

// Target is a node as it takes requests now.
type Target struct {
	Node string
	By   *audit.Process
	API  *client.Client
	URL  string
}

// ahead is when a task is due.
func (c *Center) ahead(r *rand.Rand) time.Time {
	d := 200*time.Millisecond + time.Duration(r.Int64N(int64(4*time.Second)))
	if c.Ahead != nil {
		d = c.Ahead(r)
	}
	return time.Now().Add(d).Truncate(time.Millisecond)
}

func (c *Center) bizID(r *rand.Rand, bizType string) uint64 {
	if c.BizID == nil {
		return r.Uint64() >> 1
	}
	return c.BizID(r, bizType)
}

func (c *Center) pulled(bizType string) bool {
	i := slices.IndexFunc(c.Types, func(b configs.BizType) bool { return b.Name == bizType })
	return i >= 0 && c.Types[i].Processor == configs.ProcessorPull
}

// source is where an actor draws from.
func source(seed uint64, numbers ...uint64) *rand.Rand {
	for _, n := range numbers {
		seed = mix(seed ^ mix(n))
	}
	return rand.New(rand.NewPCG(seed, 0))
}
