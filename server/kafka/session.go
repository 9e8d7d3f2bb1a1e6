package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// session stores until when this Reader is certainly a member of its group. The group gives the partitions of a member to others
// after sessionTimeout without a sign of life. A Reader that was stopped for longer, or cut off, learns that late. Its statements
// could then change back tasks that the next member has stored from newer records. So a step works only until then.
type session struct {
	mu    sync.Mutex
	heard time.Time // when the last request was sent that the group has answered
	until time.Time
}

// trusted is how long after a sign of life a Reader relies on its membership: less than sessionTimeout, because a statement
// that is on its way then still takes effect.
const trusted = sessionTimeout * 8 / 10

// OnBrokerE2E implements kgo.HookBrokerE2E: it gets each answer.
func (s *session) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, answered kgo.BrokerE2E) {
	if answered.Err() != nil {
		return
	}
	switch kmsg.Key(key) {
	case kmsg.SyncGroup: // it has joined
		s.hear(time.Now().Add(-answered.DurationE2E()), true)
	case kmsg.Heartbeat:
		s.hear(time.Now().Add(-answered.DurationE2E()), false)
	}
}

// Takes a sign of life. The first one after a silence may be answered by a no, which the hook does not get: then the
// partitions are taken away before the next one.
func (s *session) hear(sent time.Time, joined bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if joined || sent.Sub(s.heard) < trusted {
		s.until = sent.Add(trusted)
	}
	s.heard = sent
}

// end is until when this Reader is certainly a member.
func (s *session) end() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until
}
