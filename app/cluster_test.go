package app_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
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
