package intake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

func conflict(t *testing.T, want task.Conflict, err error) {
	t.Helper()
	var c *task.ConflictError
	require.ErrorAs(t, err, &c)
	require.Equal(t, want, c.Conflict)
}

func ref[T any](v T) *T { return &v }

func in(d time.Duration) api.Change { return api.Change{Delay: &d} }

func TestACancelledTaskNeverFires(t *testing.T) {
	for name, in := range map[string]time.Duration{
		"waiting":            5 * time.Second,
		"about to be due":    20 * time.Millisecond,
		"in the store alone": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.work(0)
				row := r.order(1, in)
				require.NoError(t, r.Cancel(t.Context(), row.JobID))
				require.Equal(t, task.Cancelled, r.row(row.JobID).Status)
				require.Zero(t, r.queued())
				r.after(2 * time.Hour)
				require.Empty(t, r.runs(row.JobID))
			})
		})
	}
}

// The errors of a task that cannot be changed, and of one that does not exist.
func TestConflicts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rows := map[task.Status]task.Task{}
		for _, s := range []task.Status{task.Pending, task.Processed, task.Cancelled, task.Dead} {
			rows[s] = r.order(1, time.Hour)
			if s != task.Pending {
				r.become(rows[s], s)
			}
		}
		running := r.order(1, -time.Second)
		taken, err := r.lane.Take(t.Context(), 1)
		require.NoError(t, err)

		reschedule := func(id uint64) error {
			_, err := r.Reschedule(t.Context(), id, in(time.Hour))
			return err
		}
		redrive := func(id uint64) error {
			_, err := r.Redrive(t.Context(), id)
			return err
		}
		cancel := func(id uint64) error { return r.Cancel(t.Context(), id) }
		for status, want := range map[task.Status]task.Conflict{
			task.Processed: task.ConflictProcessed, task.Cancelled: task.ConflictCancelled, task.Dead: task.ConflictDead,
		} {
			conflict(t, want, cancel(rows[status].JobID))
			conflict(t, want, reschedule(rows[status].JobID))
			if status != task.Dead {
				conflict(t, want, redrive(rows[status].JobID))
			}
		}
		conflict(t, task.ConflictPending, redrive(rows[task.Pending].JobID))
		for name, change := range map[string]func(uint64) error{"cancel": cancel, "reschedule": reschedule, "redrive": redrive} {
			conflict(t, task.ConflictRunning, change(running.JobID))
			unknown, err := sharding.JobID(sharding.Epoch, 3, 7)
			require.NoError(t, err)
			require.ErrorIs(t, change(unknown), task.ErrNotFound, name)
			noShard, err := sharding.JobID(sharding.Epoch, layout.Shards(), 7)
			require.NoError(t, err)
			require.ErrorIs(t, change(noShard), task.ErrNotFound, name)
			require.ErrorIs(t, change(1<<63), task.ErrNotFound, name)
			require.ErrorIs(t, change(0), task.ErrNotFound, name)
		}
		for s, row := range rows {
			require.Equal(t, s, r.row(row.JobID).Status, "nothing was changed")
		}
		r.fire(taken[0], 0)
		conflict(t, task.ConflictProcessed, cancel(running.JobID))
	})
}

func TestOfManyCancelsOneWins(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, in := range []time.Duration{5 * time.Second, time.Hour} {
			row := r.order(1, in)
			const callers = 20
			errs := make(chan error, callers)
			for range callers {
				go func() { errs <- r.Cancel(t.Context(), row.JobID) }()
			}
			won := 0
			for range callers {
				if err := <-errs; err == nil {
					won++
				} else {
					conflict(t, task.ConflictCancelled, err)
				}
			}
			require.Equal(t, 1, won)
		}
	})
}

// If the caller left before its change began, nothing changes: the task runs at its time.
func TestAChangeOfACallerThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		near, far := r.order(1, 5*time.Second), r.order(1, time.Hour)
		for _, row := range []task.Task{near, far} {
			require.ErrorIs(t, r.Cancel(gone, row.JobID), task.ErrNotBegun)
			when := time.Minute
			_, err := r.Reschedule(gone, row.JobID, api.Change{Delay: &when})
			require.ErrorIs(t, err, task.ErrNotBegun)
			require.Equal(t, row, r.row(row.JobID))
		}
		time.Sleep(6 * time.Second)
		require.Len(t, r.runs(near.JobID), 1)
		require.Less(t, r.runs(near.JobID)[0].Sub(near.ActionTime), 100*time.Millisecond)
	})
}

// Cancel or run may win the race. The answer is right in both cases.
func TestACancelThatRacesWithTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		const tasks = 60
		var all sync.WaitGroup
		errs := make([]error, tasks)
		rows := make([]task.Task, tasks)
		for i := range tasks {
			rows[i] = r.order(uint64(8*i), time.Duration(100+rand.IntN(5))*time.Millisecond)
		}
		for i := range tasks {
			all.Go(func() {
				time.Sleep(time.Duration(100_000+rand.IntN(5000)) * time.Microsecond)
				errs[i] = r.Cancel(t.Context(), rows[i].JobID)
			})
		}
		all.Wait()
		r.after(time.Minute)
		cancelled := 0
		for i, row := range rows {
			runs, status := r.runs(row.JobID), r.row(row.JobID).Status
			if errs[i] == nil {
				cancelled++
				require.Empty(t, runs)
				require.Equal(t, task.Cancelled, status)
				continue
			}
			var c *task.ConflictError
			require.ErrorAs(t, errs[i], &c)
			require.Contains(t, []task.Conflict{task.ConflictRunning, task.ConflictProcessed}, c.Conflict)
			require.Len(t, runs, 1)
			require.Equal(t, task.Processed, status)
		}
		t.Logf("%d of %d cancelled in time", cancelled, tasks)
	})
}

func TestRescheduleIsHonoured(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to time.Duration
		runs     bool // without a scanner
	}{
		{"to later", 2 * time.Second, 8 * time.Second, true},
		{"to earlier", 8 * time.Second, 2 * time.Second, true},
		{"to now", 8 * time.Second, 0, true},
		{"from far to near", time.Hour, 3 * time.Second, true},
		{"from near to far", 3 * time.Second, time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.work(0)
				row := r.order(1, c.from)
				r.after(time.Second)
				got, err := r.Reschedule(t.Context(), row.JobID, in(c.to))
				require.NoError(t, err)
				require.Equal(t, task.CeilMilli(now().Add(c.to)), got.ActionTime)
				require.Equal(t, got, r.row(row.JobID))
				require.Equal(t, row.Attribute, got.Attribute)
				r.after(30 * time.Minute)
				if c.runs {
					require.Equal(t, []time.Time{got.ActionTime}, ceil(r.runs(row.JobID)))
				} else {
					require.Empty(t, r.runs(row.JobID))
				}
			})
		})
	}
}

func TestRescheduleChangesWhatIsGiven(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		before := r.order(1, 5*time.Second)
		got, err := r.Reschedule(t.Context(), before.JobID, api.Change{Attribute: ref("new")})
		require.NoError(t, err)
		require.Equal(t, "new", got.Attribute)
		require.Equal(t, before.ActionTime, got.ActionTime)
		require.Equal(t, 1, r.queued())

		at := r.start.Add(3 * time.Second)
		got, err = r.Reschedule(t.Context(), before.JobID, api.Change{ActionTime: at, Attribute: ref("")})
		require.NoError(t, err)
		require.Empty(t, got.Attribute)
		require.Equal(t, task.CeilMilli(at), got.ActionTime)
		require.Equal(t, before.Created, got.Created)
		require.Equal(t, got, r.row(before.JobID))

		r.work(0)
		r.after(time.Minute)
		require.Equal(t, []time.Time{got.ActionTime}, ceil(r.runs(before.JobID)))
	})
}

func TestRescheduleRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, 5*time.Second)
		for field, c := range map[string]api.Change{
			"action_time": {},
			"delay":       in(-time.Second),
			"attribute":   {Delay: ref(time.Second), Attribute: ref(strings.Repeat("x", 4097))},
		} {
			_, err := r.Reschedule(t.Context(), row.JobID, c)
			var refused *task.FieldError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, field, refused.Field)
		}
		for _, c := range []api.Change{{}, {ActionTime: now().Add(-time.Minute)}, {ActionTime: now().AddDate(20, 0, 0)}} {
			_, err := r.Reschedule(t.Context(), row.JobID, c)
			var refused *task.FieldError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "action_time", refused.Field)
		}
		require.Equal(t, row, r.row(row.JobID))
		require.Equal(t, 1, r.queued())
	})
}

func TestRedriveGivesAFreshStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, time.Hour)
		r.become(row, task.Dead)
		r.work(0)
		got, err := r.Redrive(t.Context(), row.JobID)
		require.NoError(t, err)
		require.Equal(t, task.Pending, got.Status)
		require.Zero(t, got.Attempts)
		require.Equal(t, task.CeilMilli(now()), got.ActionTime)
		r.after(time.Second)
		require.Equal(t, []time.Time{got.ActionTime}, ceil(r.runs(row.JobID)))
		require.Equal(t, task.Processed, r.row(row.JobID).Status)
	})
}

// Who has read that a task is dead may redrive it: the queue learns of the outcome an instant after the store. A status that a hand
// has written ends no run.
func TestARedriveWaitsForTheQueueToLearn(t *testing.T) {
	for name, ends := range map[string]bool{"the run ends": true, "a hand": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				row := r.order(1, -time.Second)
				taken, err := r.lane.Take(t.Context(), 1)
				require.NoError(t, err)
				r.become(row, task.Dead)
				began := time.Now()
				if ends {
					time.AfterFunc(500*time.Millisecond, func() { r.queue.Done(taken[0], row, false) })
				}
				got, err := r.Redrive(t.Context(), row.JobID)
				if !ends {
					conflict(t, task.ConflictRunning, err)
					conflict(t, task.ConflictRunning, r.Cancel(t.Context(), row.JobID))
					r.queue.Done(taken[0], row, false)
					return
				}
				require.NoError(t, err)
				require.Equal(t, 500*time.Millisecond, time.Since(began))
				require.Equal(t, task.Pending, got.Status)
				again, err := r.lane.Take(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, row.JobID, again[0].ID())
				r.queue.Done(again[0], got, false)
			})
		})
	}
}

// Who has answered for a run that failed may cancel or move its task at once: the outcome is recorded a little later.
func TestAChangeWaitsForTheOutcomeOfARunThatHasEnded(t *testing.T) {
	changes := map[string]func(r *rig, id uint64) error{
		"cancel": func(r *rig, id uint64) error { return r.Cancel(r.t.Context(), id) },
		"move":   func(r *rig, id uint64) error { _, err := r.Reschedule(r.t.Context(), id, in(time.Hour)); return err },
		"submit": func(r *rig, _ uint64) error {
			s := good()
			s.DedupKey, s.OnDuplicate, s.Delay, s.ActionTime = "k", api.Move, time.Hour, time.Time{}
			_, err := r.Submit(r.t.Context(), s)
			return err
		},
	}
	for name, change := range changes {
		for _, fails := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, fails %t", name, fails), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					s := good()
					s.DedupKey, s.Delay, s.ActionTime = "k", 0, now().Add(-time.Second)
					first, err := r.Submit(t.Context(), s)
					require.NoError(t, err)
					row := first.Task
					taken, err := r.lane.Take(t.Context(), 1)
					require.NoError(t, err)
					conflict(t, task.ConflictRunning, change(r, row.JobID))
					r.queue.RunsEnded(taken...)
					time.AfterFunc(500*time.Millisecond, func() {
						if !fails {
							r.become(row, task.Processed)
							row.Status = task.Processed
						}
						r.queue.Done(taken[0], row, false)
					})
					began := time.Now()
					if err := change(r, row.JobID); fails {
						require.NoError(t, err)
					} else {
						conflict(t, task.ConflictProcessed, err)
					}
					require.Equal(t, 500*time.Millisecond, time.Since(began))
				})
			})
		}
	}
}

// A question that changes nothing must not take a task out of the queue.
func TestARedriveOfAPendingTaskLeavesItInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		row := r.order(1, 3*time.Second)
		_, err := r.Redrive(t.Context(), row.JobID)
		conflict(t, task.ConflictPending, err)
		r.after(time.Minute)
		require.Equal(t, []time.Time{row.ActionTime}, ceil(r.runs(row.JobID)))
	})
}

func (r *rig) dead(bizType string, n int) (ids []uint64) {
	r.t.Helper()
	var batch []api.Submit
	for i := range n {
		batch = append(batch, api.Submit{BizType: bizType, BizID: uint64(i), Delay: time.Hour})
	}
	var all sync.WaitGroup
	for _, got := range r.SubmitBatch(r.t.Context(), batch) {
		require.NoError(r.t, got.Err)
		ids = append(ids, got.Task.JobID)
		all.Go(func() { r.become(got.Task, task.Dead) })
	}
	all.Wait()
	return ids
}

func TestRedriveDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		orders, mails := r.dead("order_close", 620), r.dead("mail", 30) // more than a page
		ctx := t.Context()
		pending := func(ids []uint64) (n int) {
			rows, err := r.store.Load(ctx, ids)
			require.NoError(t, err)
			for _, row := range rows {
				if row.Status == task.Pending {
					n++
				}
			}
			return n
		}
		got, err := r.RedriveDead(ctx, api.DeadRequest{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, api.Redriven{Matched: 650}, got)
		require.Zero(t, pending(orders)+pending(mails))

		got, err = r.RedriveDead(ctx, api.DeadRequest{BizType: "order_close", Limit: 7})
		require.NoError(t, err)
		require.Equal(t, api.Redriven{Matched: 620, Redriven: 7}, got)
		require.Equal(t, 7, pending(orders))

		got, err = r.RedriveDead(ctx, api.DeadRequest{BizType: "order_close"})
		require.NoError(t, err)
		require.Equal(t, api.Redriven{Matched: 613, Redriven: 613}, got)
		require.Equal(t, 620, pending(orders))
		require.Zero(t, pending(mails))

		got, err = r.RedriveDead(ctx, api.DeadRequest{Limit: 100})
		require.NoError(t, err)
		require.Equal(t, api.Redriven{Matched: 30, Redriven: 30}, got)
		got, err = r.RedriveDead(ctx, api.DeadRequest{})
		require.NoError(t, err)
		require.Zero(t, got)

		var refused *task.FieldError
		_, err = r.RedriveDead(ctx, api.DeadRequest{BizType: "nobody"})
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "biz_type", refused.Field)
		_, err = r.RedriveDead(ctx, api.DeadRequest{Limit: -1})
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "limit", refused.Field)
	})
}

// A discarded task is cancelled, and the audit says who did it. A dry run leaves no trace.
func TestDiscardDead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		orders, mails := r.dead("order_close", 5), r.dead("mail", 3)
		ctx := t.Context()
		_, err := r.DiscardDead(ctx, api.DeadRequest{DryRun: true})
		require.NoError(t, err)
		got, err := r.DiscardDead(ctx, api.DeadRequest{BizType: "order_close", Error: "shop", Limit: 4})
		require.NoError(t, err)
		require.Equal(t, api.Discarded{Matched: 5, Discarded: 4}, got)
		cancelled := 0
		for _, id := range orders {
			row := r.row(id)
			require.Equal(t, "the shop is down", row.LastError)
			if row.Status == task.Cancelled {
				cancelled++
			}
		}
		require.Equal(t, 4, cancelled)
		for _, id := range mails {
			require.Equal(t, task.Dead, r.row(id).Status)
		}
		_, err = r.Redrive(ctx, mails[0])
		require.NoError(t, err)
		log, err := r.Audit(ctx, api.Audit{})
		require.NoError(t, err)
		require.Len(t, log.Entries, 2)
		counts := map[string]int{}
		for _, e := range log.Entries {
			require.Equal(t, "api", e.Actor)
			counts[e.Action+" "+e.Target+" "+e.Detail] = e.Count
		}
		require.Equal(t, 4, counts[`discard order_close {"error":"shop","limit":4}`])
	})
}

func TestRedriveDeadTellsHowFarItCame(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.dead("order_close", 20)
		gone, err := r.store.Move(t.Context(), store.Move{JobID: ids[3], From: task.Dead, To: task.Pending})
		require.NoError(t, err)
		require.True(t, gone)
		r.fault.move = func(m *store.Move) (bool, error) {
			switch m.JobID {
			case ids[4]:
				return false, down
			case ids[5]: // another caller is faster
				ok, err := r.store.Move(t.Context(), *m)
				require.True(t, ok)
				return false, err
			}
			return r.store.Move(t.Context(), *m)
		}
		got, err := r.RedriveDead(t.Context(), api.DeadRequest{})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.Equal(t, api.Redriven{Matched: 19, Redriven: 17}, got)
	})
}

// When the store cannot decide, nothing stays held and nothing runs from memory. The task may or may not have
// changed; the scanner finds what the store has.
func TestAChangeThatFailsLeavesNothingHeld(t *testing.T) {
	change := map[string]func(r *rig, id uint64) error{
		"cancel": func(r *rig, id uint64) error { return r.Cancel(r.t.Context(), id) },
		"reschedule": func(r *rig, id uint64) error {
			_, err := r.Reschedule(r.t.Context(), id, in(3*time.Second))
			return err
		},
		"redrive": func(r *rig, id uint64) error {
			_, err := r.Redrive(r.t.Context(), id)
			return err
		},
	}
	fail := map[string]func(f *faults){
		"before": func(f *faults) { f.move = func(*store.Move) (bool, error) { return false, down } },
		"after":  func(f *faults) { f.moved = func(*store.Move) error { return down } },
		"asking": func(f *faults) {
			f.move = func(*store.Move) (bool, error) { return false, nil }
			f.get = func(uint64) error { return down }
		},
	}
	for what, do := range change {
		for how, hurt := range fail {
			t.Run(what+" "+how, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					row := r.order(1, 5*time.Second)
					if what == "redrive" {
						row = r.order(1, time.Hour)
						r.become(row, task.Dead)
						require.NoError(t, r.Cancel(t.Context(), r.order(1, time.Hour).JobID))
					}
					hurt(r.fault)
					require.ErrorIs(t, do(r, row.JobID), task.ErrUnavailable)
					r.fault.move, r.fault.moved, r.fault.get = nil, nil, nil

					// A second call is decided.
					err := do(r, row.JobID)
					if how == "after" && what != "reschedule" {
						var c *task.ConflictError
						require.ErrorAs(t, err, &c, "it had been done")
						return
					}
					require.NoError(t, err)
				})
			})
		}
	}
}

func TestATaskThatKeepsChangingIsNotDecided(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, 5*time.Second)
		tries := 0
		r.fault.move = func(*store.Move) (bool, error) { tries++; return false, nil }
		err := r.Cancel(t.Context(), row.JobID)
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.ErrorContains(t, err, "keeps changing")
		require.Equal(t, 3, tries)
	})
}

// A caller that leaves does not leave a change half done: a change that is made is also queued, and nothing
// stays held.
func TestACallerThatLeavesDoesNotStopAChange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		row := r.order(1, time.Hour)
		ctx, leave := context.WithCancel(t.Context())
		r.fault.moved = func(*store.Move) error { leave(); return nil }
		_, err := r.Reschedule(ctx, row.JobID, in(3*time.Second))
		require.NoError(t, err)
		r.after(time.Minute)
		require.Len(t, r.runs(row.JobID), 1)
	})
}

func TestACallerThatWaitsForAnotherMayLeave(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		row := r.order(1, time.Hour)
		r.fault.moved = func(*store.Move) error { time.Sleep(time.Minute); return nil }
		first := make(chan error, 1)
		go func() { first <- r.Cancel(t.Context(), row.JobID) }()
		synctest.Wait()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		require.ErrorIs(t, r.Cancel(ctx, row.JobID), context.DeadlineExceeded)
		require.NoError(t, <-first)
	})
}

// Cancels, moves and runs of the same few tasks, all at once.
func TestEverybodyAtTheSameTasks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(3 * time.Millisecond)
		var rows []task.Task
		for i := range 10 {
			rows = append(rows, r.order(uint64(8*i), time.Duration(i*20)*time.Millisecond))
		}
		cancelled := make(map[uint64]int)
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 15 {
					time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
					id := rows[rand.IntN(len(rows))].JobID
					var err error
					if rand.IntN(3) == 0 {
						if err = r.Cancel(t.Context(), id); err == nil {
							mu.Lock()
							cancelled[id]++
							mu.Unlock()
						}
					} else {
						_, err = r.Reschedule(t.Context(), id, in(time.Duration(rand.IntN(200))*time.Millisecond))
					}
					var c *task.ConflictError
					if err != nil && !errors.As(err, &c) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		r.after(time.Minute)
		for _, row := range rows {
			end := r.row(row.JobID)
			require.NotEqual(t, task.Pending, end.Status, "lost")
			require.Equal(t, end.Status == task.Cancelled, cancelled[row.JobID] == 1)
			require.Equal(t, end.Status == task.Processed, len(r.runs(row.JobID)) == 1)
		}
		require.Equal(t, queue.Stats{}, r.queue.Stats(1))
	})
}
