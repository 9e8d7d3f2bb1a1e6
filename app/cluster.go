package app

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/cluster"
	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/configs"
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
	log, h := a.component("cluster"), &host{App: a}
	if a.cfg.Cluster.Provider != configs.ProviderConsul {
		return cluster.NewSingle(cluster.SingleConfig{
			Node: a.node, Layout: a.layout, Locker: a.store, Host: h, Local: a.cfg.Store.Driver == configs.DriverSQLite,
			Logger: log,
		}), nil
	}
	c := a.cfg.Cluster.Consul
	a.secrets.consul.Store(&c)
	client, err := a.tlsClient(consulSection, c.TLS)
	if err != nil {
		return nil, err
	}
	consul := consulConfig(c, client, a.opts.outside.Dial)
	return cluster.NewConsul(cluster.ConsulConfig{
		Node: a.node, Layout: a.layout, Consul: consul, Token: a.secrets.consulToken, Prefix: c.Prefix, TTL: c.TTL,
		KeepOnLoss: a.cfg.Cluster.OnConsulLoss == configs.ConsulLossKeep,
		Locker:     a.store, DrainFor: a.cfg.Shutdown.Drain, Host: h, Logger: log,
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

// secrets are the secrets in force. A change of the configuration may replace them.
type secrets struct {
	cluster *configs.Cluster
	tokens  atomic.Pointer[[]string]       // http.tokens
	consul  atomic.Pointer[configs.Consul] // of which the token counts
}

// consulToken returns the ACL token in force.
func (s *secrets) consulToken() (string, error) {
	token, err := s.consul.Load().ReadToken()
	if err != nil {
		return "", fmt.Errorf("cluster.consul.token_file: %w", err)
	}
	return token, nil
}

// httpTokens are the bearer tokens in force.
func (s *secrets) httpTokens() []string { return *s.tokens.Load() }

// peerKeys are the secrets by which nodes prove their identity to each other.
func (s *secrets) peerKeys() []string {
	switch {
	case s.cluster.Provider == configs.ProviderSingle:
		return nil // there are no others
	case s.cluster.Secret != "":
		return []string{s.cluster.Secret}
	}
	return s.httpTokens()
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
