package intake_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// fleet is a cluster whose partition 3 is another node's, as long as owns is nil.
type fleet struct {
	owns     func(partition int) bool
	next     func() bool // what owns will answer
	term     uint64
	peer     *peer
	ownerErr error // of Owner
}

func (f *fleet) Term(partition int) uint64 {
	owns := partition != 3
	if f.owns != nil {
		owns = f.owns(partition)
	}
	if !owns {
		return 0
	}
	return f.term + 1
}

// queued makes the fleet the queue.Ownership of its rig, which has heard of a loss when the next answer tells it.
type queued struct{ *fleet }

func (f queued) Term(partition int) uint64 {
	switch {
	case f.next == nil:
		return f.fleet.Term(partition)
	case f.next():
		return f.term + 1
	default:
		return 0
	}
}

func (f *fleet) Owner(int) (intake.Peer, error) { return f.peer, f.ownerErr }

func (f *fleet) Undelivered(string, uint64) func() bool { return nil }

func (f *fleet) Peers() []intake.Peer {
	if f.peer == nil {
		return nil
	}
	return []intake.Peer{f.peer}
}

// answers sets the results of Term, one after the other; the last one stays.
func (f *fleet) answers(list ...bool) {
	var mu sync.Mutex
	f.owns = func(int) bool {
		mu.Lock()
		defer mu.Unlock()
		now := list[0]
		list = list[min(1, len(list)-1):]
		return now
	}
	f.next = func() bool {
		mu.Lock()
		defer mu.Unlock()
		return list[0]
	}
}

// peer is a Service that records its requests and returns err.
type peer struct {
	r   *rig
	err error

	mu      sync.Mutex
	asked   []string
	change  api.Change
	ifMatch []string
	hangs   bool // in Get
	offered []uint64
}

func (p *peer) ask(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, what)
	return p.err
}

func (p *peer) Cancel(_ context.Context, _ uint64, opts ...api.ChangeOption) error {
	p.saw(opts)
	return p.ask("cancel")
}

func (p *peer) saw(opts []api.ChangeOption) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ifMatch = api.ConditionOf(opts).IfMatch
}

func (p *peer) Reschedule(_ context.Context, id uint64, c api.Change, opts ...api.ChangeOption) (api.Task, error) {
	p.saw(opts)
	p.change = c
	return theirs(id), p.ask("reschedule")
}

func theirs(id uint64) api.Task {
	return api.Task{JobID: api.ID(id), Status: "pending", Attribute: "theirs", Running: &api.Running{Node: "theirs"}}
}

func (p *peer) Redrive(_ context.Context, id uint64, opts ...api.ChangeOption) (api.Task, error) {
	p.saw(opts)
	return theirs(id), p.ask("redrive")
}

func (p *peer) Get(ctx context.Context, id uint64) (api.Task, error) {
	if p.hangs {
		<-ctx.Done()
		return api.Task{}, ctx.Err()
	}
	return theirs(id), p.ask("get")
}

func (p *peer) Why(context.Context, uint64) (api.Why, error) {
	return api.Why{Node: "theirs"}, p.ask("why")
}

func (p *peer) notify(tasks ...task.Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range tasks {
		p.offered = append(p.offered, t.JobID)
		if _, err := p.r.store.Get(context.Background(), t.JobID); err != nil {
			p.r.t.Errorf("task %d was offered before it was stored: %v", t.JobID, err)
		}
	}
}

func (p *peer) took() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.offered))
}

// Notify makes the fleet the dispatch.Nodes of its rig.
func (c *fleet) Notify(tasks ...task.Task) {
	if c.ownerErr == nil {
		c.peer.notify(tasks...)
	}
}

// clustered is a rig whose Service belongs to a cluster.
func clustered(t *testing.T, f func(t *testing.T, r *rig, c *fleet)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		c := &fleet{peer: &peer{r: r}}
		r.partitions.Store(c)
		types := r.Types()
		r.Service = intake.New(intake.Config{
			Store: r.fault, Queue: r.queue, Layout: layout, Catalog: task.NewCatalog(types), Observer: r,
			Dispatch: r.dispatcher(types, func(p int) bool { return c.Term(p) != 0 }, c),
			Cluster:  c, Now: now,
		})
		f(t, r, c)
	})
}

// changes are the three requests that the owner of a task decides.
var changes = map[string]func(ctx context.Context, r *rig, id uint64) error{
	"cancel": func(ctx context.Context, r *rig, id uint64) error { return r.Cancel(ctx, id) },
	"reschedule": func(ctx context.Context, r *rig, id uint64) error {
		_, err := r.Reschedule(ctx, id, in(3*time.Second))
		return err
	},
	"redrive": func(ctx context.Context, r *rig, id uint64) error {
		_, err := r.Redrive(ctx, id)
		return err
	},
}

func TestTheOwnerDecides(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		row := r.order(foreign, time.Hour)
		change := api.Change{Delay: ref(time.Minute), Attribute: ref("new")}

		require.NoError(t, r.Cancel(t.Context(), row.JobID))
		got, err := r.Reschedule(t.Context(), row.JobID, change)
		require.NoError(t, err)
		require.Equal(t, task.Task{JobID: row.JobID, Attribute: "theirs"}, got)
		require.Equal(t, change, c.peer.change)
		got, err = r.Redrive(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, "theirs", got.Attribute)
		require.Equal(t, []string{"cancel", "reschedule", "redrive"}, c.peer.asked)

		for name, ask := range changes {
			for _, answer := range []error{&task.ConflictError{JobID: row.JobID, Conflict: task.ConflictRunning}, task.ErrNotFound, task.ErrUnavailable} {
				c.peer.err = answer
				require.Equal(t, answer, ask(t.Context(), r, row.JobID), name)
			}
		}
		require.Equal(t, row, r.row(row.JobID), "nothing was changed from here")
		require.Zero(t, r.queued())
	})
}

// Each node refuses a wrong request at once, and asks no other node about its own tasks.
func TestTheOwnerIsNotAskedInVain(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		row := r.order(foreign, time.Hour)
		for _, wrong := range []api.Change{{}, in(-1), {Attribute: ref("\xff")}} {
			_, err := r.Reschedule(t.Context(), row.JobID, wrong)
			require.ErrorAs(t, err, new(*task.FieldError))
		}
		noShard, err := sharding.JobID(sharding.Epoch, layout.Shards(), 7)
		require.NoError(t, err)
		for _, ask := range changes {
			require.ErrorIs(t, ask(t.Context(), r, noShard), task.ErrNotFound)
		}
		require.NoError(t, r.Cancel(t.Context(), r.order(1, time.Hour).JobID))
		require.Empty(t, c.peer.asked)
	})
}

func TestWithoutAnOwnerNothingIsDecided(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		row := r.order(foreign, time.Hour)
		c.ownerErr = intake.Unavailable("nobody owns partition %d", 3)
		for name, ask := range changes {
			err := ask(t.Context(), r, row.JobID)
			require.ErrorIs(t, err, task.ErrUnavailable, name)
			require.EqualError(t, err, "nobody owns partition 3")
		}
		require.Empty(t, c.peer.asked)
		require.Equal(t, row, r.row(row.JobID))
	})
}

func TestAForwardedQuestionIsNotHandedOn(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		ctx := intake.Forwarded(t.Context(), "n2", 0)
		row := r.order(foreign, time.Hour)
		for name, ask := range changes {
			err := ask(ctx, r, row.JobID)
			require.ErrorIs(t, err, task.ErrUnavailable, name)
			require.ErrorContains(t, err, "forwarded already")
		}
		require.Empty(t, c.peer.asked)
		require.NoError(t, r.Cancel(ctx, r.order(1, time.Hour).JobID), "what is ours is decided")
	})
}

// The partition is lost before the task is held: nothing was changed, and the error says so.
func TestAPartitionThatIsLostBeforeTheTaskIsHeld(t *testing.T) {
	for name, ask := range changes {
		t.Run(name, func(t *testing.T) {
			clustered(t, func(t *testing.T, r *rig, c *fleet) {
				row := r.order(1, 5*time.Second)
				c.answers(true, false, true) // back at once
				require.ErrorIs(t, ask(t.Context(), r, row.JobID), task.ErrUnavailable)
				require.Equal(t, row, r.row(row.JobID))
				require.Equal(t, 1, r.queued(), "it is where it was")

				c.answers(true, false)
				require.ErrorIs(t, ask(t.Context(), r, row.JobID), task.ErrUnavailable)
				require.Equal(t, row, r.row(row.JobID))
				require.Zero(t, r.queued(), "nothing of a lost partition stays")
				require.Empty(t, c.peer.asked)
			})
		})
	}
}

// This process was paused between its question and the move: another node owned the partition meanwhile and may
// have run the task. So the answer is not success, whatever the store says. Before, it was if the partition had
// come back.
func TestAPartitionThatIsLostBeforeTheMove(t *testing.T) {
	for name, ask := range changes {
		for _, isBack := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, back=%t", name, isBack), func(t *testing.T) {
				lostBeforeTheMove(t, name, ask, isBack)
			})
		}
	}
}

func lostBeforeTheMove(t *testing.T, name string, ask func(context.Context, *rig, uint64) error, isBack bool) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		row := r.order(1, 5*time.Second)
		if name == "redrive" {
			row = r.order(1, time.Hour)
			r.become(row, task.Dead)
		}
		paused, resume := make(chan struct{}), make(chan struct{})
		r.fault.move = func(m *store.Move) (bool, error) {
			close(paused)
			<-resume
			return r.store.Move(context.Background(), *m)
		}
		answer := make(chan error, 1)
		go func() { answer <- ask(t.Context(), r, row.JobID) }()
		<-paused
		if isBack {
			c.term++
		} else {
			c.answers(false)
		}
		close(resume)
		err := <-answer
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.ErrorContains(t, err, "may or may not")
		require.NoError(t, r.queue.WaitPartition(t.Context(), 0), "nothing is held or queued")

		// A later call answers what the store has.
		r.fault.move = nil
		c.answers(true)
		if name == "cancel" {
			conflict(t, task.ConflictCancelled, r.Cancel(t.Context(), row.JobID))
		}
	})
}

// A task that was not changed, and one that was moved, must not stay in the queue of a node that has just lost
// them.
func TestAPartitionThatIsLostAtTheEnd(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		row := r.order(1, 5*time.Second)
		c.answers(true, true, false) // first, held; lost when it goes back to the queue
		_, err := r.Redrive(t.Context(), row.JobID)
		conflict(t, task.ConflictPending, err)
		require.Zero(t, r.queued())

		c.answers(true, true, true, true, false) // first, held, moved, near
		_, err = r.Reschedule(t.Context(), row.JobID, in(3*time.Second))
		require.NoError(t, err, "it was ours when it was moved")
		require.Zero(t, r.queued())

		c.answers(true, true, false) // near, near
		r.order(1, 3*time.Second)
		require.Zero(t, r.queued())
	})
}

// A dead task is in no queue, so any node redrives it. Its owner is notified.
func TestRedriveDeadNotifiesTheOwners(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		r.dead("order_close", 40)
		c.peer.err = task.ErrUnavailable
		got, err := r.RedriveDead(t.Context(), api.DeadRequest{})
		require.NoError(t, err)
		require.Equal(t, api.Redriven{Matched: 40, Redriven: 40}, got)
		require.Empty(t, c.peer.asked)
		require.Len(t, c.peer.took(), 10, "a quarter is theirs")
		require.Equal(t, 30, r.queued())
	})
}

// The owner explains a task. If it cannot, this node tells what it knows, and does not ask on.
func TestTheOwnerExplains(t *testing.T) {
	clustered(t, func(t *testing.T, r *rig, c *fleet) {
		row := r.order(foreign, time.Hour)
		said, err := r.Why(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, "theirs", said.Node)

		said, err = r.Why(intake.Forwarded(t.Context(), "n2", 0), row.JobID)
		require.NoError(t, err)
		require.Empty(t, said.Node, "this one")
		require.Empty(t, said.FailedRuns)
		attempts, why := 1, "boom"
		applied, err := r.store.Move(t.Context(), store.Move{JobID: row.JobID, Read: &row, Set: store.Set{Attempts: &attempts, LastError: &why}})
		require.NoError(t, err)
		require.True(t, applied)
		said, err = r.Why(intake.Forwarded(t.Context(), "n2", 0), row.JobID)
		require.NoError(t, err)
		row, err = r.store.Get(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, []api.FailedRun{{Attempt: 1, At: api.Time(row.Modified), Error: "boom"}}, said.FailedRuns)
		c.peer.err = intake.Unavailable("no answer")
		said, err = r.Why(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, "pending", said.State)
		require.Contains(t, said.Because[0], "(no answer)")
		require.Equal(t, []string{"why", "why"}, c.peer.asked)

		_, err = r.Why(t.Context(), row.JobID+1)
		require.ErrorIs(t, err, task.ErrNotFound)
	})
}

func (p *peer) Lease(context.Context, string, api.AskLease) (api.LeaseAnswer, error) {
	return api.LeaseAnswer{}, p.ask("lease")
}

func (p *peer) Settle(_ context.Context, list ...api.Settlement) ([]api.Settled, error) {
	return make([]api.Settled, len(list)), p.ask("settle")
}
