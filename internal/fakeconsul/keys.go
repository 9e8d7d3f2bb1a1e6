package fakeconsul

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// entry is a key.
type entry struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

// store writes an entry at the present index. One that is the same as before keeps its index. The caller holds mu.
func (c *Consul) store(e entry) entry {
	before, is := c.keys[e.Key]
	e.CreateIndex, e.ModifyIndex = c.index, c.index
	if is {
		e.CreateIndex = before.CreateIndex
		if before.LockIndex == e.LockIndex && before.Flags == e.Flags && before.Session == e.Session && bytes.Equal(before.Value, e.Value) {
			return before
		}
	}
	c.keys[e.Key], c.keysIndex = e, c.index
	return e
}

// put writes a value. A lock on the key stays, but its count does not. The caller holds mu.
func (c *Consul) put(e entry) {
	e.Session = c.keys[e.Key].Session
	c.store(e)
}

var errHeld = errors.New("held")

// lock locks a key. The caller holds mu.
func (c *Consul) lock(e entry) (locked entry, err error) {
	before := c.keys[e.Key]
	e.LockIndex = before.LockIndex
	switch {
	case c.sessions[e.Session] == nil:
		return e, internal("invalid session %q", e.Session)
	case before.Session == "":
		e.LockIndex++
	case before.Session != e.Session:
		return e, errHeld
	}
	return c.store(e), nil
}

// unlock releases a key, if the session holds it. The caller holds mu.
func (c *Consul) unlock(e entry) (unlocked entry, done bool) {
	before := c.keys[e.Key]
	if e.Session == "" || before.Session != e.Session {
		return e, false
	}
	e.LockIndex, e.Session = before.LockIndex, ""
	return c.store(e), true
}

// remove deletes the keys for which so holds, and remembers what was deleted. The caller holds mu.
func (c *Consul) remove(what string, so func(key string) bool) {
	before := len(c.keys)
	maps.DeleteFunc(c.keys, func(key string, _ entry) bool { return so(key) })
	if len(c.keys) < before {
		c.keysIndex, c.deleted[what] = c.index, c.index
	}
}

func (c *Consul) removeKey(key string) { c.remove(key, func(k string) bool { return k == key }) }

// isDelayed reports whether a lock-delay keeps a key from being locked. The caller holds mu.
func (c *Consul) isDelayed(key string) bool { return c.lockDelays[key].After(time.Now()) }

// getKey reads a key, or all keys that begin with it: their index is that of the last change or deletion among them.
func (c *Consul) getKey(q call) (index uint64, body any) {
	if !q.asked.Has("recurse") {
		if e, is := c.keys[q.what]; is {
			return e.ModifyIndex, []entry{e}
		}
		return c.keysIndex, nil
	}
	var found []entry
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if strings.HasPrefix(key, q.what) {
			found = append(found, c.keys[key])
			index = max(index, c.keys[key].ModifyIndex)
		}
	}
	for key, at := range c.deleted {
		if strings.HasPrefix(key, q.what) {
			index = max(index, at)
		}
	}
	if index == 0 {
		index = c.keysIndex
	}
	if found == nil {
		return index, nil
	}
	return index, found
}

func (c *Consul) putKey(q call) (any, error) {
	if q.what == "" {
		return nil, refusal{http.StatusBadRequest, "Missing key name"}
	}
	e := entry{Key: q.what}
	if len(q.body) > 0 {
		e.Value = q.body
	}
	e.Flags, _ = strconv.ParseUint(q.asked.Get("flags"), 10, 64)
	if q.asked.Has("acquire") && c.isDelayed(e.Key) {
		return false, nil
	}
	c.commit()
	switch {
	case q.asked.Has("acquire"):
		e.Session = q.asked.Get("acquire")
		_, err := c.lock(e)
		if err == errHeld {
			return false, nil
		}
		return true, err
	case q.asked.Has("release"):
		e.Session = q.asked.Get("release")
		_, done := c.unlock(e)
		return done, nil
	case q.asked.Has("cas") && q.asked.Get("cas") != strconv.FormatUint(c.keys[e.Key].ModifyIndex, 10):
		return false, nil
	}
	c.put(e)
	return true, nil
}

func (c *Consul) deleteKey(q call) (any, error) {
	c.commit()
	e, is := c.keys[q.what]
	switch {
	case q.asked.Has("recurse"):
		c.remove(q.what, func(key string) bool { return strings.HasPrefix(key, q.what) })
	case is && q.asked.Has("cas") && q.asked.Get("cas") != strconv.FormatUint(e.ModifyIndex, 10):
		return false, nil
	default:
		c.removeKey(q.what)
	}
	return true, nil
}

// maxOps is how many operations a transaction may have; developer.hashicorp.com/consul/api-docs/txn.
const maxOps = 64

type (
	txnError struct {
		OpIndex int
		What    string
	}
	txnResult struct{ KV entry }
	outcome   struct {
		Results []txnResult
		Errors  []txnError
	}
	conflict outcome
)

// transact does all of a list of operations, or none: then it says what is wrong with each.
func (c *Consul) transact(q call) (any, error) {
	var ops []struct {
		KV struct {
			Verb, Key, Session string
			Value              []byte
			Flags              uint64
		}
	}
	if err := q.decode(&ops); err != nil {
		return nil, err
	}
	if len(ops) > maxOps {
		return nil, refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("Transaction contains too many operations (%d > %d)", len(ops), maxOps)}
	}
	var out outcome
	fail := func(i int, format string, args ...any) {
		out.Errors = append(out.Errors, txnError{i, fmt.Sprintf(format, args...)})
	}
	for i, op := range ops {
		if op.KV.Verb == "lock" && c.isDelayed(op.KV.Key) {
			fail(i, "failed to lock key %q due to lock delay", op.KV.Key)
		}
	}
	if out.Errors != nil {
		return conflict(out), nil
	}
	c.commit()
	keys, deleted, index := maps.Clone(c.keys), maps.Clone(c.deleted), c.keysIndex
	for i, op := range ops {
		e, before := entry{Key: op.KV.Key, Session: op.KV.Session, Flags: op.KV.Flags, Value: op.KV.Value}, c.keys[op.KV.Key]
		var err error
		done := true
		switch op.KV.Verb {
		case "lock":
			if e, err = c.lock(e); err == errHeld {
				fail(i, "failed to lock key %q, lock is already held", e.Key)
			} else if err != nil {
				fail(i, "%v", err)
			}
		case "unlock":
			if e, done = c.unlock(e); !done {
				fail(i, "failed to unlock key %q, lock isn't held, or is held by another session", e.Key)
			}
		case "check-session":
			if before.Key == "" {
				fail(i, "failed to check session, key %q doesn't exist", e.Key)
			} else if before.Session != e.Session {
				fail(i, "failed session check for key %q, current session %q != %q", e.Key, before.Session, e.Session)
			}
			e = before
		case "delete":
			c.removeKey(e.Key)
			continue
		default:
			c.keys, c.deleted, c.keysIndex = keys, deleted, index
			return nil, unsupported("verb " + op.KV.Verb)
		}
		e.Value = nil
		out.Results = append(out.Results, txnResult{e})
	}
	if out.Errors != nil {
		c.keys, c.deleted, c.keysIndex = keys, deleted, index
		return conflict{Errors: out.Errors}, nil
	}
	return out, nil
}
