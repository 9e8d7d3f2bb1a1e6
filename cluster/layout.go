package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/consul/api"
)

// layoutRecord is the value of the key <prefix>/layout, which the first node
// writes. If you change it, nodes of the version before refuse to start: add
// fields, and let their absence mean what was so before.
type layoutRecord struct {
	Databases         int `json:"databases"`
	TablesPerDatabase int `json:"tables_per_database"`
	Partitions        int `json:"partitions"`
}

// layoutError says that this node's layout is not the cluster's.
type layoutError struct{ text string }

func (e *layoutError) Error() string { return e.text }

// checkLayout compares this node's layout with the cluster's, or makes it so.
func (c *Consul) checkLayout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.TTL)
	defer cancel()
	key := c.cfg.Prefix + "/layout"
	mine := layoutRecord(c.cfg.Layout)
	value, err := json.Marshal(mine)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if _, _, err = c.client.KV().CAS(&api.KVPair{Key: key, Value: value}, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	pair, _, err := c.client.KV().Get(key, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("read the layout: %w", err)
	case pair == nil:
		return fmt.Errorf("read the layout: the key %s is gone again", key)
	}
	var theirs layoutRecord
	if err := json.Unmarshal(pair.Value, &theirs); err != nil {
		return &layoutError{fmt.Sprintf("the layout of the cluster %q (kept in Consul under %s) cannot be read: %v", c.cfg.Prefix, key, err)}
	}
	for _, v := range []struct {
		key         string
		mine, wants int
	}{
		{"store.databases", mine.Databases, theirs.Databases},
		{"store.tables_per_database", mine.TablesPerDatabase, theirs.TablesPerDatabase},
		{"cluster.partitions", mine.Partitions, theirs.Partitions},
	} {
		if v.mine != v.wants {
			return &layoutError{fmt.Sprintf("%s is %d here, but the cluster %q has %d (kept in Consul under %s)",
				v.key, v.mine, c.cfg.Prefix, v.wants, key)}
		}
	}
	return nil
}
