package kafka

import (
	"context"
	"time"

	"github.com/timeoutcenter/toc/internal/tlsclient"
)

// pingTimeout bounds one question whether a broker answers.
const pingTimeout = 4 * time.Second

// watchBrokers asks now and then whether a broker answers: the client tries again in silence, and a topic whose brokers are away
// would look like one without records.
func (r *Reader) watchBrokers(ctx context.Context) {
	tick := time.NewTicker(endsInterval)
	defer tick.Stop()
	for {
		r.ping(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
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

// Away is why no broker of the cluster answers; nil: one does, as far as is known.
func (r *Reader) Away() error {
	if err := r.away.Load(); err != nil {
		return *err
	}
	return nil
}
