package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A reader relies on its membership for a while after each sign of life. After a silence in which the group may have given it up
// it waits for a second one.
func TestSession(t *testing.T) {
	var s session
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	require.True(t, s.end().IsZero(), "nothing is known yet")
	s.hear(at(0), true)
	require.Equal(t, at(0).Add(trusted), s.end())
	s.hear(at(2), false)
	require.Equal(t, at(2).Add(trusted), s.end())
	s.hear(at(30), false)
	require.Equal(t, at(2).Add(trusted), s.end(), "this one may be a member no more")
	s.hear(at(32), false)
	require.Equal(t, at(32).Add(trusted), s.end())
	s.hear(at(60), true)
	require.Equal(t, at(60).Add(trusted), s.end(), "it has joined again")
}
