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
func (n *node) checkLayout(ctx context.Context) error {
	key, mine := n.cfg.Prefix+"/layout", layoutRecord(n.cfg.Layout)
	value, err := json.Marshal(mine)
	if err == nil {
		value, err = n.writeOnce(ctx, "the layout", key, value)
	}
	if err != nil {
		return err
	}
	var theirs layoutRecord
	if err := json.Unmarshal(value, &theirs); err != nil {
		return &layoutError{fmt.Sprintf("the layout of the cluster %q (kept in Consul under %s) cannot be read: %v", n.cfg.Prefix, key, err)}
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
				v.key, v.mine, n.cfg.Prefix, v.wants, key)}
		}
	}
	return nil
}

// writeOnce returns the value of a key; the first node writes it.
func (n *node) writeOnce(ctx context.Context, what, key string, value []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.TTL)
	defer cancel()
	if _, _, err := n.client.KV().CAS(&api.KVPair{Key: key, Value: value}, writing(ctx)); err != nil {
		return nil, fmt.Errorf("write %s: %w", what, err)
	}
	pair, _, err := n.client.KV().Get(key, consistent(ctx))
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
func (n *node) idKey() string { return n.cfg.Prefix + "/id" }

// ensureID reads the cluster's id, or makes it up.
func (dbs *databases) ensureID(ctx context.Context) error {
	id, err := dbs.writeOnce(ctx, "the cluster's id", dbs.idKey(), []byte(randomID()))
	if err != nil {
		return err
	}
	dbs.clusterID.Store(string(id))
	return nil
}

// askID reads the cluster's id from Consul and corrects it: this node claims the databases with the id that it already
// has.
func (dbs *databases) askID(q *api.QueryOptions) (uint64, error) {
	pair, meta, err := dbs.client.KV().Get(dbs.idKey(), q)
	if err != nil {
		return 0, err
	}
	id, _ := dbs.clusterID.Load().(string)
	if pair == nil || string(pair.Value) != id {
		dbs.cfg.Logger.Warn("the cluster's id was changed in consul; putting it back", "key", dbs.idKey(), "id", id)
		if _, err := dbs.client.KV().Put(&api.KVPair{Key: dbs.idKey(), Value: []byte(id)}, writing(q.Context())); err != nil {
			return 0, err
		}
	}
	return meta.LastIndex, nil
}
