package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/bench/peer"
	"github.com/timeoutcenter/toc/bench/server"
)

// runIdle: nothing is due.
func runIdle(ctx context.Context, b *bench) error {
	if err := b.work(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	if b.parked > 0 {
		b.run.N = b.parked
		b.set("park_per_s", b.parking)
	}
	quiet()
	if err := rest(ctx, b.sizes.Settle); err != nil {
		return err
	}
	start := time.Now()
	used, err := b.cpu(func() error { return rest(ctx, b.sizes.IdleFor) })
	if err != nil {
		return err
	}
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / time.Since(start).Seconds() }
	b.set("cpu_percent", percent(total(used)))
	b.set("client_percent", percent(used["client"]))
	b.set("servers_percent", percent(total(used)-used["client"]))
	return nil
}

// runMemory: tasks that are due soon enough to be held ready.
func runMemory(ctx context.Context, b *bench) error {
	if err := b.work(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	n := b.sizes.Armed
	b.run.N = n
	before, err := b.memory(ctx)
	if err != nil {
		return err
	}
	if _, err := b.Load(ctx, b.fill(peer.Load{N: n, After: 30 * time.Minute, Spread: 20 * time.Minute})); err != nil {
		return err
	}
	if err := rest(ctx, b.sizes.Settle); err != nil {
		return err
	}
	after, err := b.memory(ctx)
	if err != nil {
		return err
	}
	for key, bytes := range after {
		b.set(key, float64(bytes-before[key])/float64(n))
	}
	return nil
}

// memory gives the bytes in memory of the client and of its servers, and what
// Redis says that it uses.
func (b *bench) memory(ctx context.Context) (map[string]int64, error) {
	quiet()
	used, err := b.usage()
	if err != nil {
		return nil, err
	}
	bytes := map[string]int64{}
	for _, p := range b.Processes() {
		key := "servers_bytes"
		if p.Name == "client" {
			key = "client_bytes"
		}
		bytes[key] += used[p.Name].Memory
		if p.Name == server.Redis.Name {
			n, err := server.RedisInfo(ctx, p.Addr, "used_memory")
			if err != nil {
				return nil, err
			}
			bytes["redis_bytes"] += n
		}
	}
	return bytes, nil
}

// metered is a peer that reports metrics.
type metered interface {
	Metric(ctx context.Context, name, label string) (float64, error)
}

// growthSoonest is when the first parked task of growth is due: after the run.
const growthSoonest = 2 * time.Hour

// runGrowth: the same store with more and more parked rows.
func runGrowth(ctx context.Context, b *bench) error {
	m, ok := b.Peer.(metered)
	if !ok {
		return errors.New("growth is told by the product's metrics, and this peer has none")
	}
	if err := b.work(ctx); err != nil {
		return err
	}
	rows := 0
	var first string
	for _, size := range b.sizes.Grown {
		more := b.fill(parked(max(0, size-rows), 0, 0))
		more.Near, more.After = true, growthSoonest
		if _, err := b.Load(ctx, more); err != nil {
			return fmt.Errorf("grow to %d: %w", size, err)
		}
		rows = max(rows, size)
		prefix := fmt.Sprintf("%d_", size)
		if err := rest(ctx, b.sizes.IdleSettle); err != nil {
			return err
		}
		if err := b.written(ctx, prefix); err != nil {
			return err
		}
		tick, err := scanPass(ctx, m)
		if err != nil {
			return err
		}
		b.set(prefix+"scan_ms", tick)
		if err := b.submit(ctx, prefix, parked(b.sizes.Singles, callers, 1)); err != nil {
			return err
		}
		rows += b.sizes.Singles + max(200, b.sizes.Singles/10)
		if first == "" {
			first = prefix
		}
		b.set("scan_ratio", tick/b.run.Values[first+"scan_ms"])
		b.set("submit_ratio", b.run.Values[first+"per_s"]/b.run.Values[prefix+"per_s"])
	}
	b.run.N = rows
	return nil
}

// written waits until MariaDB has written the loaded rows to its tables. For
// millions of rows that takes minutes and a good part of a small machine, so a
// scan meanwhile would measure the load, not the rows.
func (b *bench) written(ctx context.Context, prefix string) error {
	const (
		still    = 6 * time.Second // without a page written
		atMost   = 10 * time.Minute
		variable = "Innodb_buffer_pool_pages_flushed"
	)
	start := time.Now()
	for _, p := range b.Processes() {
		if p.Name != server.MariaDB.Name {
			continue
		}
		for last := int64(-1); ; {
			pages, err := server.MariaDBStatus(ctx, p.Addr, variable)
			if err != nil {
				return err
			}
			if pages == last {
				break
			}
			if time.Since(start) > atMost {
				return fmt.Errorf("MariaDB still writes after %v", atMost)
			}
			last = pages
			if err := rest(ctx, still); err != nil {
				return err
			}
		}
	}
	b.set(prefix+"written_s", time.Since(start).Seconds())
	return nil
}

// scanPass is the mean time, in ms, of a scanner's pass over a database, of four ticks.
func scanPass(ctx context.Context, m metered) (float64, error) {
	const passes = 4 * 8 // each tick has one for each of the databases
	read := func() (sum, n float64, err error) {
		sum, err = m.Metric(ctx, "toc_scan_seconds_sum", "")
		if err == nil {
			n, err = m.Metric(ctx, "toc_scan_seconds_count", "")
		}
		return sum, n, err
	}
	sum, n, err := read()
	if err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err := rest(ctx, 10*lookHow); err != nil {
			return 0, err
		}
		sum2, n2, err := read()
		if err != nil {
			return 0, err
		}
		if n2-n >= passes {
			return 1000 * (sum2 - sum) / (n2 - n), nil
		}
	}
	return 0, errors.New("the scanner did not tick four times")
}

// runNodes: the work of the product's nodes together.
func runNodes(ctx context.Context, b *bench) error {
	if err := b.work(ctx); err != nil {
		return err
	}
	if err := b.submit(ctx, "submit_", parked(b.sizes.Singles, callers, 1)); err != nil {
		return err
	}
	return b.drain(ctx, "drain_")
}

// runScripts: redis-benchmark calls the product's scripts.
func runScripts(ctx context.Context, b *bench) error {
	p, ok := b.Peer.(interface {
		RedisBenchmark(ctx context.Context, n int) (map[string]float64, error)
	})
	if !ok {
		return errors.New("this peer has no scripts")
	}
	b.run.N = b.sizes.Calls
	values, err := p.RedisBenchmark(ctx, b.sizes.Calls)
	for key, v := range values {
		b.set(key, v)
	}
	return err
}

// runKeep: tasks are submitted, fire and are purged, all at once and for long. What the last part of the time costs and how late its
// tasks are, beside the first part, shows what the rows that went leave behind.
func runKeep(ctx context.Context, b *bench) error {
	if err := b.work(ctx); err != nil {
		return err
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	n := b.sizes.KeepRate * int(b.sizes.Keep/time.Second)
	b.run.N = n
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var loaded peer.Loaded
	ended := make(chan error, 1)
	go func() {
		var err error
		loaded, err = b.Load(ctx, b.steady(n, b.sizes.KeepRate))
		ended <- err
	}()
	err := b.keep(ctx)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-ended)
	b.set("rate_per_s", float64(n)/loaded.Took.Seconds())
	return err
}

func (b *bench) keep(ctx context.Context) error {
	part := b.sizes.Keep / 6
	if err := b.during(ctx, "first_", part); err != nil {
		return err
	}
	if err := rest(ctx, b.sizes.Keep-2*part); err != nil {
		return err
	}
	if err := b.during(ctx, "last_", part); err != nil {
		return err
	}
	for _, key := range []string{"rows", "p99_ms", "cpu_us"} {
		if first := b.run.Values["first_"+key]; first > 0 {
			b.set("ratio_"+key, b.run.Values["last_"+key]/first)
		}
	}
	return nil
}

// during measures what fires in a part of the time, and the rows at its end.
func (b *bench) during(ctx context.Context, prefix string, long time.Duration) error {
	if err := b.Reset(ctx, 2*b.sizes.KeepRate*int(long/time.Second)); err != nil {
		return err
	}
	used, err := b.cpu(func() error { return rest(ctx, long) })
	if err != nil {
		return err
	}
	fired, err := b.Fired(ctx)
	if err != nil {
		return err
	}
	b.setPercentiles(prefix, fired.Late)
	b.setCPU(prefix, used, max(1, fired.Tasks))
	p, ok := b.Peer.(peer.Purged)
	if !ok {
		return nil
	}
	rows, err := p.Rows(ctx)
	b.set(prefix+"rows", float64(rows))
	return err
}
