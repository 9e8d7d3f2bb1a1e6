package traffic

import (
	"database/sql"
	"math/rand/v2"
	"net/http"
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

// source is where an actor draws from.
func source(seed uint64, numbers ...uint64) *rand.Rand {
	for _, n := range numbers {
		seed = mix(seed ^ mix(n))
	}
	return rand.New(rand.NewPCG(seed, 0))
}
