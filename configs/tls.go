package configs

import (
	"errors"

	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// Files are the settings as a tlsclient.Client takes them.
func (t TLS) Files() tlsclient.Files { return tlsclient.Files(t) }

// IsOn reports whether the connections are TLS.
func (t TLS) IsOn() bool { return t.CA != "" }

func (t TLS) check(ps *problems, at string) { addTLS(ps, at, t.Files().CheckShape()) }

// checkTLSFiles reads the files of all TLS sections. It is apart from check: while files are being replaced, a
// change of biz_types is taken.
func (c Config) checkTLSFiles() (ps problems) {
	if c.Store.Driver == DriverMySQL {
		addTLS(&ps, "store.mysql.tls", c.Store.MySQL.TLS.Files().Check())
	}
	if c.Cluster.Provider == ProviderConsul {
		addTLS(&ps, "cluster.consul.tls", c.Cluster.Consul.TLS.Files().Check())
	}
	addTLS(&ps, "redis.tls", c.Redis.TLS.Files().Check())
	for _, k := range c.Kafka.Clusters {
		addTLS(&ps, join("kafka.clusters", k.Name)+".tls", k.TLS.Files().Check())
	}
	return ps
}

// addTLS adds each tlsclient.Problem with its key.
func addTLS(ps *problems, at string, err error) {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range list.Unwrap() {
			addTLS(ps, at, one)
		}
	} else if p, ok := errors.AsType[*tlsclient.Problem](err); ok {
		ps.add(join(at, p.Key), "%s", p.Text)
	}
}
