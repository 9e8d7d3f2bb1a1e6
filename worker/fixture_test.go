package worker_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/queue"
	"github.com/timeoutcenter/toc/queue/dispatch"
	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// layout has two databases with two partitions each.
var layout = sharding.Layout{Databases: 2, TablesPerDatabase: 4, Partitions: 4}

// memory is a store in memory whose databases can be made to fail.
type memory struct {
	mu    sync.Mutex
	rows  map[uint64]task.Task
	stamp int64
	calls []applyCall
	down  map[int]bool // databases whose last Apply failed

	// beforeMoves may fail MoveAll, or hold it up, and so the marks. afterMoves may lose its answer. May be nil.
	beforeMoves func(database int) error
	afterMoves  func() error

	locked       map[uint64]bool // rows that are locked by hand
	table        error           // why those cannot be written; nil: another transaction
	lockedTables bool            // and their tables, so that they cannot be read either
	lockNext     uint64          // will be locked with its table after its next move

	// beforeApply and beforeLoad may fail a call, or hold it up. May be nil.
	beforeApply func(ctx context.Context, database int) error
	beforeLoad  func(ctx context.Context, database int) error
}

type applyCall struct {
	at       time.Time
	database int
	stamp    time.Time
	moves    []store.Move
}

func (s *memory) Stamp(int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp++
	return time.UnixMilli(s.stamp)
}

// applyCalls returns the calls of Apply so far.
func (s *memory) applyCalls() []applyCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *memory) Apply(ctx context.Context, database int, stamp time.Time, moves []store.Move) ([]bool, error) {
	s.mu.Lock()
	s.calls = append(s.calls, applyCall{time.Now(), database, stamp, append([]store.Move{}, moves...)})
	s.mu.Unlock()
	if s.beforeApply != nil {
		if err := s.beforeApply(ctx, database); err != nil {
			s.setDown(database, true)
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.setDown(database, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	applied := make([]bool, len(moves))
	held := make(map[uint64]error)
	for i, m := range moves {
		if s.locked[m.JobID] {
			held[m.JobID] = s.table
			continue
		}
		applied[i] = s.applyOne(m)
	}
	if s.lockNext != 0 && slices.ContainsFunc(moves, func(m store.Move) bool { return m.JobID == s.lockNext }) {
		s.locked, s.lockedTables = map[uint64]bool{s.lockNext: true}, true
	}
	if len(held) > 0 {
		return applied, &store.DatabaseError{Database: database, Op: "update", Err: &store.LockedError{Tasks: held}}
	}
	return applied, nil
}

func (s *memory) applyOne(m store.Move) bool {
	row, ok := s.rows[m.JobID]
	if !ok || row.Status != m.From || m.HasLease != nil && row.Lease != *m.HasLease || m.DueBy != nil && row.ActionTime.After(*m.DueBy) ||
		m.Read != nil && (m.DueBy == nil && !row.ActionTime.Equal(m.Read.ActionTime) || row.Attempts != m.Read.Attempts) {
		return false
	}
	row.Status = m.To
	if m.KeepDue && row.DueTime.IsZero() {
		row.DueTime = row.ActionTime
	}
	if m.Lease != nil {
		row.Lease = *m.Lease
	}
	if m.Lease == nil && m.From != m.To {
		row.Lease = 0
	}
	if m.ActionTime != nil {
		row.ActionTime = *m.ActionTime
	}
	if m.Restore {
		row.ActionTime = row.Promised()
	}
	if m.Attempts != nil {
		row.Attempts = *m.Attempts
	}
	if m.LastError != nil {
		row.LastError = *m.LastError
	}
	if m.Promised != nil && row.DueTime.IsZero() {
		row.DueTime = *m.Promised
	}
	s.rows[m.JobID] = row
	return true
}

// ApplyLater tries each second, like the store.
func (s *memory) ApplyLater(ctx context.Context, database int, m store.Move, done func(applied bool, err error)) {
	go func() {
		for {
			_ = wait.For(ctx, time.Second)
			applied, err := s.Apply(ctx, database, s.Stamp(database), []store.Move{m})
			if err == nil || ctx.Err() != nil {
				done(err == nil && applied[0], err)
				return
			}
		}
	}()
}

func (s *memory) MoveAll(ctx context.Context, moves []store.Move) []store.Moved {
	results := make([]store.Moved, len(moves))
	for i, m := range moves {
		shard, _ := layout.ShardOf(m.JobID)
		if s.beforeMoves != nil {
			if results[i].Err = s.beforeMoves(layout.Database(shard)); results[i].Err != nil {
				continue
			}
		}
		applied, err := s.Apply(context.WithoutCancel(ctx), layout.Database(shard), s.Stamp(0), []store.Move{m})
		if s.afterMoves != nil {
			err = cmp.Or(err, s.afterMoves())
		}
		results[i] = store.Moved{Applied: err == nil && applied[0], Err: err}
	}
	return results
}

func (s *memory) Superseded(_ context.Context, _ int, tasks []task.Task, of store.Rivals) (map[uint64]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[uint64]bool)
	for _, t := range tasks {
		for _, r := range s.rows {
			if r.BizType == t.BizType && r.BizID == t.BizID && (r.Status == task.Pending || r.Status == task.Processed) && !r.ActionTime.After(of.Now) && task.KeyOf(&t).Before(task.KeyOf(&r)) {
				found[t.JobID] = true
			}
		}
	}
	return found, nil
}

func (s *memory) setDown(database int, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down == nil {
		s.down = make(map[int]bool)
	}
	s.down[database] = down
}

func (s *memory) Writable(database int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.down[database]
}

// all is a copy of all rows.
func (s *memory) all() map[uint64]task.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rows)
}

// lock locks rows as a forgotten COMMIT does; unlock frees all.
func (s *memory) lock(ids ...uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked == nil {
		s.locked = make(map[uint64]bool)
	}
	for _, id := range ids {
		s.locked[id] = true
	}
}

func (s *memory) unlock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked, s.lockedTables, s.lockNext = nil, false, 0
}

// lockTables locks the tables of rows: they cannot be read either.
func (s *memory) lockTables(ids ...uint64) {
	s.lock(ids...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedTables = true
}

// lockLater locks the table of a row after the row's next move.
func (s *memory) lockLater(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockNext = id
}

func (s *memory) Leased(_ context.Context, partition int, bizType uint64, now, until time.Time) (leased []task.Task, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range s.rows {
		if layout.Partition(layout.Shard(row.BizID)) == partition && row.BizType == bizType && row.IsLeased(now) && !row.ActionTime.After(until) {
			leased = append(leased, row)
		}
	}
	return leased, nil
}

func (s *memory) NextDue(_ context.Context, partition int) (at time.Time, none bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	none = true
	for _, row := range s.rows {
		if layout.Partition(layout.Shard(row.BizID)) == partition && row.Status == task.Pending && (none || row.ActionTime.Before(at)) {
			at, none = row.ActionTime, false
		}
	}
	return at, none, nil
}

func (s *memory) Load(ctx context.Context, ids []uint64) (found []task.Task, err error) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		all := len(found)
		found = slices.DeleteFunc(found, func(t task.Task) bool { return s.lockedTables && s.locked[t.JobID] })
		if len(found) < all {
			err = fmt.Errorf("load: %w", task.ErrLocked)
		}
	}()
	if s.beforeLoad != nil {
		shard, _ := layout.ShardOf(ids[0])
		if err := s.beforeLoad(ctx, layout.Database(shard)); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if row, ok := s.rows[id]; ok {
			found = append(found, row)
		}
	}
	return found, nil
}

// marks are the counts of starts without an end, by job_id.
func (s *memory) marks() map[uint64]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[uint64]int{}
	for id, row := range s.rows {
		if n := row.Cuts(); n > 0 {
			counts[id] = n
		}
	}
	return counts
}

func (s *memory) row(id uint64) task.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id]
}

// byHand changes a row as plain SQL would.
func (s *memory) byHand(id uint64, f func(*task.Task)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.rows[id]
	f(&row)
	s.rows[id] = row
}

// tally counts the observer's events.
type tally struct {
	mu       sync.Mutex
	started  int
	lateness []time.Duration
	parts    []queue.Lateness
	outcomes map[worker.Outcome]int
	fences   map[worker.Fence]int
	ran      []time.Duration

	promiseLateness []time.Duration // of processed tasks
}

func (c *tally) Fenced(_ task.BizType, why worker.Fence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fences == nil {
		c.fences = make(map[worker.Fence]int)
	}
	c.fences[why]++
}

func (c *tally) Started(_ task.BizType, late queue.Lateness) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	c.lateness, c.parts = append(c.lateness, late.Total()), append(c.parts, late)
}

func (c *tally) Finished(_ task.BizType, o worker.Outcome, ran, promiseLateness time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[o]++
	c.ran = append(c.ran, ran)
	if o == worker.Processed {
		c.promiseLateness = append(c.promiseLateness, promiseLateness)
	}
}

func (c *tally) late() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lateness)
}

func (c *tally) lengths() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ran)
}

func (c *tally) counts() map[worker.Outcome]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.outcomes)
}

// reports are the calls of Config.Failed.
type reports struct {
	mu   sync.Mutex
	list []string
	then func(t task.Task) // may panic; may be nil
}

func (r *reports) add(ctx context.Context, t task.Task, err error) {
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("ctx has ended"))
	}
	r.mu.Lock()
	r.list = append(r.list, fmt.Sprintf("%d %s %d: %v", t.BizID, t.Status, t.Attempts, err))
	then := r.then
	r.mu.Unlock()
	if then != nil {
		then(t)
	}
}

// taken are the reports so far, sorted; they are forgotten.
func (r *reports) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	slices.Sort(list)
	return list
}

// logbook is the log of a test.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) count(text string) int { return strings.Count(l.String(), text) }

// rig is a Runner at work on a queue and a store in memory, in a bubble.
type rig struct {
	t      *testing.T
	queue  *queue.Queue
	taken  time.Time // when the partitions were handed over to this node
	limits *limits.Limits
	store  *memory
	tally  *tally
	log    *logbook
	spans  *tracetest.SpanRecorder // all runs are traced
	*worker.Runner

	own         time.Duration // time-out of tasks submitted
	near        time.Duration // tasks that are due within it are queued
	lanes       chan []*worker.Lane
	term        atomic.Uint64             // of all partitions
	unclean     atomic.Pointer[time.Time] // when all were taken, from a process that was killed
	settled     sync.Map                  // by partition
	ticks       atomic.Int32              // of the engines
	reports     reports
	cancelDrain func() // ends the time for the drain
	stopped     func() error
	ids         int64
}

// scanner is the scan engine: tasks that are due soon wait in the queue.
type scanner rig

func (r *scanner) Until(uint64, int) (time.Time, bool) { return time.Now().Add(r.near), true }

func (r *scanner) Tick() { r.ticks.Add(1) }

type ownership rig

func (r *ownership) Term(int) uint64 { return r.term.Load() }

func (r *ownership) TakenUncleanly(p int) (time.Time, bool) {
	at := r.unclean.Load()
	if _, settled := r.settled.Load(p); settled || at == nil {
		return time.Time{}, false
	}
	return *at, true
}

func (r *ownership) Taken(int) (time.Time, bool) {
	if at := r.unclean.Load(); at != nil {
		return *at, true
	}
	return r.taken, false
}

func (r *ownership) Settled(p int, _ uint64) { r.settled.Store(p, true) }

// bubble runs a test in a synctest bubble, with a Runner at work on the lanes
// of the given business types.
func bubble(t *testing.T, f func(t *testing.T, r *rig), lanes ...*worker.Lane) {
	t.Helper()
	bubbleOf(t, func() []*worker.Lane { return lanes }, f)
}

// bubbleOf makes the lanes in the bubble: their channels belong to it.
func bubbleOf(t *testing.T, lanesOf func() []*worker.Lane, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t:     t,
			store: &memory{rows: map[uint64]task.Task{}},
			tally: &tally{outcomes: map[worker.Outcome]int{}},
			log:   &logbook{},
			spans: tracetest.NewSpanRecorder(),
			near:  10 * time.Second,
			taken: time.Now(),
			lanes: make(chan []*worker.Lane),
		}
		r.term.Store(1)
		r.limits = limits.New(limits.Config{Partitions: layout.Partitions, Ownership: (*ownership)(r), Gap: time.Second})
		r.queue = queue.New(queue.Config{
			Partitions: layout.Partitions, Capacity: 1000, Ownership: (*ownership)(r), Limits: r.limits,
		})
		runner := worker.New(worker.Config{
			Queue: r.queue, Store: r.store, Layout: layout, Observer: r.tally,
			Dispatch: dispatch.New(dispatch.Config{Layout: layout, Queue: r.queue, Store: r.store, Scanner: (*scanner)(r)}), Ownership: (*ownership)(r), Failed: r.reports.add, Now: time.Now,
			Tracer: tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(r.spans)), 1),
			Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		})
		r.Runner = runner
		ctx, cancelDrain := context.WithCancel(context.Background())
		r.cancelDrain = cancelDrain
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(ctx, r.lanes) }()
		r.stopped = sync.OnceValue(func() error {
			close(r.lanes)
			r.queue.Close()
			return <-ended
		})
		t.Cleanup(func() {
			if t.Failed() {
				cancelDrain() // what the test holds up would be tried again for ever
			}
			err := r.stopped()
			if ctx.Err() == nil {
				require.NoError(t, err)
			}
			cancelDrain()
		})
		r.set(lanesOf()...)
		f(t, r)
	})
}

// set puts lanes in force and waits until they are.
func (r *rig) set(lanes ...*worker.Lane) {
	r.lanes <- lanes
	synctest.Wait()
}

// stop drains without a time limit.
func (r *rig) stop() { require.NoError(r.t, r.stopped()) }

// submit stores a task of biz_id that is due in a while and queues it.
func (r *rig) submit(bizType, bizID uint64, in time.Duration) uint64 {
	r.t.Helper()
	row := r.insert(bizType, bizID, in)
	r.offer(row)
	return row.JobID
}

// submitCutOff submits a task that was started before, without an end; see cutOff.
func (r *rig) submitCutOff(bizType, bizID uint64, in time.Duration, cuts int) uint64 {
	r.t.Helper()
	row := r.insert(bizType, bizID, in)
	r.cutOff(row.JobID, cuts)
	r.offer(r.store.row(row.JobID))
	return row.JobID
}

func (r *rig) offer(row task.Task) {
	r.queue.Offer(nil, queue.Item{Task: row, Partition: layout.Partition(layout.Shard(row.BizID))})
}

// insert stores a task that is not in the queue.
func (r *rig) insert(bizType, bizID uint64, in time.Duration) task.Task {
	r.t.Helper()
	r.ids++
	shard := layout.Shard(bizID)
	id, err := sharding.JobID(sharding.Epoch.Add(time.Duration(r.ids)*time.Millisecond), shard, 1)
	require.NoError(r.t, err)
	row := task.Task{JobID: id, BizID: bizID, BizType: bizType, ActionTime: time.Now().UTC().Add(in), Timeout: r.own}
	r.store.byHand(id, func(t *task.Task) { *t = row })
	return row
}

// killed makes the previous process one that was killed just now.
func (r *rig) killed() {
	now := time.Now()
	r.unclean.Store(&now)
}

// cutOff makes the row one whose last starts, by other processes, had no end.
func (r *rig) cutOff(id uint64, cuts int) {
	r.store.byHand(id, func(t *task.Task) { t.Lease = uint64(cuts) })
}

// settle waits until everything that can happen now has happened.
func (r *rig) settle() { synctest.Wait() }

// after lets time pass.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// orders is a business type for tests.
func orders() task.BizType {
	return task.BizType{
		ID: 1, Name: "order_close", Workers: 4, Timeout: 30 * time.Second,
		MaxRetries: 3, Cuts: 3, BackoffMin: time.Second, BackoffMax: time.Minute,
	}
}

// lane is the lane of orders with a processor.
func lane(p processor.Processor, change ...func(*task.BizType)) *worker.Lane {
	b := orders()
	for _, c := range change {
		c(&b)
	}
	return &worker.Lane{BizType: b, Processor: p}
}

// script is a processor that does what its function says and writes the runs down.
type script struct {
	mu     sync.Mutex
	begun  []task.Task
	at     []time.Time
	closed []time.Time
	f      func(ctx context.Context, t task.Task) error
}

func (s *script) Process(ctx context.Context, t task.Task) error {
	s.mu.Lock()
	s.begun, s.at = append(s.begun, t), append(s.at, time.Now())
	s.mu.Unlock()
	if s.f == nil {
		return nil
	}
	return s.f(ctx, t)
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, time.Now())
	return nil
}

func (s *script) runs() int { return len(s.starts()) }

// tasks are the tasks that ran, in the order of their starts.
func (s *script) tasks() []task.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.begun)
}

// starts are the moments at which they did.
func (s *script) starts() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// closings are the moments at which the processor was closed.
func (s *script) closings() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.closed)
}

func answer(err error) *script {
	return &script{f: func(context.Context, task.Task) error { return err }}
}
