package slots

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Identity is what the pulses of one process at one server have in common.
type Identity struct {
	Process string // its name
	Tag     int    // the hash tag of its keys, which are at the server; see Slots.TagAt
	script  *script
}

// Pulse is the answer of a server.
type Pulse struct {
	Store string // id of the task store that the server's slots belong to
	// Lost: the server may lack what was written to it: it is asked for the first time, was restarted or replaced, or
	// its keys were removed.
	Lost bool
	Now  time.Time // Redis's clock, to the microsecond
}

// Pulse asks a server whether it is the same as at the last call, and keeps the keys that show it for ttl. If the
// server belongs to another store than ours, it is not changed.
func (s *Slots) Pulse(ctx context.Context, id *Identity, store string, ttl time.Duration) (p Pulse, err error) {
	isNew := id.script == nil
	if isNew {
		id.script = newScript(pulseText+"-- "+rand.Text()+"\n", 4, false)
	}
	run, err := s.pulse(ctx, id, store, ttl)
	if err != nil {
		if isNew {
			id.script = nil
		}
		return Pulse{}, err
	}
	if run.isNew && !isNew {
		// The server before this one may come back, and lack what was written meanwhile: it must not know the text.
		isNew, id.script = true, newScript(pulseText+"-- "+rand.Text()+"\n", 4, false)
		if run, err = s.pulse(ctx, id, store, ttl); err != nil {
			id.script = nil
			return Pulse{}, err
		}
	}
	return Pulse{Store: run.reply[0], Lost: isNew || run.reply[1] == "0", Now: parseTime(run.reply[2], run.reply[3])}, nil
}

func (s *Slots) pulse(ctx context.Context, id *Identity, store string, ttl time.Duration) (*run, error) {
	runs := newRuns(id.script, 1, 0)
	center, own := s.CenterKey(id.Tag), fmt.Sprintf("%stoc:node:%s{%d}", s.keys.prefix, id.Process, id.Tag)
	runs.begin(0, &center, &own)
	runs.texts(&store, &id.Process)
	runs.number(ttl.Milliseconds())
	s.exec(ctx, runs)
	if err := runs.list[0].err; err != nil {
		return nil, fmt.Errorf("ask the server of %s: %w", center, err)
	}
	return &runs.list[0], nil
}

// CenterKey has the id of the task store whose center uses the server on which the key is.
func (s *Slots) CenterKey(tag int) string {
	return s.keys.prefix + "toc:center{" + strconv.Itoa(tag) + "}"
}

// mostTags bounds the search for a tag. Each tag is at a server of n with a chance of about 1 in n.
const mostTags = 20_000

// TagAt returns the least tag whose keys are at a server, by the client's own map. from is a tag that may be it.
func (s *Slots) TagAt(addr string, from int) (tag int, ok bool) {
	cluster, isCluster := s.client.(*redis.ClusterClient)
	if !isCluster || addr == "" {
		return 0, true
	}
	isThere := func(tag int) bool {
		master, err := cluster.MasterForKey(canceled, s.CenterKey(tag))
		return err == nil && master.Options().Addr == addr
	}
	if isThere(from) {
		return from, true
	}
	for tag = range mostTags {
		if isThere(tag) {
			return tag, true
		}
	}
	return 0, false
}
