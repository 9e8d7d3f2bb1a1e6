package configs

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/sharding"
)

// Validate checks every setting and the relations between them. The error is a
// join of all Problems, in the order of the tree.
func (c Config) Validate() error { return c.WithDefaults().check().err() }

// check is Validate for a Config that is complete.
func (c Config) check() problems {
	var ps problems
	c.checkNode(&ps)
	c.Store.check(&ps)
	c.Cluster.check(&ps, c.Store)
	c.Redis.check(&ps)
	c.checkEngine(&ps)
	c.Kafka.check(&ps)
	c.Tracing.check(&ps)
	checkIntake(&ps, c.Intake, c.Kafka.Clusters)
	checkBizTypes(&ps, c.BizTypes, c.Kafka.Clusters)
	if c.Cluster.Provider == ProviderConsul {
		c.checkShared(&ps)
	}
	var secrets problems
	c.checkSecrets(&secrets)
	for _, p := range secrets {
		if !ps.has(p.Key) { // one word about each is enough
			ps = append(ps, p)
		}
	}
	return ps
}

// checkShared refuses what several nodes cannot share.
func (c Config) checkShared(ps *problems) {
	ps.require(c.Store.Driver != DriverSQLite, "store.driver",
		"sqlite is one process's, and cluster.provider is consul; write mysql")
	ps.require(c.Node.Name == "" || !nodeName.MatchString(c.Node.Name) || consulNode.MatchString(c.Node.Name), "node.name",
		"%s is not a name for Consul; write letters, digits or _ . -", quote(c.Node.Name))
	if slices.Contains(c.Redis.Addrs, RedisEmbedded) {
		for i, b := range c.BizTypes {
			ps.require(b.Mode != ModeRedis, fmt.Sprintf("biz_types[%d].mode", i),
				"redis needs a Redis that all nodes reach, and redis.addrs is embedded; write its host:port there")
		}
	}
}

func (c Config) checkNode(ps *problems) {
	ps.require(nodeName.MatchString(c.Node.Name), "node.name",
		"%s is not a name; write 1 to 128 visible ASCII characters, no spaces", quote(c.Node.Name))
	ps.require(isHostPort(c.HTTP.Listen), "http.listen",
		"%s %s; write 127.0.0.1:8080, or :8080 for all interfaces", quote(c.HTTP.Listen), addressFault(c.HTTP.Listen))
	host, _, _ := net.SplitHostPort(c.HTTP.Advertise)
	ps.require(c.HTTP.Advertise == "" || isHostPort(c.HTTP.Advertise) && host != "" ||
		isWebURL(c.HTTP.Advertise) && hasNoMore(c.HTTP.Advertise), "http.advertise",
		"%s %s; write the address that other nodes reach, 10.0.0.5:8080, or a URL with http or https", quote(hideURL(c.HTTP.Advertise)), addressFault(c.HTTP.Advertise))
	for i, token := range c.HTTP.Tokens {
		ps.require(visible.MatchString(token), fmt.Sprintf("http.tokens[%d]", i),
			"is not a token; write visible ASCII characters, at least one, no spaces")
	}
	atLeast(ps, "http.max_connections", c.HTTP.MaxConnections, 0)
}

// checkEngine checks what lies between the store and the processors.
func (c Config) checkEngine(ps *problems) {
	_, err := ParseSchedule(c.Scan.Schedule)
	ps.require(err == nil, "scan.schedule",
		"%s is not a schedule (%v); write @every 10s, or a cron spec such as */10 * * * * *", quote(c.Scan.Schedule), err)
	ps.require(c.Scan.Lookahead > 0, "scan.lookahead", "%v is too little; write the time between two ticks, 10s", c.Scan.Lookahead)
	within(ps, "scan.batch", c.Scan.Batch, 1, 10000)
	atLeast(ps, "queue.capacity", c.Queue.Capacity, 1)
	if c.Clock.MaxSkew != 0 {
		atLeast(ps, "clock.max_skew", c.Clock.MaxSkew, 10*time.Millisecond)
	}
	atLeast(ps, "shutdown.drain", c.Shutdown.Drain, 0)
}

func (r Redis) check(ps *problems) {
	ps.require(len(r.Addrs) > 0, "redis.addrs", "is empty; write [embedded], or host:port of each server")
	ps.require(r.Mode != RedisSingle || len(r.Addrs) < 2 || slices.Contains(r.Addrs, RedisEmbedded), "redis.addrs",
		"has %d addresses and redis.mode is single; write one, or mode sentinel or cluster", len(r.Addrs))
	for i, addr := range r.Addrs {
		key := fmt.Sprintf("redis.addrs[%d]", i)
		if addr == RedisEmbedded {
			ps.require(len(r.Addrs) == 1 && r.Mode == RedisSingle, key, "embedded stands alone, and in mode single; write host:port")
			continue
		}
		hint := ""
		if strings.HasPrefix(addr, "rediss://") {
			hint = ", with redis.tls for TLS"
		}
		ps.require(isHostPort(addr), key, "%s %s; write 127.0.0.1:6379, or embedded%s", quote(hideURL(addr)), addressFault(addr), hint)
	}
	r.TLS.check(ps, "redis.tls")
	ps.require(!r.TLS.IsOn() || !slices.Contains(r.Addrs, RedisEmbedded), "redis.tls",
		"redis.addrs is embedded, which no connection reaches; leave tls out, or write host:port there")
	ps.oneOf("redis.mode", r.Mode, RedisSingle, RedisSentinel, RedisCluster)
	ps.require(r.Mode != RedisSentinel || masterName.MatchString(r.Master), "redis.master",
		"%s is not a name; write what the sentinels call the master, letters, digits or _ . -", quote(r.Master))
	atLeast(ps, "redis.db", r.DB, 0)
	ps.require(r.Mode != RedisCluster || r.DB <= 0, "redis.db", "%d does not exist in a Redis cluster; write 0", r.DB)
	ps.require(keyPart.MatchString(r.Prefix) || r.Prefix == "", "redis.prefix",
		"%s is not a prefix; write at most 64 letters, digits or _ . : -", quote(r.Prefix))
	// Less would take a busy moment for a fault; more is a net that catches nothing.
	within(ps, "redis.sweep_after", r.SweepAfter, 100*time.Millisecond, 24*time.Hour)
	within(ps, "redis.outage_after", r.OutageAfter, 100*time.Millisecond, 24*time.Hour)
}

func (t Tracing) check(ps *problems) {
	address := quote(hideURL(t.OTLP))
	isURL := isWebURL(t.OTLP)
	ps.require(t.OTLP == "" || isURL || isHostPort(t.OTLP) && !strings.HasPrefix(t.OTLP, ":"), "tracing.otlp",
		"%s is not the address of a collector; write http://127.0.0.1:4318, with the port on which it takes OTLP over HTTP", address)
	ps.require(!isURL || !strings.ContainsAny(t.OTLP, "?#"), "tracing.otlp",
		"%s has more than a path; write the URL to which /v1/traces is added, without ? and #", address)
	ps.require(t.Sample >= 0 && t.Sample <= 1, "tracing.sample", "%v is out of range; write 0 to 1", t.Sample) // NaN is not
}

func (c Cluster) check(ps *problems, store Store) {
	ps.oneOf("cluster.provider", c.Provider, ProviderSingle, ProviderConsul)
	if store.hasLayout() { // else there is nothing to compare with
		least, most := store.Databases, store.Layout()
		ps.require(sharding.IsPowerOfTwo(c.Partitions) && c.Partitions >= least && c.Partitions <= most, "cluster.partitions",
			"%d does not suit %d databases of %d tables; write a power of two from %d to %d", c.Partitions, store.Databases, store.TablesPerDatabase, least, most)
	}
	ps.oneOf("cluster.on_consul_loss", c.OnConsulLoss, ConsulLossStop, ConsulLossKeep)
	ps.require(isHostPort(c.Consul.Address) || isWebURL(c.Consul.Address), "cluster.consul.address",
		"%s is not an address; write 127.0.0.1:8500, or a URL with http or https", quote(hideURL(c.Consul.Address)))
	ps.require(c.Consul.Token == "" || visible.MatchString(c.Consul.Token), "cluster.consul.token",
		"is not a token; write visible ASCII characters, no spaces")
	if c.Consul.TokenFile != "" {
		ps.require(c.Consul.Token == "", "cluster.consul.token", "a file is given for it, too; set one of them")
		_, err := c.Consul.ReadToken()
		ps.require(err == nil, "cluster.consul.token"+fileSuffix, "%v", err)
	}
	ps.require(consulPrefix.MatchString(c.Consul.Prefix), "cluster.consul.prefix",
		"%s is not a prefix; write 1 to 64 letters, digits or _ . -", quote(c.Consul.Prefix))
	within(ps, "cluster.consul.ttl", c.Consul.TTL, time.Second, time.Minute)
	c.Consul.TLS.check(ps, "cluster.consul.tls")
	ps.require(!c.Consul.TLS.IsOn() || !strings.HasPrefix(strings.ToLower(c.Consul.Address), "http://"), "cluster.consul.address",
		"%s is plain text, and cluster.consul.tls is set; write https, or host:port", quote(hideURL(c.Consul.Address)))
}

var (
	visible      = regexp.MustCompile(`^[!-~]+$`)
	keyPart      = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)
	masterName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`) // as Sentinel has it
	consulPrefix = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	consulNode   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
)

// isHostPort accepts an empty host and port 0.
func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '@' }) {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// addressFault says what is wrong with an address that isHostPort does not accept.
func addressFault(addr string) string {
	if n, err := strconv.ParseUint(addr[strings.LastIndexByte(addr, ':')+1:], 10, 64); err == nil && n > math.MaxUint16 &&
		strings.Contains(addr, ":") {
		return fmt.Sprintf("has the port %d, and the highest is %d", n, math.MaxUint16)
	}
	return "is not host:port"
}

// isWebURL accepts an absolute URL with http or https and a host.
func isWebURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && slices.Contains([]string{"http", "https"}, u.Scheme) && u.Hostname() != ""
}

// hasNoMore reports whether a URL is a scheme and a host, and nothing else.
func hasNoMore(address string) bool {
	_, host, _ := strings.Cut(address, "://")
	return !strings.ContainsAny(strings.TrimSuffix(host, "/"), "@/?#")
}
