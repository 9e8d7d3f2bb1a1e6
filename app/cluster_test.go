package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// inCluster is a configuration for nodes that meet in Consul.
func inCluster(t *testing.T, addr, prefix string) configs.Config {
	return clustered(onMySQL(t, fewTables(t)), addr, prefix)
}

// clustered moves a configuration on MySQL into a cluster.
func clustered(cfg configs.Config, addr, prefix string) configs.Config {
	cfg.Cluster.Provider = configs.ProviderConsul
	cfg.Cluster.Consul.Address, cfg.Cluster.Consul.Prefix = addr, prefix
	cfg.Redis.Addrs = []string{"127.0.0.1:1"} // nothing of mode redis here
	cfg.HTTP.Tokens = []string{"let-me-in-0123456"}
	return cfg
}

// runNodes starts nodes one after the other and waits until each has its share.
func runNodes(t *testing.T, cfg configs.Config, n int, opts ...app.Option) []*center {
	t.Helper()
	nodes := make([]*center, n)
	for i := range nodes {
		cfg.Node.Name = fmt.Sprintf("node-%d", i)
		nodes[i] = run(t, cfg, opts...)
	}
	awaitShares(t, nodes)
	return nodes
}

func askHTTP(c *center) *client.Client {
	return client.New("http://"+c.Addr(), client.WithToken("let-me-in-0123456"),
		client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}))
}

// awaitShares waits until every node says that these and no others share all
// partitions evenly.
func awaitShares(t *testing.T, nodes []*center) {
	t.Helper()
	await.Success(t, func() error {
		var off []string
		for _, n := range nodes {
			c, err := askHTTP(n).Cluster(t.Context())
			if err != nil {
				return err
			}
			even := len(c.Nodes) == len(nodes)
			for _, m := range c.Nodes {
				share := c.Partitions / len(nodes)
				even = even && (len(m.Partitions) == share || len(m.Partitions) == share+1)
			}
			if !even {
				off = append(off, fmt.Sprintf("%+v", c))
			}
		}
		if len(off) == 0 {
			return nil
		}
		return errors.New(strings.Join(off, "\n"))
	}, "shares are even")
}

// Whichever node is asked, the owner of the task decides.
func TestAnyNodeServesAnyRequest(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix()+"toc")
	cfg.Scan.Schedule, cfg.Scan.Lookahead = "@every 1m", time.Minute
	fired := newLedger()
	open := make(chan struct{})
	inside := make(chan struct{}, 100)
	gate := configs.DefaultBizType()
	gate.ID, gate.Name, gate.Processor = 2, "gate", "gate"
	cfg.BizTypes = append(cfg.BizTypes, gate)
	nodes := runNodes(t, cfg, 3, app.WithProcessor("ledger", fired),
		app.WithProcessor("gate", processorFunc(func(context.Context, task.Task) error {
			inside <- struct{}{}
			<-open
			return nil
		})))
	ctx := t.Context()

	t.Run("what is due before the next tick fires on its owner", func(t *testing.T) {
		due := submitSpread(t, nodes[0], 200, 100*time.Millisecond, time.Second)
		fired.awaitAll(t, due)
		_, twice := fired.lateness(t, due)
		require.Zero(t, twice)
	})

	t.Run("changes", func(t *testing.T) {
		for i := range 12 { // each node with a task of each of the four partitions
			s, err := nodes[i%3].Desk().Submit(ctx, intake.Submit{BizType: "order_close", BizID: uint64(i), When: intake.In(time.Hour)})
			require.NoError(t, err)
			id := s.Task.JobID
			attribute, delay, before := "changed", 2*time.Hour, time.Now()
			row, err := askHTTP(nodes[(i+1)%3]).Reschedule(ctx, id, client.Change{Delay: &delay, Attribute: &attribute})
			require.NoError(t, err)
			require.Equal(t, attribute, row.Attribute)
			require.WithinRange(t, row.ActionTime.Time(), before.Add(delay).Truncate(time.Millisecond), task.CeilMilli(time.Now().Add(delay)))
			require.NoError(t, nodes[(i+2)%3].Desk().Cancel(ctx, id))
			requireOutcome(t, task.ConflictCancelled, askHTTP(nodes[i%3]).Cancel(ctx, id))
		}
	})

	t.Run("a client finds the nodes by their service in Consul", func(t *testing.T) {
		c := client.New("consul://"+consul.Addr()+"/"+cfg.Cluster.Consul.Prefix, client.WithToken("let-me-in-0123456"),
			client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}))
		await.That(t, func() bool { // a node reports after a while that it is ready
			got, err := c.Cluster(ctx)
			return err == nil && len(got.Nodes) == 3
		}, "three nodes are found")
	})

	t.Run("what runs", func(t *testing.T) {
		s, err := nodes[0].Desk().Submit(ctx, intake.Submit{BizType: "gate", BizID: rand.Uint64(), When: intake.In(0)})
		require.NoError(t, err)
		await.Receive(t, inside, "it runs")
		owners := map[string]bool{}
		for _, n := range nodes {
			requireOutcome(t, task.ConflictRunning, askHTTP(n).Cancel(ctx, s.Task.JobID))
			why, err := askHTTP(n).Why(ctx, s.Task.JobID)
			require.NoError(t, err)
			require.Equal(t, "running", why.Where)
			owners[why.Node] = true
		}
		require.Len(t, owners, 1, "all ask the same one")
		close(open)
	})
}

func requireOutcome(t *testing.T, want task.Conflict, err error) {
	t.Helper()
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Equal(t, string(want), refused.Outcome)
}

// Each node compares its clock with those of the others and of the databases, which are the same one here.
func TestNodesCompareTheirClocks(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	nodes := runNodes(t, inPatientCluster(t, consul.Addr(), consul.Prefix()+"toc"), 2, app.WithProcessor("ledger", newLedger()))
	for i, n := range nodes {
		await.Success(t, func() error {
			request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+n.Addr()+"/metrics", nil)
			require.NoError(t, err)
			request.Header.Set("Authorization", "Bearer let-me-in-0123456")
			answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
			require.NoError(t, err)
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			// However slow the answer is, 0 is among the differences that it allows, and the least one is shown.
			for _, other := range []string{fmt.Sprintf(`name="node-%d",of="node"`, 1-i), `name="0",of="database"`} {
				if !regexp.MustCompile(`(?m)^toc_clock_skew_seconds\{` + other + `\} -?(0|0\.0\d*)$`).Match(text) {
					return errors.New(other)
				}
			}
			return nil
		}, "node %d knows the differences", i)
	}
}

// An owner that cannot be reached is no reason to guess.
func TestOwnerOutOfReach(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix()+"toc")
	lonely := cfg
	lonely.HTTP.Advertise = "127.0.0.1:1"
	lonely.Node.Name = "lonely"
	far := run(t, lonely, app.WithProcessor("ledger", newLedger()))
	cfg.Node.Name = "near"
	near := run(t, cfg, app.WithProcessor("ledger", newLedger()))
	awaitShares(t, []*center{far, near})

	refused, made := 0, 0
	for i := range uint64(4) { // a task of each partition
		s, err := near.Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: i, When: intake.In(time.Hour)})
		require.NoError(t, err)
		path := fmt.Sprintf("http://%s/v1/tasks/%d/cancel", near.Addr(), s.Task.JobID)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer let-me-in-0123456")
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		row, err := near.Desk().Get(t.Context(), s.Task.JobID)
		require.NoError(t, err)
		why, err := askHTTP(near).Why(t.Context(), s.Task.JobID)
		require.NoError(t, err)
		require.Equal(t, "near", why.Node, "it tells what it knows")
		switch answer.StatusCode {
		case http.StatusOK:
			made++
			require.Equal(t, task.Cancelled, row.Status)
		case http.StatusServiceUnavailable:
			refused++
			require.NotEmpty(t, answer.Header.Get("Retry-After"))
			require.Equal(t, task.Pending, row.Status)
			require.Regexp(t, `^partition \d+ is owned by node lonely, which has not answered \(.*refused\)`, why.Because[0])
			require.NoError(t, far.Desk().Cancel(t.Context(), s.Task.JobID), "its owner decides")
		default:
			require.Failf(t, "unexpected answer", "%s", answer.Status)
		}
	}
	require.NotZero(t, refused)
	require.NotZero(t, made)
}

// Without Consul partitions stop or go on, as is configured; submits are accepted
// all the time, and all is well again once it is back.
func TestConsulAway(t *testing.T) {
	t.Parallel()
	for _, onLoss := range []string{configs.ConsulLossStop, configs.ConsulLossKeep} {
		t.Run(onLoss, func(t *testing.T) {
			t.Parallel()
			consul := testrig.StartConsul(t)
			cfg := inCluster(t, consul.Addr(), "toc")
			cfg.Cluster.OnConsulLoss = onLoss
			fired := newLedger()
			nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", fired))

			consul.Kill()
			awaitTrouble(t, nodes[0], "consul")
			awaitTrouble(t, nodes[1], "consul")
			due := submitSpread(t, nodes[0], 100, 0, time.Second)
			switch onLoss {
			case configs.ConsulLossKeep:
				fired.awaitAll(t, due)
			case configs.ConsulLossStop:
				time.Sleep(2 * time.Second) // real time: all are due, and ticks pass
				require.Zero(t, fired.count(), "a partition was worked without its lock")
				s, err := nodes[0].Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: 7, When: intake.In(time.Hour)})
				require.NoError(t, err)
				require.ErrorIs(t, nodes[0].Desk().Cancel(t.Context(), s.Task.JobID), task.ErrUnavailable)
			}
			consul.Start()
			awaitNoTrouble(t, nodes[0], "consul")
			awaitNoTrouble(t, nodes[1], "consul")
			awaitShares(t, nodes)
			more := submitSpread(t, nodes[1], 100, 0, time.Second)
			fired.awaitAll(t, merged(due, more))
			if onLoss == configs.ConsulLossStop {
				_, twice := fired.lateness(t, merged(due, more))
				require.Zero(t, twice)
			}
		})
	}
}

// A node hands its partitions over while it drains, and keeps those whose tasks
// still run.
func TestLeavingNodeKeepsWhatRuns(t *testing.T) {
	t.Parallel()
	consul := testrig.Consul(t)
	cfg := inPatientCluster(t, consul.Addr(), consul.Prefix()+"toc")
	open := make(chan struct{})
	ran := make(chan uint64, 100)
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", processorFunc(func(_ context.Context, row task.Task) error {
		ran <- row.JobID
		<-open
		return nil
	})))
	mine, err := askHTTP(nodes[0]).Cluster(t.Context())
	require.NoError(t, err)
	layout := app.Layout(cfg.WithDefaults())
	owned := mine.Nodes[slices.IndexFunc(mine.Nodes, func(n client.Node) bool { return n.Name == nodes[0].Node() })].Partitions
	biz := rand.Uint64()
	for !slices.Contains(owned, layout.Partition(layout.Shard(biz))) {
		biz = rand.Uint64()
	}
	s, err := nodes[1].Desk().Submit(t.Context(), intake.Submit{BizType: "order_close", BizID: biz, When: intake.In(0)})
	require.NoError(t, err)
	require.Equal(t, s.Task.JobID, await.Receive(t, ran, "it runs"))

	stopped := make(chan error, 1)
	go func() { stopped <- nodes[0].stop() }()
	held := layout.Partition(layout.Shard(biz))
	await.That(t, func() bool {
		c, err := askHTTP(nodes[1]).Cluster(t.Context())
		require.NoError(t, err)
		for _, n := range c.Nodes {
			if n.Name == nodes[1].Node() {
				return len(n.Partitions) == c.Partitions-1 && !slices.Contains(n.Partitions, held)
			}
		}
		return false
	}, "all partitions but the one whose task runs move")
	require.Empty(t, stopped)
	close(open)
	require.NoError(t, <-stopped)
	awaitShares(t, nodes[1:])
	require.Empty(t, ran, "it ran again")
	require.Equal(t, 1, countStatus(t, cfg, task.Processed))
}
