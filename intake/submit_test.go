package intake_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

var down = &store.DatabaseError{Database: 1, Op: "insert", Err: errors.New("connection refused")}

func TestSubmitStoresTheTaskAsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		at := r.start.Add(time.Hour).Add(123456 * time.Nanosecond)
		got, err := r.Submit(t.Context(), api.Submit{
			BizType: "order_close", BizID: math.MaxUint64, ActionTime: at.In(time.FixedZone("CET", 3600)),
			Attribute: "{\"über\":1}", DedupKey: "k",
		})
		require.NoError(t, err)
		require.False(t, got.Duplicate)
		row := got.Task
		require.NotZero(t, row.JobID)
		shard, ok := layout.ShardOf(row.JobID)
		require.True(t, ok)
		require.Equal(t, layout.Shard(math.MaxUint64), shard)
		require.Equal(t, task.Task{
			JobID: row.JobID, BizID: math.MaxUint64, BizType: 1, Status: task.Pending,
			ActionTime: at.Truncate(time.Millisecond).Add(time.Millisecond).UTC(),
			Attribute:  "{\"über\":1}", DedupKey: "k", Created: row.Created, Modified: row.Modified,
		}, row)
		require.Equal(t, row, r.row(row.JobID))
		require.WithinDuration(t, r.start, row.Created, time.Millisecond)
		require.Equal(t, 1, r.counts("order_close"))
	})
}

func TestTimesAreRoundedUpToAMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		whole := r.start.Truncate(time.Millisecond).UTC()
		for _, c := range []struct {
			when api.Submit
			want time.Time
		}{
			{api.Submit{ActionTime: whole}, whole},
			{api.Submit{ActionTime: whole.Add(1)}, whole.Add(time.Millisecond)},
			{api.Submit{ActionTime: whole.Add(time.Millisecond - 1)}, whole.Add(time.Millisecond)},
			{api.Submit{Delay: 0, Now: true}, whole.Add(time.Millisecond)}, // it is 0.4 ms past
			{api.Submit{Delay: 600 * time.Microsecond, Now: true}, whole.Add(time.Millisecond)},
			{api.Submit{Delay: 601 * time.Microsecond, Now: true}, whole.Add(2 * time.Millisecond)},
			{api.Submit{Delay: 30 * time.Minute, Now: true}, whole.Add(30*time.Minute + time.Millisecond)},
		} {
			c.when.BizType, c.when.BizID = "mail", 1
			got, err := r.Submit(t.Context(), c.when)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Task.ActionTime)
		}
	})
}

// good is a request that is accepted.
func good() api.Submit {
	return api.Submit{BizType: "order_close", BizID: 42, Delay: time.Minute}
}

// A task does not wait for the slower databases of its request. Before, it was held until all had answered.
func TestATaskDoesNotWaitForOtherDatabases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.fault.slow = make(chan struct{})
		batch := make([]api.Submit, 4)
		for i := range batch {
			batch[i] = api.Submit{BizType: "order_close", BizID: uint64(i), Now: true}
		}
		answered := make(chan []api.BatchResult)
		go func() {
			results, err := r.Service.SubmitBatch(t.Context(), batch)
			require.NoError(t, err)
			answered <- results
		}()
		synctest.Wait()
		require.Equal(t, 2, r.queued(), "the tasks of database 0 are due")
		close(r.fault.slow)
		for _, got := range <-answered {
			require.Nil(t, got.Err)
		}
		require.Equal(t, 4, r.queued())
		require.Equal(t, 4, r.submitted["order_close"], "each once")
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name    string
			change  func(*api.Submit)
			field   string
			message string
		}{
			{"no biz_type", func(s *api.Submit) { s.BizType = "" }, "biz_type", "is missing"},
			{"unknown biz_type", func(s *api.Submit) { s.BizType = "order_opn" }, "biz_type", `"order_opn" is not configured; there are: order_close, mail, push`},
			{"a biz_type of another case", func(s *api.Submit) { s.BizType = "Mail" }, "biz_type", "not configured"},
			{"a very long biz_type", func(s *api.Submit) { s.BizType = strings.Repeat("x", 1<<20) }, "biz_type", "not configured"},
			{"no time", func(s *api.Submit) { s.Delay = 0 }, "action_time", "is missing; give ActionTime, Delay or Now"},
			{"a negative delay", func(s *api.Submit) { s.Delay = -1 }, "delay", "is negative"},
			{"a delay of eleven years", func(s *api.Submit) { s.Delay = 11 * 365 * 24 * time.Hour }, "delay", "more than 10 years"},
			{"the longest delay", func(s *api.Submit) { s.Delay = math.MaxInt64 }, "delay", "more than 10 years"},
			{"too long ago", func(s *api.Submit) { s.ActionTime = now().Add(-5*time.Second - 1) }, "action_time", "more than 5s ago"},
			{"seconds given as milliseconds", func(s *api.Submit) { s.ActionTime = time.UnixMilli(now().Unix()) }, "action_time", "more than 5s ago"},
			{"milliseconds given as seconds", func(s *api.Submit) { s.ActionTime = time.Unix(now().UnixMilli(), 0) }, "action_time", "more than 10 years ahead"},
			{"eleven years ahead", func(s *api.Submit) { s.ActionTime = now().AddDate(11, 0, 0) }, "action_time", "more than 10 years ahead"},
			{"a long attribute", func(s *api.Submit) { s.Attribute = strings.Repeat("x", 4097) }, "attribute", "has 4097 bytes; at most 4096 fit"},
			{"a long attribute, in bytes", func(s *api.Submit) { s.Attribute = strings.Repeat("ä", 2049) }, "attribute", "has 4098 bytes; at most 4096 fit"},
			{"a broken attribute", func(s *api.Submit) { s.Attribute = "a\xff" }, "attribute", "is not valid UTF-8"},
			{"a long dedup_key", func(s *api.Submit) { s.DedupKey = strings.Repeat("x", 65) }, "dedup_key", "has 65 bytes; at most 64 fit"},
			{"a broken dedup_key", func(s *api.Submit) { s.DedupKey = "\xc3" }, "dedup_key", "is not valid UTF-8"},
		} {
			s := good()
			c.change(&s)
			_, err := r.Submit(t.Context(), s)
			var field *task.FieldError
			require.ErrorAs(t, err, &field, c.name)
			require.Equal(t, c.field, field.Field, c.name)
			require.Contains(t, field.Message, c.message, c.name)
			require.Less(t, len(field.Message), 300, c.name)
		}
		require.Zero(t, r.counts("order_close"))
		require.Zero(t, r.queued())
	})
}

// A submit that is repeated after its time returns the first task, like before.
func TestAReplayAfterItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		s := good()
		s.ActionTime, s.DedupKey = now().Add(time.Second), "order-42"
		first, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		r.after(time.Minute)
		unknown, other, keyless := s, s, s
		unknown.DedupKey, other.BizType, keyless.DedupKey = "order-43", "mail", ""
		got := r.SubmitBatch(t.Context(), []api.Submit{unknown, s, keyless, good(), other})
		require.NoError(t, got[1].Err)
		require.True(t, got[1].Duplicate)
		require.Equal(t, r.row(first.Task.JobID), got[1].Task)
		require.Equal(t, task.Processed, got[1].Task.Status)
		require.NoError(t, got[3].Err)
		for _, i := range []int{0, 2, 4} {
			var field *task.FieldError
			require.ErrorAs(t, got[i].Err, &field)
			require.Equal(t, "action_time", field.Field)
		}
	})
}

func TestWhatIsJustAllowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, change := range []func(*api.Submit){
			func(*api.Submit) {},
			func(s *api.Submit) { s.BizID = 0 },
			func(s *api.Submit) { s.ActionTime = now().Add(-5 * time.Second) },
			func(s *api.Submit) { s.ActionTime = now().Add(10 * 365 * 24 * time.Hour) },
			func(s *api.Submit) { s.Delay = 10 * 365 * 24 * time.Hour },
			func(s *api.Submit) { s.Attribute = strings.Repeat("😀", 1024) },
			func(s *api.Submit) { s.DedupKey = strings.Repeat("k", 64) },
			func(s *api.Submit) { s.Attribute = "'; DROP TABLE timeout_task_0000; --" },
		} {
			s := good()
			change(&s)
			got, err := r.Submit(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, s.Attribute, r.row(got.Task.JobID).Attribute)
		}
	})
}

func TestADedupKeyGivesTheFirstTask(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := good()
		s.DedupKey, s.Attribute = "k", "first"
		first, err := r.Submit(t.Context(), s)
		require.NoError(t, err)

		s.Attribute, s.Delay, s.Now = "second", 0, true
		again, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, result{Task: first.Task, Duplicate: true}, again)
		require.Equal(t, 1, r.counts("order_close"), "a duplicate is not counted")
		require.Zero(t, r.queued(), "and not queued, though it asked for now")

		r.become(first.Task, task.Cancelled)
		again, err = r.Submit(t.Context(), s)
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, task.Cancelled, again.Task.Status, "as it is now, whatever its state")
		require.Equal(t, "first", again.Task.Attribute)

		for name, change := range map[string]func(*api.Submit){
			"another key":          func(s *api.Submit) { s.DedupKey = "l" },
			"another case":         func(s *api.Submit) { s.DedupKey = "K" },
			"a space at the end":   func(s *api.Submit) { s.DedupKey = "k " },
			"another biz_id":       func(s *api.Submit) { s.BizID = 43 },
			"another biz_type":     func(s *api.Submit) { s.BizType = "mail" },
			"a biz_id of its own":  func(s *api.Submit) { s.BizID += 8 }, // the same table
			"no key":               func(s *api.Submit) { s.DedupKey = "" },
			"once more no key":     func(s *api.Submit) { s.DedupKey = "" },
			"a decomposed letter":  func(s *api.Submit) { s.DedupKey = "u\u0308" },
			"the composed one":     func(s *api.Submit) { s.DedupKey = "\u00fc" },
			"something like a NUL": func(s *api.Submit) { s.DedupKey = "k\u0000" },
		} {
			other := s
			change(&other)
			got, err := r.Submit(t.Context(), other)
			require.NoError(t, err, name)
			require.False(t, got.Duplicate, name)
		}
	})
}

func TestOneBadTaskDoesNotSpoilABatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.fault.insert = func(row *task.Task) error {
			if row.BizID == 7 {
				return down
			}
			return nil
		}
		var batch []api.Submit
		for id := range uint64(20) {
			s := good()
			s.BizID = id
			switch id {
			case 3:
				s.BizType = "nobody"
			case 5:
				s.Delay = 0
			case 11:
				s.DedupKey = strings.Repeat("x", 100)
			case 12, 14:
				s.BizID, s.DedupKey = 12, "twins"
			}
			batch = append(batch, s)
		}
		results := r.SubmitBatch(t.Context(), batch)
		require.Len(t, results, 20)
		stored := 0
		for i, got := range results {
			var field *task.FieldError
			switch i {
			case 3, 5, 11:
				require.ErrorAs(t, got.Err, &field)
				require.Equal(t, map[int]string{3: "biz_type", 5: "action_time", 11: "dedup_key"}[i], field.Field)
			case 7:
				require.ErrorIs(t, got.Err, task.ErrUnavailable)
			case 14:
				require.NoError(t, got.Err)
				require.True(t, got.Duplicate)
				require.Equal(t, results[12].Task.JobID, got.Task.JobID)
			default:
				require.NoError(t, got.Err)
				require.Equal(t, batch[i].BizID, got.Task.BizID)
				require.Equal(t, got.Task, r.row(got.Task.JobID))
				stored++
			}
		}
		require.Equal(t, 15, stored)
		require.Equal(t, stored, r.counts("order_close"))
		_, err := r.Service.SubmitBatch(t.Context(), nil)
		requireField(t, err, "tasks")
	})
}

// A task that is due before the next scan is queued at once and runs on time.
func TestWhatIsDueSoonIsQueuedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		var ids []uint64
		for i := range 40 {
			id := uint64(i)
			if layout.Partition(layout.Shard(id)) == 3 {
				continue
			}
			ids = append(ids, r.order(id, time.Duration(i*250)*time.Millisecond).JobID)
		}
		far := r.order(1, 10*time.Second+2*time.Millisecond)
		elsewhere := r.order(foreign, time.Second)
		_, err := r.Submit(t.Context(), api.Submit{BizType: "push", BizID: 1, Delay: time.Second})
		require.NoError(t, err)
		require.Equal(t, queue.Stats{}, r.queue.Stats(3), "another engine finds it")
		r.after(time.Minute)
		for _, id := range ids {
			require.Equal(t, []time.Time{r.row(id).ActionTime}, ceil(r.runs(id)))
		}
		require.Empty(t, r.runs(far.JobID), "the scanner finds it in time")
		require.Empty(t, r.runs(elsewhere.JobID), "another node finds it")
	})
}

// ceil gives times as an action_time that they belong to: the clock is 0.4 ms off.
func ceil(times []time.Time) []time.Time {
	for i := range times {
		times[i] = times[i].Truncate(time.Millisecond).UTC()
	}
	return times
}

// An insert that fails may have stored its row all the same. Nothing stays held,
// nothing runs from memory; the scanner finds what there is.
func TestASubmitThatFailsLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		r.fault.insert = func(*task.Task) error { return down }
		_, err := r.Submit(t.Context(), api.Submit{BizType: "order_close", BizID: 1, Now: true})
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.ErrorContains(t, err, "insert in database 1: connection refused")
		require.NoError(t, r.queue.WaitIdle(t.Context()))
		r.after(time.Minute)
		require.Empty(t, r.ran)
		require.Zero(t, r.counts("order_close"))
	})
}

// The store may have to give a task another job_id than it was held under.
func TestATaskThatGotAnotherIDIsLeftToTheScanner(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		taken := r.order(1, time.Hour)
		r.fault.insert = func(row *task.Task) error { row.JobID = taken.JobID; return nil }
		got, err := r.Submit(t.Context(), api.Submit{BizType: "order_close", BizID: 1, Now: true})
		require.NoError(t, err)
		require.Equal(t, taken.JobID, got.Task.JobID)
		require.Zero(t, r.queued())
		require.NoError(t, r.queue.WaitIdle(t.Context()))
	})
}

func TestManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		const callers, each = 8, 20
		errs := make(chan error, callers)
		for c := range callers {
			go func() {
				for i := range each {
					_, err := r.Submit(t.Context(), api.Submit{
						BizType: "order_close", BizID: uint64(8 * (c*each + i)), Delay: time.Duration(i) * 10 * time.Millisecond, Now: true,
						DedupKey: fmt.Sprint(c, i),
					})
					if err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		for range callers {
			require.NoError(t, <-errs)
		}
		r.after(time.Second)
		require.Len(t, r.ran, callers*each)
		for id, runs := range r.ran {
			require.Len(t, runs, 1)
			require.Equal(t, task.Processed, r.row(id).Status)
		}
		require.Equal(t, callers*each, r.counts("order_close"))
	})
}

// The insert takes so long that the tick which would have found the task is over before the row exists. Before,
// the task waited for the next tick. (This test has no scanner: the task never ran.)
func TestASlowInsertDoesNotMakeATaskLate(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, 14 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.work(0)
				r.fault.insert = func(*task.Task) error { time.Sleep(takes); return nil }
				one := r.order(1, 12*time.Second)
				far := r.order(2, time.Hour)
				r.after(time.Minute)
				at := one.ActionTime
				if answered := r.start.Add(takes); answered.After(at) {
					at = answered
				}
				require.Len(t, r.runs(one.JobID), 1)
				require.WithinDuration(t, at, r.runs(one.JobID)[0], 2*time.Millisecond, "the clock of the bubble stands still but for this")
				require.Empty(t, r.runs(far.JobID))
			})
		})
	}
}

// Others found the task, and it is over, while its submit still waits for the answer.
func TestASlowInsertDoesNotRunATaskTwice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.work(0)
		r.fault.insert = func(one *task.Task) error {
			time.Sleep(11 * time.Second)
			require.Equal(t, 1, r.Wake(t.Context(), []uint64{one.JobID}))
			time.Sleep(3 * time.Second)
			return nil
		}
		one := r.order(1, 12*time.Second)
		r.after(time.Minute)
		require.Equal(t, []time.Time{one.ActionTime}, ceil(r.runs(one.JobID)))
	})
}

// Of several submits that move one task the last one of a batch decides, also where another one is stored first:
// those with a time-out are written apart.
func TestTheLastMoveOfABatchDecides(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		one := func(key, attribute string, timeout time.Duration) api.Submit {
			return api.Submit{BizType: "order_close", BizID: 1, Delay: time.Hour, DedupKey: key, Attribute: attribute,
				Timeout: timeout, OnDuplicate: api.Move}
		}
		got := r.SubmitBatch(t.Context(), []api.Submit{one("other", "", 0), one("k", "first", time.Second), one("k", "second", 0), one("k", "third", 0)})
		for _, s := range got {
			require.NoError(t, s.Err)
		}
		require.Equal(t, got[1].Task.JobID, got[3].Task.JobID)
		require.Equal(t, "third", r.row(got[3].Task.JobID).Attribute)
		require.Equal(t, time.Second, r.row(got[3].Task.JobID).Timeout)
		require.Equal(t, r.row(got[3].Task.JobID), got[3].Task)

		// It is processed before it is moved.
		r.fault.move = func(m *store.Move) (bool, error) {
			r.byHand(m.JobID, "status = 2")
			r.fault.move = nil
			return false, nil
		}
		s, err := r.Submit(t.Context(), one("k", "fourth", 0))
		var conflict *task.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, task.ConflictProcessed, conflict.Conflict)
		require.Zero(t, s.Task)
	})
}

// Of many callers that move one task at once each one is answered with that task, and one of them is the last. At 799f0ec the
// task was "not as you have seen it" for most of them.
func TestManyMoveOneTaskAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		one := func(attribute string) api.Submit {
			return api.Submit{BizType: "order_close", BizID: 1, Delay: time.Hour, DedupKey: "k", Attribute: attribute, OnDuplicate: api.Move}
		}
		first, err := r.Submit(t.Context(), one("first"))
		require.NoError(t, err)
		r.fault.move = func(m *store.Move) (bool, error) {
			time.Sleep(time.Millisecond)
			return r.store.Move(t.Context(), *m)
		}
		moves := 0
		var last string
		var mu sync.Mutex
		var g errgroup.Group
		for i := range 100 {
			g.Go(func() error {
				got, err := r.Submit(t.Context(), one(strconv.Itoa(i)))
				mu.Lock()
				defer mu.Unlock()
				if err == nil && got.Duplicate && got.Task.JobID == first.Task.JobID && got.Task.Attribute == strconv.Itoa(i) {
					moves, last = moves+1, got.Task.Attribute
				}
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.Equal(t, 100, moves)
		require.Equal(t, last, r.row(first.Task.JobID).Attribute)

		hangs := make(chan struct{})
		r.fault.move = func(*store.Move) (bool, error) { <-hangs; return false, task.ErrUnavailable }
		g.Go(func() error { _, _ = r.Submit(t.Context(), one("hangs")); return nil })
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.Submit(impatient, one("waits"))
		require.ErrorIs(t, err, task.ErrUnavailable)
		close(hangs)
		require.NoError(t, g.Wait())
	})
}

// The statement of a move that got no answer takes effect late: not behind a newer move, and not for a caller that has gone.
func TestALateMoveDoesNotComeBehindANewerOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		one := func(attribute string) api.Submit {
			return api.Submit{BizType: "order_close", BizID: 1, Delay: time.Hour, DedupKey: "k", Attribute: attribute, OnDuplicate: api.Move}
		}
		_, err := r.Submit(t.Context(), one("first"))
		require.NoError(t, err)
		var late store.Move
		r.fault.move = func(m *store.Move) (bool, error) {
			late, r.fault.move = *m, nil
			return false, task.ErrUnavailable
		}
		_, err = r.Submit(t.Context(), one("second"))
		require.ErrorIs(t, err, task.ErrUnavailable)
		s, err := r.Submit(t.Context(), one("third"))
		require.NoError(t, err)
		applied, err := r.store.Move(t.Context(), late)
		require.NoError(t, err)
		require.False(t, applied)
		require.Equal(t, "third", r.row(s.Task.JobID).Attribute)

		gone, leave := context.WithCancel(t.Context())
		r.fault.insert = func(*task.Task) error { leave(); return nil }
		_, err = r.Submit(gone, one("fourth"))
		require.ErrorIs(t, err, task.ErrUnavailable)
		require.Equal(t, "third", r.row(s.Task.JobID).Attribute)
	})
}

// A replay that would move the task to a time that has passed is refused; one that keeps it is answered.
func TestAReplayOfAMove(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := api.Submit{BizType: "order_close", BizKey: "a text", ActionTime: now().Add(time.Second), DedupKey: "k", OnDuplicate: api.Move}
		first, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		r.after(time.Minute)
		var wrong *task.FieldError
		_, err = r.Submit(t.Context(), s)
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, "action_time", wrong.Field)
		s.OnDuplicate = api.Keep
		again, err := r.Submit(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, first.Task, again.Task)
	})
}
