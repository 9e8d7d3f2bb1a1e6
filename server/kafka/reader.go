// Package kafka reads tasks from a topic of Kafka.
//
// A Reader is a member of a consumer group. Each partition of the topic that it has is worked through in steps: a step stores
// some thousand tasks in one call. An offset is committed when the store has committed the tasks of all offsets before it, so a
// kill or a rebalance loses no record; what comes again makes no second task, because each task has a dedup_key: the key of the
// record, or the record's place in the topic.
//
// Records for a database that is away wait. Records for other databases are stored meanwhile, up to a window behind the first
// record that waits. Then the partition is paused. A record that is refused goes to the failure topic before its offset is committed.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/time/rate"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/processor/kafka"
	"github.com/timeoutcenter/toc/task"
)

// Service is the part of an api.Center that a Reader uses.
type Service interface {
	SubmitBatch(ctx context.Context, list []api.Submit) ([]api.BatchResult, error)
	GetByKey(ctx context.Context, k api.Key) (api.Task, error)
	Get(ctx context.Context, jobID uint64) (api.Task, error)
	Cancel(ctx context.Context, jobID uint64, opts ...api.ChangeOption) error
}

// Observer counts the refused records of an intake.
type Observer interface{ IntakeRefused(name string, n int) }

type noObserver struct{}

func (noObserver) IntakeRefused(string, int) {}

// Config says what to read.
type Config struct {
	Name    string // for messages and metrics
	Cluster kafka.Cluster
	Topic   string
	Group   string
	// Rate is how many records a second this Reader stores at most. 0: no limit.
	Rate int
	// SlowAfter limits the rate to the records that are due later than this from now; the others are stored at once. 0: all
	// records are limited.
	SlowAfter time.Duration
	// FailureTopic gets the refused records. "": they are logged, and left where they are.
	FailureTopic string

	Service Service
	// Body reads the body of a submit, as POST /v1/tasks takes it. Its error is a task.FieldError.
	Body func(value []byte) (api.Submit, error)
	// Observer defaults to none.
	Observer Observer
	// Logger defaults to none.
	Logger *slog.Logger
}

// Reader reads a topic. Use New.
type Reader struct {
	cfg     Config
	options []kgo.Opt
	client  *kgo.Client // while it runs
	limiter *rate.Limiter
	away    atomic.Pointer[error] // why no broker answers; nil: one does
	unread  failing               // fetches
	session session
	anew    atomic.Bool    // the topic was deleted, and its client leaves
	telling rate.Sometimes // of troubles that may come with each record

	mu         sync.Mutex
	partitions map[int32]*partition
	settled    int // since the last commit

	refusedLogged time.Time // when a refused record was logged
	unlogged      int       // refused records since then
	lastRefused   []any     // of them, for the log
}

// New makes a Reader. It connects when it runs.
func New(cfg Config) (*Reader, error) {
	cfg.Observer = cmp.Or[Observer](cfg.Observer, noObserver{})
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Reader{cfg: cfg, partitions: make(map[int32]*partition), limiter: rate.NewLimiter(rate.Inf, 0),
		telling: rate.Sometimes{Interval: tellInterval}}
	if cfg.Rate > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(cfg.Rate), max(1, cfg.Rate/10))
	}
	options, err := cfg.Cluster.Options()
	if err != nil {
		return nil, err
	}
	r.options = append(options,
		kgo.ConsumeTopics(cfg.Topic), kgo.ConsumerGroup(cfg.Group),
		// A new group begins with the oldest record. With committed reads, the records of a transaction that was
		// aborted make no tasks.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MaxDecompressBatchBytes(maxBatch),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(sessionTimeout/5), kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitInterval), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(r.assigned), kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost),
		kgo.WithHooks(&r.session), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AllowIdempotentProduceCancellation(),
	)
	if err := kgo.ValidateOpts(r.options...); err != nil {
		return nil, fmt.Errorf("intake %s, kafka cluster %s: %w", cfg.Name, cfg.Cluster.Name, err)
	}
	return r, nil
}

const (
	sessionTimeout   = 10 * time.Second // so long after its last sign of life a node's partitions are given to others
	rebalanceTimeout = 20 * time.Second // a node that is killed while it joins holds up the others for so long
	commitInterval   = time.Second
	pollSize         = 10_000   // records
	maxBatch         = 32 << 20 // bytes of a batch, decompressed: a few KiB on the wire may be gigabytes
	endsInterval     = 5 * time.Second
	tellInterval     = 10 * time.Second
)

// Name is the name of the Reader's configuration.
func (r *Reader) Name() string { return r.cfg.Name }

// Lag is how many records of this node's partitions are not settled.
func (r *Reader) Lag() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.partitions {
		n += p.lag()
	}
	return n
}

// Run reads until ctx ends. Then what is being stored is finished, its offsets are committed, and the Reader leaves the group.
func (r *Reader) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.runClient(ctx); err != nil {
			return err
		}
	}
	return nil
}

// runClient is Run, and returns early if the topic was deleted and made again: a client reads only the topic that it has seen
// first.
func (r *Reader) runClient(ctx context.Context) (err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	r.anew.Store(false)
	r.mu.Lock() // the client calls assigned at once
	r.client, err = kgo.NewClient(r.options...)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	var ends sync.WaitGroup
	ends.Go(func() { r.watchEnds(ctx) })
	ends.Go(func() { r.watchBrokers(ctx) })
	var ids topicIDs
	for ctx.Err() == nil {
		fetches := r.client.PollRecords(ctx, pollSize)
		fetches.EachError(func(_ string, p int32, err error) {
			switch bomb, is := errors.AsType[*kgo.ErrDecompressTooLarge](err); {
			case ctx.Err() != nil:
			case is:
				r.skip(bomb)
			case errors.Is(err, kerr.UnknownTopicID):
				r.cfg.Logger.Warn("topic was deleted; it is read from the start if it is made again", "intake", r.cfg.Name, "topic", r.cfg.Topic)
				r.anew.Store(true)
				leave()
			default:
				r.unread.note(err)
				r.tell("records cannot be read", "partition", p, "error", err)
			}
		})
		fetches.EachTopic(func(t kgo.FetchTopic) {
			if t.Topic != r.cfg.Topic { // an error of the group
				return
			}
			id := ids.of(t, r.cfg.Cluster.Name)
			t.EachPartition(func(f kgo.FetchPartition) {
				if p := r.partition(f.Partition); p != nil {
					p.add(id, f.Records, f.HighWatermark)
				}
			})
		})
		r.client.AllowRebalance()
	}
	ends.Wait()
	r.client.CloseAllowingRebalance() // calls revoked
	return nil
}

// partition is one that this node has; nil: it has not.
func (r *Reader) partition(number int32) *partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitions[number]
}

func (r *Reader) assigned(_ context.Context, _ *kgo.Client, of map[string][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range of[r.cfg.Topic] {
		p := newPartition(r, n)
		r.partitions[n] = p
		go p.work()
	}
}

// revoked ends the work of partitions before another node gets them.
func (r *Reader) revoked(ctx context.Context, c *kgo.Client, of map[string][]int32) {
	r.stop(of)
	if r.anew.Load() {
		return // these offsets are of a topic that is gone
	}
	if err := c.CommitMarkedOffsets(ctx); err != nil {
		r.cfg.Logger.Warn("offsets not committed; the records come again, and make no second tasks", "intake", r.cfg.Name, "error", err)
	}
}

// lost ends the work of partitions that another node has by now.
func (r *Reader) lost(_ context.Context, _ *kgo.Client, of map[string][]int32) { r.stop(of) }

func (r *Reader) stop(of map[string][]int32) {
	var gone []*partition
	r.mu.Lock()
	for _, n := range of[r.cfg.Topic] {
		if p := r.partitions[n]; p != nil {
			delete(r.partitions, n)
			gone = append(gone, p)
			p.cancel()
		}
	}
	r.mu.Unlock()
	for _, p := range gone {
		<-p.done
	}
	r.client.ResumeFetchPartitions(of) // a pause would outlive the assignment
}

// mark lets the offset behind a record be committed. n is how many records it settles.
func (r *Reader) mark(ctx context.Context, last *kgo.Record, n int) {
	r.client.MarkCommitRecords(last)
	r.mu.Lock()
	r.settled += n
	full := r.settled >= uncommitted
	if full {
		r.settled = 0
	}
	r.mu.Unlock()
	if full {
		if err := r.client.CommitMarkedOffsets(ctx); err != nil && ctx.Err() == nil {
			r.tell("offsets not committed", "error", err)
		}
	}
}

// admit reports how long a record must wait for the rate, and counts it if it need not.
func (r *Reader) admit(e *entry, now time.Time) (pause time.Duration) {
	limited := r.cfg.Rate > 0 && e.refusal == nil && !e.allowed && !e.request.cancel
	if !limited || r.cfg.SlowAfter > 0 && e.request.at.Sub(now) <= r.cfg.SlowAfter || r.limiter.AllowN(now, 1) {
		e.allowed = true
		return 0
	}
	return max(time.Millisecond, time.Second/time.Duration(r.cfg.Rate))
}

// cancelTask cancels the task of a key. older is the last request of the key that is not settled; nil: there is none. Its task may not
// be there yet, and a statement that is still on its way, of this node or of the one that had the partition before, may store it after
// the cancel. So the key is taken first, by a task that is not due for an hour.
func (r *Reader) cancelTask(ctx context.Context, q, older *request) error {
	t, err := r.cfg.Service.GetByKey(ctx, q.key())
	if errors.Is(err, task.ErrNotFound) && older != nil {
		if isRefused, err := r.takeKey(ctx, older); isRefused || err != nil {
			return err
		}
		t, err = r.cfg.Service.GetByKey(ctx, q.key())
	}
	if err == nil {
		err = r.cfg.Service.Cancel(ctx, uint64(t.JobID), api.IfMatch(t.ETag)) // what was changed since is looked at again
	}
	var conflict *task.ConflictError
	switch {
	case errors.Is(err, task.ErrNotFound):
		return task.Wrong("dedup_key", "there is no task with this key to cancel")
	case errors.As(err, &conflict) && conflict.Conflict == task.ConflictCancelled:
		return nil
	}
	return err
}

// takeKey stores a task for the key of a request. isRefused: the request is wrong, so no task of it can be there.
func (r *Reader) takeKey(ctx context.Context, q *request) (isRefused bool, err error) {
	s := q.submit
	s.ActionTime, s.Now, s.OnDuplicate = time.Now().Add(time.Hour), true, ""
	results, err := r.cfg.Service.SubmitBatch(ctx, []api.Submit{s})
	if err != nil || results[0].Err == nil {
		return false, err
	}
	err = results[0].Err.Cause
	if _, isRefused = errors.AsType[*task.FieldError](err); isRefused {
		return true, nil
	}
	return false, err
}

// repeated turns the conflict of a record that came again into success: its task has been promised what the record asks for.
func (r *Reader) repeated(ctx context.Context, q *request, err error) error {
	var conflict *task.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	t, getErr := r.cfg.Service.Get(ctx, conflict.JobID)
	if getErr != nil {
		return getErr // looked at again later
	}
	if t.Attribute == q.submit.Attribute && !t.DueTime.Time().Before(q.at.Truncate(time.Millisecond)) {
		return nil
	}
	return err
}

// refuse sends records to the failure topic, if there is one. A record that cannot be written now is tried again. One that
// can never be written there is logged.
func (r *Reader) refuse(ctx context.Context, list []*entry) {
	if len(list) == 0 {
		return
	}
	errs := make([]error, len(list))
	if r.cfg.FailureTopic != "" {
		var wg sync.WaitGroup
		wg.Add(len(list))
		for i, e := range list {
			whole := failure(e.record, r.cfg.FailureTopic, e.refusal)
			r.client.Produce(ctx, whole, func(_ *kgo.Record, err error) {
				if !errors.Is(err, kerr.MessageTooLarge) {
					errs[i] = err
					wg.Done()
					return
				}
				r.client.Produce(ctx, withoutValue(e.record, whole), func(_ *kgo.Record, err error) {
					errs[i] = err
					wg.Done()
				})
			})
		}
		wg.Wait()
	}
	for i, e := range list {
		never := errors.Is(errs[i], kerr.MessageTooLarge) || errors.Is(errs[i], kerr.InvalidRecord)
		if errs[i] != nil && !never {
			e.fail(errs[i])
			r.tell("refused record not written to the failure topic", "topic", r.cfg.FailureTopic, "error", errs[i])
			continue
		}
		e.settled = true
		r.cfg.Observer.IntakeRefused(r.cfg.Name, 1)
		if never {
			r.logRefused(e, "failure_topic", r.cfg.FailureTopic, "failure", errs[i])
		} else if r.cfg.FailureTopic == "" {
			r.logRefused(e)
		}
	}
}

// logRefused logs a refused record that is in no failure topic: the first one, and then the last one of each 10 s with the number
// of all.
func (r *Reader) logRefused(e *entry, more ...any) {
	r.mu.Lock()
	r.unlogged++
	r.lastRefused = append([]any{"intake", r.cfg.Name, "topic", r.cfg.Topic, "partition", e.record.Partition,
		"offset", e.record.Offset, "error", e.refusal}, more...)
	r.mu.Unlock()
	r.flushRefused()
}

func (r *Reader) flushRefused() {
	r.mu.Lock()
	now := time.Now()
	n, args := r.unlogged, r.lastRefused
	due := n > 0 && now.Sub(r.refusedLogged) >= tellInterval
	if due {
		r.refusedLogged, r.unlogged = now, 0
	}
	r.mu.Unlock()
	if due {
		r.cfg.Logger.Error("record refused", append(args, "records", n)...)
	}
}

// skip refuses a batch that is too large to be decompressed, as one record, and lets the client go on behind it. No rebalance is
// under way.
func (r *Reader) skip(bomb *kgo.ErrDecompressTooLarge) {
	p := r.partition(bomb.Partition)
	if p == nil {
		return
	}
	p.addSkipped(&kgo.Record{Topic: bomb.Topic, Partition: bomb.Partition, Offset: bomb.NextOffset - 1, LeaderEpoch: bomb.Epoch,
		Timestamp: time.Now()},
		task.Wrong("value", "the batch from offset %d is larger than %d MiB", bomb.Offset, maxBatch>>20))
	r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{bomb.Topic: {bomb.Partition: {Epoch: bomb.Epoch, Offset: bomb.NextOffset}}})
}

// commitSkipped commits the offset behind a batch that was skipped: the client, which goes on from there, takes it for committed.
func (r *Reader) commitSkipped(ctx context.Context, last *kgo.Record) {
	behind := map[string]map[int32]kgo.EpochOffset{last.Topic: {last.Partition: {Epoch: last.LeaderEpoch, Offset: last.Offset + 1}}}
	r.client.CommitOffsetsSync(ctx, behind, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
		if err != nil && ctx.Err() == nil {
			r.tell("offsets not committed", "error", err)
		}
	})
}

// Waits says which record has waited for a minute or more, and why; "": none has.
func (r *Reader) Waits() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text string
	var since time.Time
	for _, p := range r.partitions {
		if first := p.first.Load(); first != nil && time.Since(first.since) >= waitsLong && (text == "" || first.since.Before(since)) {
			since = first.since
			text = fmt.Sprintf("the record at offset %d of partition %d waits since %s: %v", first.offset, p.number,
				since.UTC().Format(time.RFC3339), first.why)
		}
	}
	return text
}

// waitsLong is how long a record may wait at the head of its partition before that is shown.
const waitsLong = time.Minute

// waits logs that a record cannot be stored now.
func (r *Reader) waits(record *kgo.Record, err error) {
	if !errors.Is(err, context.Canceled) {
		r.tell("records wait for the store", "partition", record.Partition, "offset", record.Offset, "error", err)
	}
}

// Logs a trouble that may come with each record, once in tellInterval at most.
func (r *Reader) tell(what string, args ...any) {
	due := false
	r.telling.Do(func() { due = true })
	if due {
		r.cfg.Logger.Warn(what, append([]any{"intake", r.cfg.Name, "topic", r.cfg.Topic}, args...)...)
	}
}

// watchEnds keeps the ends of partitions up to date: a paused partition gets no records, which would carry its end. It also
// logs the refused records of the last seconds.
func (r *Reader) watchEnds(ctx context.Context) {
	for wait.For(ctx, endsInterval) == nil {
		r.flushRefused()
		ask := kmsg.NewPtrListOffsetsRequest()
		ask.ReplicaID = -1
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = r.cfg.Topic
		r.mu.Lock()
		for n := range r.partitions {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = n, -1 // the latest
			topic.Partitions = append(topic.Partitions, p)
		}
		r.mu.Unlock()
		if len(topic.Partitions) == 0 {
			continue
		}
		ask.Topics = append(ask.Topics, topic)
		answer, err := ask.RequestWith(ctx, r.client)
		if err != nil {
			continue // the poll logs what is wrong
		}
		for _, t := range answer.Topics {
			for _, a := range t.Partitions {
				if p := r.partition(a.Partition); p != nil && a.ErrorCode == 0 {
					p.setEnd(a.Offset)
				}
			}
		}
	}
}
