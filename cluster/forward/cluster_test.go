package forward_test

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster/forward"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/task"
)

func (s *server) count(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.opened.Add(1)
	}
}

// refused checks that err is the first node's refusal, and gives it.
func refused(t *testing.T, err error, status int) *client.Error {
	t.Helper()
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, status, e.Status, e)
	return e
}

// changes are the questions that the owner decides.
var changes = map[string]func(t *testing.T, c *client.Client, id uint64) error{
	"cancel": func(t *testing.T, c *client.Client, id uint64) error { return c.Cancel(t.Context(), id) },
	"reschedule": func(t *testing.T, c *client.Client, id uint64) error {
		later := 2 * time.Hour
		_, err := c.Reschedule(t.Context(), id, client.Change{Delay: &later})
		return err
	},
	"redrive": func(t *testing.T, c *client.Client, id uint64) error {
		_, err := c.Redrive(t.Context(), id)
		return err
	},
}

// The owner gets a change with its condition, and the caller gets the owner's refusal.
func TestAConditionIsDecidedByTheOwner(t *testing.T) {
	c := newCluster(t)
	for _, at := range []*node{c.n1, c.n2} {
		id := c.stored(theirs, task.Pending)
		seen, err := at.Get(t.Context(), id)
		require.NoError(t, err)
		mine := "mine"
		changed, err := at.Reschedule(t.Context(), id, client.Change{Attribute: &mine, Timeout: 1500 * time.Millisecond}, client.IfMatch("x", seen.ETag))
		require.NoError(t, err)
		require.Equal(t, 1500*time.Millisecond, c.row(id).Timeout)

		before := c.row(id)
		_, err = at.Reschedule(t.Context(), id, client.Change{Attribute: &mine}, client.IfMatch(seen.ETag))
		require.Equal(t, &changed, refused(t, err, 412).Task)
		require.Equal(t, &changed, refused(t, at.Cancel(t.Context(), id, client.IfMatch("", `W/"x"`)), 412).Task)
		_, err = at.Redrive(t.Context(), id, client.IfMatch(seen.ETag))
		require.Equal(t, &changed, refused(t, err, 412).Task)
		require.Equal(t, before, c.row(id))
		require.NoError(t, at.Cancel(t.Context(), id, client.IfMatch("*")))
		dead, err := at.Get(t.Context(), c.stored(theirs, task.Dead))
		require.NoError(t, err)
		_, err = at.Redrive(t.Context(), uint64(dead.JobID), client.IfMatch(dead.ETag))
		require.NoError(t, err)
	}
	require.Empty(t, c.n1.log.String(), "a refusal is no trouble")
}

// Of two nodes that are asked with one tag, one changes the task.
func TestOneWinsWithOneTag(t *testing.T) {
	c := newCluster(t)
	id := c.stored(theirs, task.Pending)
	for range 5 {
		seen, err := c.n1.Get(t.Context(), id)
		require.NoError(t, err)
		var all sync.WaitGroup
		var won atomic.Int64
		for i := range 8 {
			all.Go(func() {
				mine := strconv.Itoa(i)
				_, err := []*node{c.n1, c.n2}[i%2].Reschedule(t.Context(), id, client.Change{Attribute: &mine}, client.IfMatch(seen.ETag))
				if err == nil {
					won.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, won.Load())
	}
}

// A text as biz_id, its own time-out and what was promised come through an owner unharmed.
func TestAMoveOfADuplicateIsDecidedByTheOwner(t *testing.T) {
	c := newCluster(t)
	for _, key := range []string{"a", "b", "c", "d"} { // of both owners
		var due time.Time
		for i, at := range []*node{c.n1, c.n2} {
			due = task.CeilMilli(time.Now().Add(time.Duration(i+1) * time.Hour))
			s, err := at.Submit(t.Context(), client.Submit{
				BizType: "order_close", BizKey: "order " + key, DedupKey: "k", ActionTime: due, OnDuplicate: client.Move, Timeout: time.Duration(i+1) * time.Second,
			})
			require.NoError(t, err)
			require.Equal(t, i == 1, s.Duplicate)
			require.Equal(t, []any{due, due, "order " + key}, []any{s.Task.ActionTime.Time(), s.Task.DueTime.Time(), s.Task.BizID.String()})
			got, err := c.n1.GetByKey(t.Context(), client.Key{BizType: "order_close", BizKey: "order " + key, DedupKey: "k"})
			require.NoError(t, err)
			require.Equal(t, s.Task, got)
		}
		require.NoError(t, c.n2.CancelByKey(t.Context(), client.Key{BizType: "order_close", BizKey: "order " + key, DedupKey: "k"}))
	}
}

// Any node returns whether a task runs, as its owner knows it; without the owner it returns the row.
func TestAnyNodeSaysWhatRuns(t *testing.T) {
	c := newCluster(t)
	id := c.stored(theirs, task.Pending)
	_, err := c.n2.Reschedule(t.Context(), id, client.Change{ActionTime: time.Now().Add(-time.Second)}) // due now, not within this millisecond
	require.NoError(t, err)
	taken, err := c.n2.lane.Take(t.Context(), 1)
	require.NoError(t, err)
	there, err := c.n2.Get(t.Context(), id)
	require.NoError(t, err)
	require.NotNil(t, there.Running)
	require.Equal(t, "n2", there.Running.Node)
	require.WithinDuration(t, time.Now(), there.Running.Since.Time(), time.Minute)
	here, err := c.n1.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, there, here)

	c.n2.queue.Return(taken[0])
	here, err = c.n1.Get(t.Context(), id)
	require.NoError(t, err)
	require.Nil(t, here.Running)
	c.n2.server.Close()
	alone, err := c.n1.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, here, alone)
}

func TestAnyNodeServesAnyRequest(t *testing.T) {
	c := newCluster(t)
	for _, at := range []*node{c.n1, c.n2} {
		for _, bizID := range []uint64{ours, theirs} {
			id := c.stored(bizID, task.Pending)
			due, attribute := time.Now().Add(5*time.Hour), "é<&>\u2028"
			got, err := at.Reschedule(t.Context(), id, client.Change{ActionTime: due, Attribute: &attribute})
			require.NoError(t, err)
			require.Equal(t, task.CeilMilli(due), got.ActionTime.Time())
			require.Equal(t, attribute, got.Attribute)
			require.Equal(t, "order_close", got.BizType)
			row, err := got.Task(1)
			require.NoError(t, err)
			require.Equal(t, c.row(id), row, "all columns come back")

			delay := 3 * time.Hour
			got, err = at.Reschedule(t.Context(), id, client.Change{Delay: &delay})
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(delay), got.ActionTime.Time(), time.Minute)

			past := c.stored(bizID, task.Pending)
			long := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
			_, err = at.Reschedule(t.Context(), past, client.Change{ActionTime: long})
			require.ErrorContains(t, err, "past: fire")
			got, err = at.Reschedule(t.Context(), past, client.Change{ActionTime: long, Past: client.Fire})
			require.NoError(t, err)
			require.Equal(t, long, got.DueTime.Time())

			require.NoError(t, at.Cancel(t.Context(), id))
			require.Equal(t, task.Cancelled, c.row(id).Status)

			got, err = at.Redrive(t.Context(), c.stored(bizID, task.Dead))
			require.NoError(t, err)
			require.Equal(t, "pending", got.Status)
		}
	}
	require.Equal(t, 4, c.n1.queue.Stats(1).Depth, "what was redriven or is past waits at its owner")
	require.Equal(t, 4, c.n2.queue.Stats(1).Depth)
}

// Every answer of an owner reaches the caller of another node unchanged.
func TestAnswersComeBackAsTheyWereGiven(t *testing.T) {
	c := newCluster(t)
	running := c.stored(theirs, task.Pending)
	// in the past, since no scanner would find it later
	_, err := c.n2.Reschedule(t.Context(), running, client.Change{ActionTime: time.Now().Add(-time.Second)})
	require.NoError(t, err)
	taken, err := c.n2.lane.Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, running, taken[0].ID())
	defer c.n2.queue.Return(taken[0])

	for name, change := range changes {
		for _, row := range []struct {
			id      uint64
			outcome string
		}{
			{c.stored(theirs, task.Processed), "already_processed"},
			{c.stored(theirs, task.Cancelled), "already_cancelled"},
			{c.stored(theirs, task.Dead), "dead"},
			{running, "running"},
			{c.stored(theirs, task.Pending), "pending"},
		} {
			if (name == "redrive") == (row.outcome == "dead") || name != "redrive" && row.outcome == "pending" {
				continue // that succeeds
			}
			before := c.row(row.id)
			there := refused(t, change(t, c.n2.Client, row.id), 409)
			here := refused(t, change(t, c.n1.Client, row.id), 409)
			require.Equal(t, row.outcome, here.Outcome, name)
			require.Equal(t, there, here, name)
			require.Equal(t, before, c.row(row.id))
		}
		unknown := c.store.NewID(theirs)
		require.Equal(t, refused(t, change(t, c.n2.Client, unknown), 404), refused(t, change(t, c.n1.Client, unknown), 404))
	}
	require.Empty(t, c.n1.log.String(), "a refusal is no trouble")
}

// Each node takes the other for the owner.
func TestAQuestionDoesNotGoRoundInACircle(t *testing.T) {
	c := newCluster(t)
	id := c.stored(theirs, task.Pending)
	c.mu.Lock()
	c.owners[1] = "n1"
	c.mu.Unlock()
	stale, l := one(t, c.address("n2"), func(cfg *forward.Config) {
		cfg.Node, cfg.Proof = "n1", peerproof.New("n1", func() []string { return []string{key} })
	})
	for name, ask := range map[string]func() error{
		"cancel":     func() error { return the(t, stale).Cancel(t.Context(), id) },
		"reschedule": func() error { _, err := the(t, stale).Reschedule(t.Context(), id, in(time.Hour)); return err },
		"redrive":    func() error { _, err := the(t, stale).Redrive(t.Context(), id); return err },
	} {
		before := c.n2.requests.Load()
		require.ErrorIs(t, ask(), task.ErrUnavailable, name)
		require.Equal(t, before+1, c.n2.requests.Load(), name)
	}
	require.Zero(t, c.n1.requests.Load(), "n2 has not asked back")
	require.Equal(t, task.Pending, c.row(id).Status)
	require.Empty(t, l.String(), "a node that does not own answers all the same")
}

func in(d time.Duration) api.Change {
	w := d
	return api.Change{Delay: &w}
}

// A node cannot decide while the owner is away, and answers when to try again; it serves all other requests.
func TestTheOwnerIsAway(t *testing.T) {
	c := newCluster(t)
	id := c.stored(theirs, task.Pending)
	c.n2.server.Close()
	for name, change := range changes {
		e := refused(t, change(t, c.n1.Client, id), 503)
		require.Equal(t, time.Second, e.RetryAfter, name)
		require.NotContains(t, e.Error(), "n2")
		require.NotContains(t, e.Error(), token)
	}
	require.Equal(t, task.Pending, c.row(id).Status)
	_, err := c.n1.Get(t.Context(), id)
	require.NoError(t, err)
	_, err = c.n1.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: theirs, Now: true})
	require.NoError(t, err)
	require.NoError(t, c.n1.Cancel(t.Context(), c.stored(ours, task.Pending)))

	require.Equal(t, 1, strings.Count(c.n1.log.String(), "node does not answer"), "the log is told once")
	require.Contains(t, c.n1.log.String(), "connection refused")
	require.NotContains(t, c.n1.log.String(), token)

	c.gives("")
	require.Equal(t, time.Second, refused(t, c.n1.Cancel(t.Context(), id), 503).RetryAfter)
	c.gives("n1") // took it over
	require.NoError(t, c.n1.Cancel(t.Context(), id))
}

// A task that one node stores and that is due soon runs at its owner, at once.
func TestWhatIsDueSoonIsQueuedByItsOwner(t *testing.T) {
	c := newCluster(t)
	s, err := c.n1.Submit(t.Context(), client.Submit{BizType: "order_close", BizID: theirs, Now: true})
	require.NoError(t, err)
	taken, err := c.n2.lane.Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, uint64(s.Task.JobID), taken[0].ID())
	c.n2.queue.Return(taken[0])

	var batch []client.Submit
	for range 2500 {
		batch = append(batch, client.Submit{BizType: "order_close", BizID: theirs, Now: true})
	}
	batch = append(batch, client.Submit{BizType: "order_close", BizID: theirs, Delay: time.Hour})
	results, err := c.n1.SubmitBatch(t.Context(), batch)
	require.NoError(t, err)
	want := map[uint64]bool{}
	for _, r := range results[:2500] {
		want[uint64(r.JobID)] = true
	}
	for len(want) > 0 {
		taken, err := c.n2.lane.Take(t.Context(), 100)
		require.NoError(t, err)
		for _, e := range taken {
			require.True(t, want[e.ID()], "queued once, and nothing else")
			delete(want, e.ID())
			defer c.n2.queue.Return(e)
		}
	}
	require.Zero(t, c.n1.queue.Stats(1).Depth)
}

func TestAnswersOfTheClusterItself(t *testing.T) {
	own, _ := one(t, "127.0.0.1:1", func(cfg *forward.Config) { cfg.Node = "n2" })
	_, err := own.Owner(0)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.ErrorContains(t, err, "not being worked")

	nobody, _ := one(t, "127.0.0.1:1", func(cfg *forward.Config) { cfg.Cluster = theOther{} })
	owner, err := nobody.Owner(7)
	require.ErrorIs(t, err, task.ErrUnavailable)
	require.EqualError(t, err, "no node owns partition 7 now")
	require.Nil(t, owner)
	require.Zero(t, nobody.Term(0))

	for _, address := range []string{"", ":", ":8080", "http://", "ftp://n2", "a b:80", "n2:port", "http://[::1", "\x00"} {
		bad, _ := one(t, address)
		owner, err := bad.Owner(0)
		require.ErrorIs(t, err, task.ErrUnavailable, address)
		require.ErrorContains(t, err, `node "n2"`)
		require.Nil(t, owner)
		require.False(t, errors.Is(err, task.ErrNotFound))
	}
}
