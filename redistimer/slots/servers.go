package slots

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// IsAnswer tells whether the server has said something, if only that it will not.
func IsAnswer(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return err == nil || refused
}

// IsRefusal tells whether a server has answered that it takes no writes: it is full, its disk is, it is a replica, lacks
// replicas, or its user may not.
func IsRefusal(err error) bool {
	if err == nil || !IsAnswer(err) {
		return false
	}
	said := err.Error() // of a script, in Redis 6, not at its beginning
	return slices.ContainsFunc([]string{"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS ", "NOPERM "}, func(code string) bool { return strings.Contains(said, code) })
}

// ServerOf names the server of a slot, as far as the client knows: it asks nobody. "" is the only one.
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

// over is a context that has ended: who gets it does not wait.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Ping asks the server of a slot for any answer.
func (s *Slots) Ping(ctx context.Context, slot Slot) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client.Ping(ctx).Err()
	}
	master, err := cluster.MasterForKey(ctx, s.StoreKey(slot))
	if err != nil {
		return err
	}
	return master.Ping(ctx).Err()
}

// Refresh has the client find out, in the background, which slots are where.
func (s *Slots) Refresh() {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// bound limits how long a call may take.
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
