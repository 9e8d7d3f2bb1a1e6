package soak_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
	"github.com/timeoutcenter/toc/sharding"
)

// operated describes a center of real processes, as a user configures it by default, for figures about what operators do.
func operated(b *testing.B, nodes int, types ...configs.BizType) *fleet {
	consul := testrig.Consul(b)
	return newFleet(b, sharedServers(b, consul.Addr(), consul.Prefix()), nodes, func(cfg *configs.Config) {
		plain := configs.Default()
		cfg.Store.TablesPerDatabase, cfg.Cluster.Partitions = 128, 256
		cfg.Store.MySQL.MaxOpenConns = 8
		cfg.Scan, cfg.Redis.SweepAfter = plain.Scan, plain.Redis.SweepAfter
		cfg.BizTypes = types
	})
}

// typeOf is a business type of mode redis.
func typeOf(id uint64, name string) configs.BizType {
	b := configs.DefaultBizType()
	b.ID, b.Name, b.Mode, b.Processor = id, name, configs.ModeRedis, "ledger"
	return b
}

// eachShard runs plain SQL over all tables, in each database in its own goroutine. The text's %[1]s is a table; %[2]d its
// shard, %[3]d its number, %[4]d its database.
func (f *fleet) eachShard(text string) {
	f.t.Helper()
	list, err := app.Databases(f.cfg, false)
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, app.CloseDatabases(list)) }()
	g, ctx := errgroup.WithContext(context.WithoutCancel(f.t.Context()))
	for d, one := range list {
		g.Go(func() error {
			tx, err := one.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			for table := range f.cfg.Store.TablesPerDatabase {
				shard := d*f.cfg.Store.TablesPerDatabase + table
				if _, err := tx.ExecContext(ctx, fmt.Sprintf(text, sharding.TableName(table), shard, table, d)); err != nil {
					return err
				}
			}
			return tx.Commit()
		})
	}
	require.NoError(f.t, g.Wait())
}

// fill inserts about n tasks into all tables alike. values are those of biz_type, action_time, status, attempts, last_error
// and attribute, in MariaDB's SQL; seq counts the tasks of a table.
func (f *fleet) fill(n int, values string) {
	f.t.Helper()
	tables, databases := f.cfg.Store.TablesPerDatabase, f.cfg.Store.Databases
	perTable := n / (tables * databases)
	f.eachShard(fmt.Sprintf("INSERT INTO %%[1]s (job_id,biz_id,biz_type,action_time,status,attempts,last_error,attribute,gmt_modified) "+
		"SELECT ((%d+seq)<<23)|(%%[2]d<<10)|%d, (seq*%d+%%[3]d)*%d+%%[4]d, %s, UTC_TIMESTAMP(3) FROM seq_1_to_%d",
		time.Since(sharding.Epoch).Milliseconds()-1_000_000, sharding.HandWorker, tables, databases, values, perTable))
}

// count counts rows of all tables.
func (f *fleet) count(where string) (n int) {
	f.t.Helper()
	list, err := app.Databases(f.cfg, true)
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, app.CloseDatabases(list)) }()
	for _, d := range list {
		var k int
		require.NoError(f.t, d.DB.QueryRow("SELECT SUM(n) FROM ("+audit.EachTable(f.cfg.Store.TablesPerDatabase, "SELECT COUNT(*) n FROM %s WHERE "+where)+") AS x").Scan(&k))
		n += k
	}
	return n
}

// runsOf are the runs of all processes of tasks with an attribute, in the order of their starts. A run that its process did not
// end has ended with the process.
func (f *fleet) runsOf(attribute string) (runs []audit.Span) {
	f.t.Helper()
	for _, n := range f.nodes {
		for _, p := range n.processes {
			list, err := readLedger(p.dir, runsFile)
			require.NoError(f.t, err)
			for _, s := range list {
				if s.Seen.Attribute != audit.TextHash(attribute) {
					continue
				}
				if s.Till == 0 && !p.Ended.IsZero() {
					s.Till = p.Ended.UnixNano()
				}
				runs = append(runs, s)
			}
		}
	}
	slices.SortFunc(runs, func(a, b audit.Span) int { return cmp.Compare(a.From, b.From) })
	return runs
}

// awaitRuns waits until so many different tasks have run.
func (f *fleet) awaitRuns(attribute string, n int, patience time.Duration) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		tasks := map[uint64]bool{}
		for _, s := range f.runsOf(attribute) {
			tasks[s.Key] = true
		}
		if len(tasks) >= n {
			return
		}
		require.True(f.t, time.Now().Before(deadline), "%d of %d tasks have run after %s\n%s", len(tasks), n, patience, f.tails())
	}
}

// p99 is how late the runs that were due in some time started.
func p99(runs []audit.Span, from, till time.Time) time.Duration {
	var late []time.Duration
	for _, s := range runs {
		if at := time.UnixMilli(s.Seen.Action); !at.Before(from) && at.Before(till) {
			late = append(late, s.Late())
		}
	}
	if len(late) == 0 {
		return -1
	}
	slices.Sort(late)
	return late[len(late)*99/100]
}

// anyTen counts the runs that start within any ten seconds from some time to another: the least and the most, a second.
func anyTen(runs []audit.Span, from, till time.Time) (least, most float64) {
	const window = 10 * time.Second
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(runs, t.UnixNano(), func(s audit.Span, t int64) int { return cmp.Compare(s.From, t) })
		return i
	}
	for begin := from; !begin.Add(window).After(till); begin = begin.Add(50 * time.Millisecond) {
		n := float64(at(begin.Add(window))-at(begin)) / window.Seconds()
		if most = max(most, n); begin.Equal(from) || n < least {
			least = n
		}
	}
	return least, most
}

// atATime is the greatest number of runs at the same time.
func atATime(runs []audit.Span) (most int) {
	ends := map[int64]int{}
	for _, s := range runs {
		ends[s.From]++
		ends[s.Till]--
	}
	n := 0
	for _, at := range slices.Sorted(maps.Keys(ends)) {
		n += ends[at]
		most = max(most, n)
	}
	return most
}

// submitEach submits tasks of some types, two seconds ahead, until stop is closed: so many a second of each type, each with the
// type's name in its attribute.
func (f *fleet) submitEach(wg *sync.WaitGroup, stop <-chan struct{}, perSecond int, types ...string) {
	const every = 100 * time.Millisecond
	next := uint64(0)
	wg.Go(func() {
		for at := time.Now(); ; at = at.Add(every) {
			select {
			case <-stop:
				return
			case <-time.After(time.Until(at)):
			}
			n := perSecond / int(time.Second/every)
			var list []client.Submit
			for i := range n {
				due := at.Add(2*time.Second + time.Duration(i)*every/time.Duration(n))
				for _, name := range types {
					next++
					list = append(list, client.Submit{BizType: name, BizID: next, ActionTime: due, Attribute: quick(name)})
				}
			}
			results, err := f.anyAPI().SubmitBatch(f.t.Context(), list)
			for _, r := range results {
				if r.Err != nil {
					f.t.Errorf("submit: %v", r.Err)
				}
			}
			if err != nil {
				f.t.Errorf("submit: %v", err)
			}
		}
	})
}

// quick is the attribute of the quick tasks of a business type.
func quick(bizType string) string {
	return traffic.SteadyPrefix + map[string]string{"held": "0s", "other": "0ms"}[bizType]
}

// ownerOfFirst is the node that runs operations.
func (f *fleet) ownerOfFirst() *node {
	f.t.Helper()
	c, err := f.anyAPI().Cluster(f.t.Context())
	require.NoError(f.t, err)
	for _, m := range c.Nodes {
		if slices.Contains(m.Partitions, 0) {
			return f.nodes[slices.IndexFunc(f.nodes, func(n *node) bool { return n.name == m.Name })]
		}
	}
	require.Fail(f.t, "nobody has partition 0")
	return nil
}
