package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/consul/api"
)

// layoutRecord is the value of the key <prefix>/layout, which the first node writes. If you change it, nodes of
// the version before refuse to start: add fields, and let their absence mean the old behaviour.
type layoutRecord struct {
	Databases         int `json:"databases"`
	TablesPerDatabase int `json:"tables_per_database"`
	Partitions        int `json:"partitions"`
}

// layoutError: this node's layout differs from the cluster's.
type layoutError struct{ text string }

func (e *layoutError) Error() string { return e.text }

// checkLayout compares this node's layout with the cluster's, or makes it the cluster's.
func (c *Consul) checkLayout(ctx context.Context) error {
	key, mine := c.cfg.Prefix+"/layout", layoutRecord(c.cfg.Layout)
	value, err := json.Marshal(mine)
	if err == nil {
		value, err = c.writeOnce(ctx, "the layout", key, value)
	}
	if err != nil {
		return err
	}
	var theirs layoutRecord
	if err := json.Unmarshal(value, &theirs); err != nil {
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

// writeOnce returns the value of a key; the first node writes it.
func (c *Consul) writeOnce(ctx context.Context, what, key string, value []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.TTL)
	defer cancel()
	if _, _, err := c.client.KV().CAS(&api.KVPair{Key: key, Value: value}, writing(ctx)); err != nil {
		return nil, fmt.Errorf("write %s: %w", what, err)
	}
	pair, _, err := c.client.KV().Get(key, consistent(ctx))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", what, err)
	case pair == nil:
		return nil, fmt.Errorf("read %s: the key %s is gone again", what, key)
	}
	return pair.Value, nil
}

// The cluster's id distinguishes clusters with one prefix in two Consuls. The first node makes it up. Running
// nodes restore it if it is deleted.
func (c *Consul) idKey() string { return c.cfg.Prefix + "/id" }

// ensureID reads the cluster's id, or makes it up.
func (c *Consul) ensureID(ctx context.Context) error {
	id, err := c.writeOnce(ctx, "the cluster's id", c.idKey(), []byte(randomID()))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.clusterID = string(id)
	c.mu.Unlock()
	return nil
}

// askID reads the cluster's id from Consul and corrects it: this node claims the databases with the id that it already
// has.
func (c *Consul) askID(q *api.QueryOptions) (uint64, error) {
	pair, meta, err := c.client.KV().Get(c.idKey(), q)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	id := c.clusterID
	c.mu.Unlock()
	if pair == nil || string(pair.Value) != id {
		c.cfg.Logger.Warn("the cluster's id was changed in consul; putting it back", "key", c.idKey(), "id", id)
		if _, err := c.client.KV().Put(&api.KVPair{Key: c.idKey(), Value: []byte(id)}, writing(q.Context())); err != nil {
			return 0, err
		}
	}
	return meta.LastIndex, nil
}
