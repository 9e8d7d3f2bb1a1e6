package sim

import (
	"time"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// processor is the name of the processor that writes down each run.
const processor = "recorder"

// The business types.
const (
	scanned        = "scanned"
	onRedis        = "on-redis"
	coalesced      = "coalesced"
	limited        = "limited"
	expiring       = "expiring"
	pulled         = "pulled"
	pulledAtOnce   = "pulled-once" // no retries
	pulledCoalesce = "pulled-coalesced"
)

// bizTypes are business types that use each feature, in combinations that users have.
func bizTypes(small bool) (list []configs.BizType) {
	add := func(name, mode string, change func(b *configs.BizType)) {
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Mode, b.Processor = uint64(len(list)+1), name, mode, processor
		b.Timeout, b.MaxRetries, b.Workers = traffic.RunTimeout, 4, 16
		b.Backoff = configs.Backoff{Min: 100 * time.Millisecond, Max: time.Second}
		if change != nil {
			change(&b)
		}
		if small {
			b.Workers, b.Horizon = 2, 10*time.Second
		}
		list = append(list, b)
	}
	leased := func(most, retries int) func(b *configs.BizType) {
		return func(b *configs.BizType) {
			b.Processor, b.Pull = configs.ProcessorPull, configs.Pull{TTR: 5 * time.Second, MaxInFlight: most}
			b.MaxRetries = retries
			if small {
				b.Pull.MaxInFlight = 2
			}
		}
	}
	add(scanned, configs.ModeScan, nil)
	add(onRedis, configs.ModeRedis, nil)
	add(coalesced, configs.ModeScan, func(b *configs.BizType) {
		b.Coalesce, b.Backoff.Max, b.CatchUp = configs.CoalesceBizID, 10*time.Second, 20
	})
	add(limited, configs.ModeRedis, func(b *configs.BizType) { b.RateLimit, b.MaxRunning, b.CatchUp, b.Timeout = 10, 3, 5, 20*time.Second })
	add(expiring, configs.ModeScan, func(b *configs.BizType) { b.ExpireAfter, b.OnExpire = 40*time.Second, configs.OnExpireSkip })
	add(pulled, configs.ModeScan, leased(4, 2))
	add(pulledAtOnce, configs.ModeRedis, leased(50, 0))
	add(pulledCoalesce, configs.ModeRedis, func(b *configs.BizType) {
		leased(50, 3)(b)
		b.Coalesce = configs.CoalesceBizID
	})
	return list
}

// configure is the configuration of a node, but for its servers.
func configure(c *configs.Config, o Options) {
	c.Store.Databases, c.Store.TablesPerDatabase, c.Cluster.Partitions = 2, 2, 4
	c.BizTypes = bizTypes(o.Small)
	c.Scan.Schedule, c.Scan.Lookahead, c.Redis.SweepAfter = "@every 5s", 5*time.Second, 5*time.Second
	if o.Small {
		c.Scan.Batch, c.Scan.Lookahead, c.Queue.Capacity = 1, time.Second, 4
	}
}
