package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
)

// maxTxn is Consul's maximum number of operations in one transaction.
const maxTxn = 64

// A partition's lock is the key <prefix>/partitions/<p>. While it is held its value is the holder's name and
// its flags are the holder's instance. A holder that hands over clears both, or leaves the value "unsettled" if
// it had taken the partition uncleanly. When a session ends they stay, so the next holder sees that there was
// no hand-over. If you change this, both versions may run side by side in a rolling restart.

// unsettled is the value of a lock that was handed over while starts from before its last holder may still be
// unsettled.
const unsettled = "unsettled"

// lock is the state of a partition's lock, from the watch.
type lock struct {
	session   string // "": free
	instance  uint64 // the holder; if it is free: the last holder if that did not hand it over, else 0
	holder    string // the node that has it, or had it last; by the value, so it is for people
	unsettled bool   // free, and handed over unsettled
	index     uint64 // of its last change
	freed     instant
}

// hold is the state of a partition on this node.
type hold struct {
	state   holdState
	session string // whose lock it is
	index   uint64 // of our last change of the lock
}

type holdState int

const (
	none holdState = iota
	held
	handing // owned no longer, and not released yet
)

func (n *node) lockDir() string { return n.cfg.Prefix + "/partitions/" }

func (n *node) lockName(partition int) string { return n.lockDir() + strconv.Itoa(partition) }

// askLocks reads all locks from Consul and drops the partitions that are another node's.
func (c *Consul) askLocks(q *api.QueryOptions) (uint64, error) {
	pairs, meta, err := c.client.KV().List(c.lockDir(), q)
	if err != nil {
		return 0, err
	}
	locks := make([]lock, c.cfg.Layout.Partitions)
	for _, pair := range pairs {
		p, err := strconv.Atoi(strings.TrimPrefix(pair.Key, c.lockDir()))
		if err != nil || p < 0 || p >= len(locks) {
			continue
		}
		locks[p] = lock{session: pair.Session, instance: pair.Flags, holder: string(pair.Value),
			unsettled: pair.Session == "" && string(pair.Value) == unsettled,
			index:     pair.ModifyIndex, freed: c.clock()}
	}
	c.updateLocks(locks, meta.LastIndex)
	return meta.LastIndex, nil
}

// updateLocks records the state of the locks at an index.
func (c *Consul) updateLocks(locks []lock, at uint64) {
	c.mu.Lock()
	back := at < c.locksAt
	for p := range locks {
		if c.locks != nil && c.locks[p].session == "" && c.locks[p].index == locks[p].index {
			locks[p].freed = c.locks[p].freed
		}
	}
	var gone []int
	for p := range c.holds {
		h, l := c.holds[p], locks[p]
		if h.state != held || l.session == h.session {
			continue
		}
		// An answer from before our lock says nothing, unless Consul's index went back. A missing key was
		// deleted, at the answer's index at most.
		if told := cmp.Or(l.index, at+1); told <= h.index && !back {
			continue
		}
		if c.cfg.KeepOnLoss && (l.session == "" || l.session == c.session) {
			continue // it is free: it can be locked again
		}
		c.holds[p] = hold{}
		gone = append(gone, p)
	}
	c.locks, c.locksAt = locks, at
	c.owned.drop(gone)
	died := c.recordDeaths()
	c.mu.Unlock()
	if died {
		c.cfg.Host.Died()
	}
	if len(gone) > 0 {
		c.cfg.Logger.Warn("locks lost", "partitions", gone)
	}
	c.wake.Set()
}

// recordDeaths records the last holders of locks that are free without a hand-over, and reports whether there
// are new ones.
func (v *view) recordDeaths() (died bool) {
	for _, l := range v.locks {
		if l.session == "" && l.instance != 0 && l.instance != v.instance && !v.dead[l.instance] {
			v.dead[l.instance] = true
			died = true
		}
	}
	return died
}

// locked lists the partitions whose locks match. The caller holds mu.
func (v *view) locked(so func(l lock) bool) (list []int) {
	for p, l := range v.locks {
		if so(l) {
			list = append(list, p)
		}
	}
	return list
}

// lockAll locks as many of the partitions as it can. got has the index of each lock; why has the reason for the
// others.
func (n *node) lockAll(ctx context.Context, partitions []int, session string) (got map[int]uint64, why map[int]string, err error) {
	return n.transact(ctx, partitions, func(p int) *api.KVTxnOp {
		return &api.KVTxnOp{Verb: api.KVLock, Key: n.lockName(p), Value: []byte(n.cfg.Node), Flags: n.instance, Session: session}
	})
}

// unlock releases the partitions that the session holds, and leaves the others alone. isUnsettled reports whether a
// partition is handed over unsettled.
func (n *node) unlock(ctx context.Context, partitions []int, session string, isUnsettled func(partition int) bool) error {
	_, _, err := n.transact(ctx, partitions, func(p int) *api.KVTxnOp {
		op := &api.KVTxnOp{Verb: api.KVUnlock, Key: n.lockName(p), Session: session}
		if isUnsettled(p) {
			op.Value = []byte(unsettled)
		}
		return op
	})
	return err
}

// transact does one operation for each partition, in as few transactions as possible. A transaction is all or
// nothing, so it drops the operations that Consul refuses and tries the others again.
func (n *node) transact(ctx context.Context, partitions []int,
	op func(int) *api.KVTxnOp) (done map[int]uint64, why map[int]string, err error) {
	done, why = make(map[int]uint64), make(map[int]string)
	for chunk := range slices.Chunk(partitions, maxTxn) {
		for rest := slices.Clone(chunk); len(rest) > 0; {
			refused, err := n.tryTransact(ctx, rest, op, done)
			if err != nil {
				return done, why, fmt.Errorf("transaction on locks: %w", err)
			}
			if refused == nil {
				break
			}
			maps.Copy(why, refused)
			rest = slices.DeleteFunc(rest, func(p int) bool { _, is := refused[p]; return is })
		}
	}
	return done, why, nil
}

// permissionDenied is Consul's reason if the token may not do an operation of a transaction.
const permissionDenied = "Permission denied"

// tryTransact makes one transaction. If Consul refuses it, refused has the partitions to blame and the reasons.
func (n *node) tryTransact(ctx context.Context, partitions []int, op func(int) *api.KVTxnOp,
	done map[int]uint64) (refused map[int]string, err error) {
	ops := make(api.TxnOps, len(partitions))
	for i, p := range partitions {
		ops[i] = &api.TxnOp{KV: op(p)}
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.TTL)
	defer cancel()
	ok, answer, _, err := n.client.Txn().Txn(ops, reading(ctx))
	switch {
	case err != nil:
		return nil, err
	case ok:
		for i, r := range answer.Results {
			if i < len(partitions) && r.KV != nil {
				done[partitions[i]] = r.KV.ModifyIndex
			}
		}
		return nil, nil
	case len(answer.Errors) == 0:
		return nil, errors.New("refused without a reason")
	}
	refused = make(map[int]string)
	for _, e := range answer.Errors {
		if e.OpIndex < 0 || e.OpIndex >= len(partitions) {
			return nil, errors.New(e.What)
		}
		if strings.Contains(e.What, permissionDenied) {
			return nil, &refusedError{e.What}
		}
		refused[partitions[e.OpIndex]] = e.What
	}
	return refused, nil
}
