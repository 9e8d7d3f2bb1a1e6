package fakeconsul

import (
	"bytes"
	"fmt"
	"io"
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
	c.keys[e.Key] = e
	c.keysIndex = c.index
	return e
}

// put writes a value. A lock on the key stays, without its count. The caller holds mu.
func (c *Consul) put(e entry) {
	e.LockIndex, e.Session = 0, c.keys[e.Key].Session
	c.store(e)
}

// lock locks a key. The caller holds mu.
func (c *Consul) lock(e entry) (locked entry, err error) {
	before := c.keys[e.Key]
	e.LockIndex = before.LockIndex
	switch {
	case c.sessions[e.Session] == nil:
		return e, fmt.Errorf("invalid session %q", e.Session)
	case before.Session == "":
		e.LockIndex++
	case before.Session != e.Session:
		return e, fmt.Errorf("failed to lock key %q, lock is already held", e.Key)
	}
	return c.store(e), nil
}

// unlock releases a key. The caller holds mu.
func (c *Consul) unlock(e entry) (unlocked entry, err error) {
	before := c.keys[e.Key]
	if e.Session == "" || before.Session != e.Session {
		return e, fmt.Errorf("failed to unlock key %q, lock isn't held, or is held by another session", e.Key)
	}
	e.LockIndex, e.Session = before.LockIndex, ""
	return c.store(e), nil
}

// remove deletes the keys for which so holds, and remembers what was deleted. The caller holds mu.
func (c *Consul) remove(what string, so func(key string) bool) {
	before := len(c.keys)
	maps.DeleteFunc(c.keys, func(key string, _ entry) bool { return so(key) })
	if len(c.keys) == before {
		return
	}
	c.keysIndex = c.index
	if what != "" {
		c.deleted[what] = c.index
	}
}

func (c *Consul) removeKey(key string) { c.remove(key, func(k string) bool { return k == key }) }

// isDelayed reports whether a key cannot be locked yet. The caller holds mu.
func (c *Consul) isDelayed(key string) bool { return c.lockDelays[key].After(time.Now()) }

func (c *Consul) getKey(w http.ResponseWriter, r *http.Request) {
	key, asked := r.PathValue("key"), r.URL.Query()
	for _, other := range []string{"keys", "raw"} {
		if asked.Has(other) {
			unsupported(w, other)
			return
		}
	}
	c.query(w, r, func() (uint64, []byte) {
		if asked.Has("recurse") {
			return c.list(key)
		}
		e, is := c.keys[key]
		if !is {
			return c.keysIndex, nil
		}
		return e.ModifyIndex, marshal([]entry{e})
	})
}

// list has the keys that begin with a prefix. Its index is that of their last change or deletion. The caller holds mu.
func (c *Consul) list(prefix string) (index uint64, body []byte) {
	var found []entry
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if strings.HasPrefix(key, prefix) {
			found = append(found, c.keys[key])
			index = max(index, c.keys[key].ModifyIndex)
		}
	}
	for key, at := range c.deleted {
		if strings.HasPrefix(key, prefix) {
			index = max(index, at)
		}
	}
	if index == 0 || prefix == "" {
		index = c.keysIndex
	}
	if found == nil {
		return index, nil
	}
	return index, marshal(found)
}

func (c *Consul) putKey(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	value, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection has ended
	}
	e := entry{Key: r.PathValue("key")}
	if len(value) > 0 {
		e.Value = value
	}
	e.Flags, _ = strconv.ParseUint(asked.Get("flags"), 10, 64)
	if e.Key == "" {
		http.Error(w, "Missing key name", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	done := true
	switch {
	case asked.Has("acquire"):
		if e.Session = asked.Get("acquire"); c.isDelayed(e.Key) {
			done = false
			break
		}
		c.commit()
		if c.sessions[e.Session] == nil {
			fail(w, "invalid session %q", e.Session)
			return
		}
		_, err = c.lock(e)
		done = err == nil
	case asked.Has("release"):
		c.commit()
		e.Session = asked.Get("release")
		_, err = c.unlock(e)
		done = err == nil
	case asked.Has("cas"):
		c.commit()
		if done = strconv.FormatUint(c.keys[e.Key].ModifyIndex, 10) == asked.Get("cas"); done {
			c.put(e)
		}
	default:
		c.commit()
		c.put(e)
	}
	answer(w, done)
}

func (c *Consul) deleteKey(w http.ResponseWriter, r *http.Request) {
	key, asked := r.PathValue("key"), r.URL.Query()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commit()
	e, is := c.keys[key]
	switch {
	case asked.Has("recurse"):
		c.remove(key, func(k string) bool { return strings.HasPrefix(k, key) })
	case asked.Has("cas") && is && strconv.FormatUint(e.ModifyIndex, 10) != asked.Get("cas"):
		answer(w, false)
		return
	default:
		c.removeKey(key)
	}
	answer(w, true)
}

// maxOps is how many operations a transaction may have; developer.hashicorp.com/consul/api-docs/txn.
const maxOps = 64

type txnError struct {
	OpIndex int
	What    string
}

type txnResult struct{ KV entry }

// transact does all of a list of operations, or none: then it says what is wrong with each.
func (c *Consul) transact(w http.ResponseWriter, r *http.Request) {
	var ops []struct {
		KV *struct {
			Verb, Key, Session string
			Value              []byte
			Flags              uint64
		}
	}
	if !decode(w, r, &ops) {
		return
	}
	if len(ops) > maxOps {
		http.Error(w, fmt.Sprintf("Transaction contains too many operations (%d > %d)", len(ops), maxOps), http.StatusRequestEntityTooLarge)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out struct {
		Results []txnResult
		Errors  []txnError
	}
	for i, op := range ops {
		switch {
		case op.KV == nil:
			unsupported(w, "such an operation")
			return
		case op.KV.Verb == "lock" && c.isDelayed(op.KV.Key):
			out.Errors = append(out.Errors, txnError{i, fmt.Sprintf("failed to lock key %q due to lock delay", op.KV.Key)})
		}
	}
	if out.Errors == nil {
		c.commit()
		keys, deleted, index := maps.Clone(c.keys), maps.Clone(c.deleted), c.keysIndex
		for i, op := range ops {
			e, err := entry{Key: op.KV.Key, Session: op.KV.Session, Flags: op.KV.Flags, Value: op.KV.Value}, error(nil)
			switch op.KV.Verb {
			case "lock":
				e, err = c.lock(e)
			case "unlock":
				e, err = c.unlock(e)
			case "check-session":
				e, err = c.checkSession(e)
			case "delete":
				c.removeKey(e.Key)
				continue
			default:
				c.keys, c.deleted, c.keysIndex = keys, deleted, index
				unsupported(w, "verb "+op.KV.Verb)
				return
			}
			if err != nil {
				out.Errors = append(out.Errors, txnError{i, err.Error()})
			}
			e.Value = nil
			out.Results = append(out.Results, txnResult{e})
		}
		if out.Errors != nil {
			c.keys, c.deleted, c.keysIndex = keys, deleted, index
		}
	}
	if out.Errors != nil {
		out.Results = nil
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
	}
	answer(w, out)
}

func (c *Consul) checkSession(e entry) (entry, error) {
	had, is := c.keys[e.Key]
	switch {
	case !is:
		return e, fmt.Errorf("failed to check session, key %q doesn't exist", e.Key)
	case had.Session != e.Session:
		return e, fmt.Errorf("failed session check for key %q, current session %q != %q", e.Key, had.Session, e.Session)
	}
	return had, nil
}
