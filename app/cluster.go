package app

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/outside"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/worker"
)

// membership gives this node its partitions: cluster.Single or cluster.Consul.
type membership interface {
	Ownership() *cluster.Ownership
	SetAddress(addr string)
	Acquire(ctx context.Context) error
	Run(ctx context.Context) error
	Leave(ctx context.Context) error
	Release()
	Waits() []cluster.Wait
	Members() []cluster.Member
	Owner(partition int) (cluster.Member, bool)
	Lost() string
}

func (a *App) newMembership() (membership, error) {
	log := a.component("cluster")
	if a.cfg.Cluster.Provider != configs.ProviderConsul {
		return cluster.NewSingle(cluster.SingleConfig{
			Node: a.node, Layout: a.layout, Locker: a.store, Prepare: a.prepare, Local: a.cfg.Store.Driver == configs.DriverSQLite,
			Waiting: a.beginWaiting, Logger: log,
		}), nil
	}
	c := a.cfg.Cluster.Consul
	a.consul.Store(&c)
	client, err := a.tlsClient(consulSection, c.TLS)
	if err != nil {
		return nil, err
	}
	consul := consulConfig(c, client, a.opts.outside.Dial)
	return cluster.NewConsul(cluster.ConsulConfig{
		Node: a.node, Layout: a.layout, Consul: consul, Token: a.consulToken, Prefix: c.Prefix, TTL: c.TTL,
		KeepOnLoss: a.cfg.Cluster.OnConsulLoss == configs.ConsulLossKeep,
		Locker:     a.store, Prepare: a.prepare, Drain: a.handOver, DrainFor: a.cfg.Shutdown.Drain, Unreachable: a.unreachableDatabases,
		Died: func() { a.timer.Reread() }, Waiting: a.beginWaiting,
		Worker: func(n int) {
			if err := a.ids.SetWorker(n); err != nil {
				log.Error("worker number refused", "error", err) // impossible: the cluster leases from the same range
			}
		},
		Logger: log,
	}), nil
}

const consulSection = "cluster.consul.tls"

// consulConfig is how to reach the agent. With an https address and no settings of TLS, the variables of Consul
// (CONSUL_CACERT and so on) hold.
func consulConfig(c configs.Consul, client *tlsclient.Client, out outside.Dial) *api.Config {
	consul := api.DefaultConfig()
	consul.Address = c.Address
	dial := client.Dialer(10*time.Second, out)
	if client.IsOn() {
		consul.Scheme = "https"
		consul.Transport.DialTLSContext = dial
		consul.Transport.Proxy = nil // through a proxy net/http would do TLS itself
	} else {
		consul.Transport.DialContext = dial
	}
	return consul
}

// consulToken returns the ACL token in force.
func (a *App) consulToken() (string, error) {
	token, err := a.consul.Load().ReadToken()
	if err != nil {
		return "", fmt.Errorf("cluster.consul.token_file: %w", err)
	}
	return token, nil
}

// onlyNode is the intake.Cluster of a single node. If it has lost a database to another process, it decides
// nothing about its tasks.
type onlyNode struct{ owners }

func (onlyNode) Peers() []intake.Peer { return nil }

func (onlyNode) Undelivered(string, uint64) func() bool { return nil }

func (onlyNode) Owner(partition int) (intake.Peer, error) {
	return nil, intake.NotBegun("partition %d is not worked now: this node does not hold its database", partition)
}

// httpTokens are the bearer tokens in force.
func (a *App) httpTokens() []string { return *a.tokens.Load() }

// peerKeys are the secrets by which nodes prove their identity to each other.
func (a *App) peerKeys() []string {
	switch {
	case a.cfg.Cluster.Provider == configs.ProviderSingle:
		return nil // there are no others
	case a.cfg.Cluster.Secret != "":
		return []string{a.cfg.Cluster.Secret}
	}
	return a.httpTokens()
}

func (a *App) newForwarder(owned owners) *forward.Forwarder {
	return forward.New(forward.Config{
		Node: a.node, Layout: a.layout, Proof: a.proof, Dial: a.opts.outside.Dial, Logger: a.component("forward"),
		Cluster: struct {
			owners
			membership
		}{owned, a.cluster},
	})
}

// handOver calls idle for each of these partitions once none of its tasks runs or waits here, until ctx ends.
// This node owns them no longer, so no tasks are added.
func (a *App) handOver(ctx context.Context, partitions []int, idle func(partition int)) {
	lost := make(map[int]bool, len(partitions))
	for _, p := range partitions {
		lost[p] = true
	}
	a.queue.DropPartitions(func(p int) bool { return lost[p] })
	var wg sync.WaitGroup
	for _, p := range partitions {
		wg.Go(func() {
			if a.waitPartition(ctx, p) {
				idle(p)
			} else {
				a.runner.Abandon(p)
			}
		})
	}
	wg.Wait()
}

// cutOff is how long a partition waits for running tasks when its database is unreachable: the outcomes cannot
// be recorded, so waiting longer is pointless.
const cutOff = time.Second

// waitPartition reports whether another node can take the partition now.
func (a *App) waitPartition(ctx context.Context, p int) bool {
	down := a.isUnreachable(a.layout.PartitionDatabase(p))
	waitCtx := ctx
	if down {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeout(ctx, cutOff)
		defer cancel()
	}
	empty := a.queue.WaitPartition(waitCtx, p) == nil && a.timer.WaitPartition(waitCtx, p) == nil
	return empty || down && ctx.Err() == nil
}

// advertised is the address at which other nodes reach this one.
func (a *App) advertised() string {
	if a.cfg.HTTP.Advertise != "" {
		return a.cfg.HTTP.Advertise
	}
	host, port, err := net.SplitHostPort(a.Addr())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return a.Addr()
	}
	name, err := os.Hostname()
	if err != nil {
		return a.Addr()
	}
	return net.JoinHostPort(name, port)
}

// owners is what the parts ask before they work on a partition.
type owners interface {
	Owns(partition int) bool
	Watch() <-chan struct{}
	worker.Ownership
}

// audited reports each answer.
type audited struct {
	*cluster.Ownership
	report func(partition int, owned bool)
}

func (a audited) Owns(partition int) bool { return a.Term(partition) != 0 }

func (a audited) Term(partition int) uint64 {
	term := a.Ownership.Term(partition)
	a.report(partition, term != 0)
	return term
}

func (a *App) owners() owners {
	o := a.cluster.Ownership()
	if a.opts.audit == nil {
		return o
	}
	return audited{o, a.opts.audit}
}
