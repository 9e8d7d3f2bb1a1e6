package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/internal/wait"
)

// pingTimeout bounds one question whether a broker answers.
const pingTimeout = 4 * time.Second

// watchBrokers asks now and then whether a broker answers: the client tries again in silence, and a topic whose brokers are away
// would look like one without records.
func (r *Reader) watchBrokers(ctx context.Context) {
	r.ping(ctx)
	for wait.For(ctx, endsInterval) == nil {
		r.ping(ctx)
	}
}

func (r *Reader) ping(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := tlsclient.Cause(r.client.Ping(asking))
	switch was := r.away.Load(); {
	case ctx.Err() != nil:
	case err != nil:
		r.away.Store(&err)
		r.tell("no broker answers; records wait in the topic", "cluster", r.cfg.Cluster.Name, "error", err)
	case was != nil:
		r.away.Store(nil)
		r.cfg.Logger.Info("brokers answer again", "intake", r.cfg.Name, "cluster", r.cfg.Cluster.Name)
	}
}

// failing remembers errors that come again and again.
type failing struct {
	mu    sync.Mutex
	err   error
	since time.Time
	last  time.Time
}

const (
	failingAfter = 5 * time.Second  // errors for so long are shown
	failingFor   = 20 * time.Second // after the last one it is over
)

func (f *failing) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.last) > failingFor {
		f.since = now
	}
	f.err, f.last = err, now
}

// get returns the last error if there have been errors for a while.
func (f *failing) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last) > failingFor || f.last.Sub(f.since) < failingAfter {
		return nil
	}
	return f.err
}

// Unread is why records cannot be read for some seconds, although a broker answers; nil: they can, as far as is known.
func (r *Reader) Unread() error { return r.unread.get() }

// Away is why no broker of the cluster answers; nil: one does, as far as is known.
func (r *Reader) Away() error {
	if err := r.away.Load(); err != nil {
		return *err
	}
	return nil
}
