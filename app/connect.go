package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/internal/tracing/otlp"
	"github.com/timeoutcenter/toc/redistimer/slots"
)

// RedisAdvice asks the Redis of a configuration for all that toc uses: the login, a write and a script below redis.prefix on
// each server, the wake channel, and the memory. It returns what to set; the error is why Redis cannot be used.
func RedisAdvice(ctx context.Context, cfg configs.Config) (advice []string, err error) {
	cfg = cfg.WithDefaults()
	if isEmbedded(cfg.Redis) {
		return nil, nil
	}
	client := redisClient(cfg.Redis, tlsclient.New(redisSection, cfg.Redis.TLS.Files(), nil), nil)
	defer client.Close()
	s := slots.New(client, cfg.Redis.Prefix)
	s.Timeout = 2 * redisTimeout
	if err := s.TryAll(ctx, cfg.Cluster.Partitions); err != nil {
		why := "does not answer: " + err.Error()
		if answer := slots.Answer(err); answer != "" {
			why = "answers: " + answer
		}
		return nil, fmt.Errorf("redis %s %s; look at %s", strings.Join(cfg.Redis.Addrs, ", "), why, redisSetting(why))
	}
	list, told := s.Memories(ctx)
	if !told {
		advice = append(advice, "redis does not say whether it may evict slots; give its user the rights to INFO and CONFIG GET, as in docs/redis-engine.md")
	}
	for _, m := range list {
		if m.Evicts() {
			advice = append(advice, fmt.Sprintf("redis may evict slots: its maxmemory-policy is %s; set it to noeviction", m.Policy))
		}
		if m.IsFull() {
			advice = append(advice, fmt.Sprintf("redis is full: it uses %d bytes of %d; raise its maxmemory", m.Used, m.Max))
		}
	}
	return advice, nil
}

// redisSetting names the settings to look at after an answer of Redis, or none.
func redisSetting(why string) string {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(why, text) })
	}
	switch {
	case says("WRONGPASS", "NOAUTH", "invalid password"):
		return "redis.username and redis.password"
	case says("NOPERM", "The user executing the script"):
		return "redis.prefix and the rules of the user in docs/redis-engine.md"
	case says("cluster support disabled", "unknown command", "MOVED "):
		return "redis.mode"
	case says("redis.tls"):
		return "redis.tls"
	case says("does not answer"):
		return "redis.addrs"
	}
	return "the server"
}

// ConsulAdvice asks the Consul of a cluster for all that needs a right of the token: a service, a session, and a write below
// cluster.consul.prefix. Nothing stays. The error names what Consul refuses.
func ConsulAdvice(ctx context.Context, cfg configs.Config) (advice []string, err error) {
	cfg = cfg.WithDefaults()
	if cfg.Cluster.Provider != configs.ProviderConsul {
		return nil, nil
	}
	consul := cfg.Cluster.Consul
	conf := consulConfig(consul, tlsclient.New(consulSection, consul.TLS.Files(), nil), nil)
	if conf.Token, err = consul.ReadToken(); err != nil {
		return nil, fmt.Errorf("cluster.consul.token_file: %w", err)
	}
	client, err := api.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("cluster.consul: %w", err)
	}
	defer conf.HttpClient.CloseIdleConnections()
	read, write := (&api.QueryOptions{}).WithContext(ctx), (&api.WriteOptions{}).WithContext(ctx)
	key := cfg.Cluster.Consul.Prefix + "/check"
	for _, ask := range []struct {
		what string
		call func() error
	}{
		{"register a service", func() error {
			// It is critical, so nobody takes it for a node.
			id := consul.Prefix + "-check-" + strings.ToLower(rand.Text())
			err := client.Agent().ServiceRegisterOpts(&api.AgentServiceRegistration{ID: id, Name: consul.Prefix,
				Check: &api.AgentServiceCheck{TTL: "10s", Status: api.HealthCritical}},
				api.ServiceRegisterOpts{}.WithContext(ctx))
			if err == nil {
				err = client.Agent().ServiceDeregisterOpts(id, read)
			}
			return err
		}},
		{"make a session", func() error {
			session, _, err := client.Session().CreateNoChecks(&api.SessionEntry{Name: "toc config check", TTL: "10s"}, write)
			if err == nil {
				_, err = client.Session().Destroy(session, write)
			}
			return err
		}},
		{"write " + key, func() error {
			_, err := client.KV().Put(&api.KVPair{Key: key}, write)
			if err == nil {
				_, err = client.KV().Delete(key, write)
			}
			return err
		}},
	} {
		if failed := ask.call(); failed != nil {
			status, answered := errors.AsType[api.StatusError](failed)
			if !answered {
				return nil, fmt.Errorf("consul %s does not answer: %s: %w; look at cluster.consul.address", consul.Address, ask.what, failed)
			}
			err = errors.Join(err, fmt.Errorf("consul %s answers: %s: %d %s", cfg.Cluster.Consul.Address, ask.what, status.Code,
				strings.TrimSpace(status.Body)))
		}
	}
	if err != nil {
		err = fmt.Errorf("%w; give the token of cluster.consul.token_file the rights of docs/operating.md", err)
	}
	return nil, err
}

// TracingAdvice sends the collector of a configuration an export without spans.
func TracingAdvice(ctx context.Context, cfg configs.Config) (advice []string, err error) {
	if cfg.Tracing.OTLP == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := otlp.Try(ctx, cfg.Tracing.OTLP); err != nil {
		return nil, fmt.Errorf("tracing.otlp: %w", cmp.Or(ctx.Err(), err))
	}
	return nil, nil
}
