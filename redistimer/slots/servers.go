package slots

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// IsAnswer reports whether the server has answered, even if with an error.
func IsAnswer(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return err == nil || refused
}

// Answer is the error that the server has answered with, as it said it; "" if it gave none. An unknown command comes back
// with its arguments, which may be a password: they are left out.
func Answer(err error) string {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return ""
	}
	said, _, _ := strings.Cut(answer.Error(), ", with args beginning with")
	return said
}

// IsRefusal reports whether a server has answered that it accepts no writes: it or its disk is full, it is a
// replica, it lacks replicas or a command, or its user lacks a right.
func IsRefusal(err error) bool {
	if err == nil || !IsAnswer(err) {
		return false
	}
	said := err.Error() // Redis 6 does not put the code of a script's error first
	return slices.ContainsFunc(refusals, func(text string) bool { return strings.Contains(said, text) })
}

// refusals are parts of the answers. There is no separate code for a command that a script may not call.
var refusals = []string{
	"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS ", "NOPERM ",
	"The user executing the script can't ", "Unknown Redis command", "unknown command",
}

// ServerOf returns the server of a slot by the client's own map, without asking Redis. "" is the only server.
func (s *Slots) ServerOf(slot Slot) (addr string, known bool) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return "", true
	}
	master, err := cluster.MasterForKey(canceled, s.StoreKey(slot))
	if err != nil {
		return "", false
	}
	return master.Options().Addr, true
}

// sampledKeys is how many keys are looked up to find the servers. A server without one of them has hardly any slots.
const sampledKeys = 1000

// Servers returns the addresses of the servers that have slots by the client's own map, without asking Redis. "" is the only
// server.
func (s *Slots) Servers() (addrs []string, known bool) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []string{""}, true
	}
	for tag := range sampledKeys {
		master, err := cluster.MasterForKey(canceled, s.CenterKey(tag))
		if err != nil {
			return nil, false
		}
		if addr := master.Options().Addr; !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs, true
}

// canceled is a context that has ended. A call with it does not wait.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Refresh makes the client find out, in the background, which slots are on which server.
func (s *Slots) Refresh() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// bound limits the time of a call.
func (s *Slots) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.Timeout)
}

func (s *Slots) exec(ctx context.Context, r *runs) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	r.exec(ctx, s.client)
}
