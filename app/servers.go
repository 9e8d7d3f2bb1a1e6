package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// RedisAdvice asks the Redis servers for an answer if a business type has mode redis. The error says why there is none.
func RedisAdvice(ctx context.Context, cfg configs.Config) ([]string, error) {
	cfg = cfg.WithDefaults()
	used := slices.ContainsFunc(cfg.BizTypes, func(b configs.BizType) bool { return b.Mode == configs.ModeRedis })
	if !used || isEmbedded(cfg.Redis) {
		return nil, nil
	}
	client := redisClient(cfg.Redis, tlsclient.New(redisSection, cfg.Redis.TLS.Files(), nil))
	ping := func(ctx context.Context, c *redis.Client) error {
		if err := c.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("server %s: %w", c.Options().Addr, err)
		}
		return nil
	}
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ping)
	case *redis.Client:
		err = ping(ctx, c)
	}
	if err != nil {
		err = fmt.Errorf("redis: %w", err)
	}
	return nil, errors.Join(err, client.Close())
}

// ConsulAdvice asks the Consul agent for its leader if cluster.provider is consul. The error says why there is none.
func ConsulAdvice(ctx context.Context, cfg configs.Config) ([]string, error) {
	cfg = cfg.WithDefaults()
	if cfg.Cluster.Provider != configs.ProviderConsul {
		return nil, nil
	}
	consul := cfg.Cluster.Consul
	conf := consulConfig(consul, tlsclient.New(consulSection, consul.TLS.Files(), nil))
	var err error
	if conf.Token, err = consul.ReadToken(); err != nil {
		return nil, fmt.Errorf("cluster.consul.token_file: %w", err)
	}
	client, err := api.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("cluster.consul: %w", err)
	}
	defer (&http.Client{Transport: conf.Transport}).CloseIdleConnections()
	leader, err := client.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, fmt.Errorf("consul at %s: %w", consul.Address, err)
	case leader == "":
		return nil, fmt.Errorf("consul at %s has no leader", consul.Address)
	}
	return nil, nil
}
