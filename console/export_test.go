package console

import (
	"context"
	"time"
)

// Publish makes one snapshot of what somebody looks at.
func (c *Console) Publish(ctx context.Context) { c.publish(ctx) }

// Watched lists the topics that somebody looks at.
func (c *Console) Watched() []string { return c.live.watched() }

// CloseStreams ends all streams, as the end of Run does.
func (c *Console) CloseStreams() { c.live.close() }

// Forget drops the last picture, as if a tick had passed.
func (c *Console) Forget() {
	c.picture.mu.Lock()
	defer c.picture.mu.Unlock()
	c.picture.last = nil
}

// MaxStreams is how many streams may be open.
const MaxStreams = maxStreams

// SessionLasts is how long a login lasts.
const SessionLasts = sessionLasts

// SessionOf is the cookie of a token that ends then.
func SessionOf(token string, ends time.Time) string { return session(token, ends.Unix()) }

// Pages are the names of the templates.
func Pages() (names []string) {
	for name := range templates {
		names = append(names, name)
	}
	return names
}
