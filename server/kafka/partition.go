package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/task"
)

const (
	// window is how many records are open at a time in a partition, from the oldest that is not settled. Behind a
	// record whose database is away those of the other databases go on, as far as this.
	window = 5_000
	// replayed is how many records may come again at most after a rebalance or a kill: those of a window, and as many
	// that were settled since the last commit of offsets (uncommitted).
	replayed    = 2 * window
	uncommitted = window

	stepSize     = 2_000 // records that are stored in one call
	retryAfter   = time.Second
	sessionPause = 100 * time.Millisecond
)

// partition is a partition of the topic for as long as this node has it. One goroutine works through its records.
type partition struct {
	reader *Reader
	number int32
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	fetched []fetched   // not taken over by work yet
	wake    wait.Signal // there is something to do
	paused  bool        // the client does not fetch more
	added   time.Time   // when records came last
	end     int64       // the offset behind the last record of the partition, as far as known
	next    int64       // the offset behind the settled prefix; -1: nothing was read yet

	first atomic.Pointer[stuck] // the first record that is not settled, if a try has failed

	open   []*entry // in the order of offsets, from the first that is not settled; of work alone
	replay int64    // the end of the partition when its first records came: up to there records may come again; -1: none came
}

// fetched is records of a topic. One that was deleted and made again has another id.
type fetched struct {
	topic   topicID
	records []*kgo.Record
	refusal error // of all of them: they are a batch that was skipped
}

// stuck is a record that holds its partition up.
type stuck struct {
	offset int64
	since  time.Time
	why    error
}

// entry is a record that is open.
type entry struct {
	record  *kgo.Record
	request request
	refusal error     // it is to go to the failure topic
	retryAt time.Time // not before this
	settled bool
	allowed bool      // the rate has let it through
	skipped bool      // it stands for a batch
	failed  time.Time // when its first try failed
	why     error
}

// fail records a failed try: the record is tried again.
func (e *entry) fail(why error) {
	now := time.Now()
	e.retryAt, e.why = now.Add(retryAfter), why
	if e.failed.IsZero() {
		e.failed = now
	}
}

func newPartition(r *Reader, number int32) *partition {
	ctx, cancel := context.WithCancel(context.Background())
	return &partition{reader: r, number: number, ctx: ctx, cancel: cancel, done: make(chan struct{}),
		wake: wait.NewSignal(), next: -1, replay: -1}
}

// add takes fetched records.
func (p *partition) add(topic topicID, records []*kgo.Record, end int64) {
	p.mu.Lock()
	if len(records) > 0 {
		p.fetched = append(p.fetched, fetched{topic: topic, records: records})
	}
	p.end, p.added = max(p.end, end), time.Now()
	if p.replay < 0 && end > 0 { // a fetch that has failed has none
		p.replay = end
	}
	if p.next < 0 && len(records) > 0 {
		p.next = records[0].Offset
	}
	p.mu.Unlock()
	p.wake.Set()
}

// addSkipped takes a record that stands for a batch that was skipped.
func (p *partition) addSkipped(r *kgo.Record, refusal error) {
	p.mu.Lock()
	p.fetched = append(p.fetched, fetched{records: []*kgo.Record{r}, refusal: refusal})
	p.end = max(p.end, r.Offset+1)
	if p.next < 0 {
		p.next = r.Offset
	}
	p.mu.Unlock()
	p.wake.Set()
}

// lag is how many records are not settled.
func (p *partition) lag() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next < 0 {
		return 0
	}
	return max(0, p.end-p.next)
}

func (p *partition) setEnd(end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = max(p.end, end)
}

// work settles records until the partition is taken away.
func (p *partition) work() {
	defer close(p.done)
	for p.ctx.Err() == nil {
		p.takeOver()
		now, end := time.Now(), p.reader.session.end()
		step, pause := p.choose(now)
		if len(step) > 0 && !now.Before(end) {
			step, pause = nil, sessionPause
		}
		if len(step) == 0 {
			_ = wait.ForOr(p.ctx, pause, p.wake)
			continue
		}
		p.settle(step, end)
		p.advance()
	}
}

// takeOver parses what was fetched, and keeps the client from fetching more than fits.
func (p *partition) takeOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.fetched {
		for _, r := range f.records {
			e := &entry{record: r, refusal: f.refusal, skipped: f.refusal != nil}
			if !e.skipped {
				e.request, e.refusal = parse(r, f.topic, p.reader.cfg.Body)
			}
			p.open = append(p.open, e)
		}
	}
	p.fetched = nil
	if full := len(p.open) >= replayed; full != p.paused && (full || len(p.open) < window) {
		p.paused = full
		of := map[string][]int32{p.reader.cfg.Topic: {p.number}}
		if full {
			p.reader.client.PauseFetchPartitions(of)
		} else {
			p.reader.client.ResumeFetchPartitions(of)
		}
	}
}

// takesOver reports whether a request alone decides about its key's task, in the place of all earlier requests.
func (q *request) takesOver() bool { return q.cancel || q.submit.OnDuplicate == api.Move }

const (
	idle      = time.Hour   // how long to wait when there is nothing to do
	gatherFor = time.Second // how long after the last records that came
)

// choose returns what to settle now, or how long to wait. Of the open records of a key the newest decides: the ones before it
// are settled with it.
func (p *partition) choose(now time.Time) (step []*entry, wait time.Duration) {
	if len(p.open) == 0 {
		return nil, idle
	}
	if d := p.gather(now); d > 0 {
		return nil, d
	}
	wait = idle
	open := p.open[:min(len(p.open), window)]
	newest := newestOf(open)
	for i, e := range open {
		if e.settled {
			continue
		}
		if e.refusal == nil {
			if n, ok := newest[e.request.key()]; ok && i < n {
				continue
			}
		}
		if d := e.retryAt.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		if d := p.reader.admit(e, now); d > 0 {
			wait = min(wait, d)
			continue
		}
		if step = append(step, e); len(step) == stepSize {
			break
		}
	}
	return step, wait
}

// newestOf is the index of the last record of each key that takes over.
func newestOf(open []*entry) map[api.Key]int {
	newest := make(map[api.Key]int)
	for i, e := range open {
		if !e.settled && e.refusal == nil && e.request.takesOver() {
			newest[e.request.key()] = i
		}
	}
	return newest
}

// gather waits until all records that may come again are there. Else an older record of a key, whose time has passed since it
// was stored, could fire before the newer one that has moved the task comes again.
func (p *partition) gather(now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.open[len(p.open)-1].record.Offset
	if last+1 < p.replay && len(p.open) < replayed {
		if d := p.added.Add(gatherFor).Sub(now); d > 0 { // the end may hold none of ours, but markers of transactions
			return d
		}
	}
	p.replay = 0
	return 0
}

// settle stores, cancels and refuses, until end. What is not settled then is tried again.
func (p *partition) settle(step []*entry, end time.Time) {
	ctx, cancel := context.WithDeadline(p.ctx, end)
	defer cancel()
	var submits, refused []*entry
	var cancels errgroup.Group
	cancels.SetLimit(concurrentCancels)
	older := p.olderThan(step)
	for _, e := range step {
		switch {
		case e.refusal != nil:
		case e.request.cancel:
			cancels.Go(func() error {
				p.note(e, p.reader.cancelTask(ctx, &e.request, older[e]))
				return nil
			})
		default:
			submits = append(submits, e)
		}
	}
	_ = cancels.Wait()
	submits = p.settleRepeated(ctx, submits)
	list := make([]api.Submit, len(submits))
	for i, e := range submits {
		list[i] = e.request.submit
		list[i].ActionTime, list[i].Now, list[i].Past = e.request.at, true, cmp.Or(e.request.submit.Past, api.Fire)
	}
	if len(list) > 0 {
		results, err := p.reader.cfg.Service.SubmitBatch(ctx, list)
		for i, e := range submits {
			if err == nil && results[i].Err != nil {
				p.note(e, p.reader.repeated(ctx, &e.request, results[i].Err.Cause))
			} else {
				p.note(e, err)
			}
		}
	}
	for _, e := range step {
		if e.refusal != nil && !e.settled {
			refused = append(refused, e)
		}
	}
	p.reader.refuse(ctx, refused)
	p.settleOlder()
}

const concurrentCancels = 64

// settleRepeated settles the records with on_duplicate again that have come before and whose tasks have ended since, and
// returns the other submits. The store would make a second task of them.
func (p *partition) settleRepeated(ctx context.Context, submits []*entry) (rest []*entry) {
	var looks errgroup.Group
	looks.SetLimit(concurrentCancels)
	isOpen := make([]bool, len(submits))
	for i, e := range submits {
		if isOpen[i] = e.request.submit.OnDuplicate != api.Again; isOpen[i] {
			continue
		}
		looks.Go(func() error {
			t, err := p.reader.cfg.Service.GetByKey(ctx, e.request.key())
			switch {
			case err == nil && e.isStoredAs(&t):
				p.note(e, nil)
			case err == nil, errors.Is(err, task.ErrNotFound):
				isOpen[i] = true
			default:
				p.note(e, err)
			}
			return nil
		})
	}
	_ = looks.Wait()
	for i, e := range submits {
		if isOpen[i] {
			rest = append(rest, e)
		}
	}
	return rest
}

// isStoredAs reports whether a task was made of this record: it is younger, and has its time and attribute.
func (e *entry) isStoredAs(t *api.Task) bool {
	return !t.Created.Time().Before(e.record.Timestamp) && t.DueTime.Time().Equal(task.CeilMilli(e.request.at)) &&
		t.Attribute == e.request.submit.Attribute
}

// note records how a try of one record has ended.
func (p *partition) note(e *entry, err error) {
	var wrong *task.FieldError
	var conflict *task.ConflictError
	switch {
	case err == nil:
		e.settled = true
	case errors.As(err, &wrong), errors.As(err, &conflict):
		e.refusal = err
	default: // the store is away, or a part of it
		e.fail(err)
		p.reader.waits(e.record, err)
	}
}

// olderThan returns the request before each cancel of a step that is of the same key and is not settled.
func (p *partition) olderThan(step []*entry) map[*entry]*request {
	isCancel := func(e *entry) bool { return e.request.cancel }
	if !slices.ContainsFunc(step, isCancel) {
		return nil
	}
	older, last := make(map[*entry]*request), make(map[api.Key]*request)
	for _, e := range p.open {
		if e.settled || e.refusal != nil {
			continue
		}
		key := e.request.key()
		if !e.request.cancel {
			last[key] = &e.request
		} else if last[key] != nil {
			older[e] = last[key]
		}
	}
	return older
}

// settleOlder settles the records that a newer one of their key has replaced. If the newer one was refused, they count again.
func (p *partition) settleOlder() {
	replaced := make(map[api.Key]bool)
	for i := min(len(p.open), window) - 1; i >= 0; i-- {
		e := p.open[i]
		switch key := e.request.key(); {
		case e.refusal != nil:
		case !e.settled:
			e.settled = replaced[key]
		case e.request.takesOver():
			replaced[key] = true
		}
	}
}

// advance drops the settled records in front, and marks their offsets: never one behind a record that is not settled.
func (p *partition) advance() {
	n := 0
	for n < len(p.open) && p.open[n].settled {
		n++
	}
	p.first.Store(nil)
	if n < len(p.open) && p.open[n].why != nil {
		p.first.Store(&stuck{p.open[n].record.Offset, p.open[n].failed, p.open[n].why})
	}
	if n == 0 {
		return
	}
	last, skipped := p.open[n-1].record, p.open[n-1].skipped
	p.open = append([]*entry(nil), p.open[n:]...)
	p.mu.Lock()
	p.next = last.Offset + 1
	p.mu.Unlock()
	p.reader.mark(p.ctx, last, n)
	if skipped {
		p.reader.commitSkipped(p.ctx, last)
	}
}
