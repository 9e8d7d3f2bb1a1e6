package console

import (
	"time"
)

// Forget drops the last picture and what was made of it, as if a tick had passed.
func (c *Console) Forget() {
	c.snapshots.mu.Lock()
	clear(c.snapshots.last)
	c.snapshots.mu.Unlock()
	c.picture.mu.Lock()
	defer c.picture.mu.Unlock()
	c.picture.last = nil
}

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
