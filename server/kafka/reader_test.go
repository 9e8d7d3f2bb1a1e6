package kafka_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor/kafka"
	intakekafka "github.com/timeoutcenter/toc/server/kafka"
	"github.com/timeoutcenter/toc/task"
)

const (
	topic    = "orders"
	failures = "orders-refused"
	group    = "toc"
)

// center is a store of tasks in memory, with the rules of a submit, in eight databases by biz_id.
type center struct {
	mu     sync.Mutex
	tasks  map[api.Key]*task.Task
	down   map[uint64]bool // databases
	stored []uint64        // biz_ids, in the order in which they were stored
	fired  []string        // attributes of what was stored or moved to at once
	lastID uint64
}

func newCenter() *center {
	return &center{tasks: map[api.Key]*task.Task{}, down: map[uint64]bool{}}
}

func (c *center) SubmitBatch(_ context.Context, list []api.Submit) ([]api.BatchResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	results := make([]api.BatchResult, len(list))
	for i, s := range list {
		if err := c.submit(s); err != nil {
			results[i].Err = api.NewBatchError(err)
		}
	}
	return results, nil
}

func (c *center) submit(s api.Submit) error {
	if c.down[s.BizID%8] {
		return intake.Unavailable("database %d is away", s.BizID%8)
	}
	if s.BizType != "order_close" {
		return &task.FieldError{Field: "biz_type", Message: fmt.Sprintf("%q is not configured", s.BizType)}
	}
	at := s.ActionTime
	if at.Before(time.Now()) {
		if s.Past != api.Fire {
			return &task.FieldError{Field: "action_time", Message: "has passed"}
		}
		c.fired = append(c.fired, s.Attribute)
	}
	key := api.Key{BizType: s.BizType, BizID: s.BizID, BizKey: s.BizKey, DedupKey: s.DedupKey}
	first := c.tasks[key]
	switch {
	case first == nil, s.OnDuplicate == api.Again && first.Status != task.Pending:
		c.lastID++
		first = &task.Task{JobID: c.lastID, BizID: s.BizID, ActionTime: task.CeilMilli(at), Attribute: s.Attribute, Created: task.CeilMilli(time.Now())}
		c.tasks[key] = first
		c.stored = append(c.stored, s.BizID)
	case s.OnDuplicate != api.Move:
	case first.Status != task.Pending:
		return &task.ConflictError{JobID: first.JobID, Conflict: task.ConflictOf(first.Status)}
	default:
		first.ActionTime, first.Attribute = at, s.Attribute
	}
	return nil
}

func (c *center) GetByKey(_ context.Context, k api.Key) (api.Task, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tasks[k]; t != nil {
		return shown(t), nil
	}
	return api.Task{}, task.ErrNotFound
}

func (c *center) find(id uint64) *task.Task {
	for _, t := range c.tasks {
		if t.JobID == id {
			return t
		}
	}
	return nil
}

func shown(t *task.Task) api.Task {
	a := api.From(*t, "order_close")
	a.ETag = api.ETag(t)
	return a
}

func (c *center) Get(_ context.Context, id uint64) (api.Task, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.find(id); t != nil {
		return shown(t), nil
	}
	return api.Task{}, task.ErrNotFound
}

func (c *center) Cancel(_ context.Context, id uint64, opts ...api.ChangeOption) error {
	ifMatch, err := api.ParseIfMatch(api.ConditionOf(opts).IfMatch)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.find(id)
	if !t.Matches(ifMatch) {
		return &task.ChangedError{Task: *t}
	}
	if t.Status != task.Pending {
		return &task.ConflictError{JobID: id, Conflict: task.ConflictOf(t.Status)}
	}
	t.Status = task.Cancelled
	return nil
}

// set changes a task as a run or a hand does.
func (c *center) set(k api.Key, status task.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks[k].Status = status
}

func (c *center) setDown(database uint64, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[database] = down
}

func (c *center) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stored)
}

// observer is an intakekafka.Observer of the names.
type observer func(name string)

func (o observer) IntakeRefused(name string, _ int) { o(name) }

// readBody reads what these tests write as a body.
func readBody(value []byte) (api.Submit, error) {
	var b struct {
		BizType  string
		BizID    uint64
		At       *time.Time
		Delay    time.Duration
		DedupKey string
		Past     string
		Again    bool
	}
	if err := json.Unmarshal(value, &b); err != nil {
		return api.Submit{}, &task.FieldError{Message: err.Error()}
	}
	s := api.Submit{BizType: b.BizType, BizID: b.BizID, DedupKey: b.DedupKey, Delay: b.Delay, Now: true, Past: b.Past, Attribute: "from a body"}
	if b.Again {
		s.OnDuplicate = api.Again
	}
	if b.At != nil {
		s.ActionTime = *b.At
	}
	return s, nil
}

func brokers(t *testing.T, partitions int32) *kfake.Cluster {
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(partitions, topic), kfake.SeedTopics(1, failures))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// read runs a Reader until the test ends or calls stop.
func read(t *testing.T, c *kfake.Cluster, s intakekafka.Service, change ...func(*intakekafka.Config)) (r *intakekafka.Reader, stop func()) {
	cfg := intakekafka.Config{
		Name: "orders", Cluster: kafka.Cluster{Name: "main", Brokers: c.ListenAddrs()}, Topic: topic, Group: group,
		FailureTopic: failures, Service: s, Body: readBody,
	}
	for _, f := range change {
		f(&cfg)
	}
	r, err := intakekafka.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return r, stop
}

// takesTime leaves a test out of the short form: offsets are committed once a second, and sessions end after ten.
func takesTime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test waits for Kafka's own intervals")
	}
	t.Parallel()
}

func producer(t *testing.T, c *kfake.Cluster) *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func produce(t *testing.T, c *kgo.Client, records ...*kgo.Record) {
	require.NoError(t, c.ProduceSync(t.Context(), records...).FirstErr())
}

// withHeaders is a record; pairs are names and values of headers.
func withHeaders(key, value string, pairs ...string) *kgo.Record {
	r := &kgo.Record{Value: []byte(value)}
	if key != "" {
		r.Key = []byte(key)
	}
	for ; len(pairs) > 0; pairs = pairs[2:] {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: pairs[0], Value: []byte(pairs[1])})
	}
	return r
}

// null makes a record's value null.
func null(r *kgo.Record) *kgo.Record {
	r.Value = nil
	return r
}

// order is a record with a time from now.
func order(key string, bizID uint64, value string, from time.Duration) *kgo.Record {
	return withHeaders(key, value, "toc-biz-type", "order_close", "toc-biz-id", strconv.FormatUint(bizID, 10),
		"toc-action-time", time.Now().Add(from).Format(time.RFC3339Nano))
}

func keyOf(bizID uint64, dedup string) api.Key {
	return api.Key{BizType: "order_close", BizID: bizID, DedupKey: dedup}
}

// settled waits until offset records of a partition are committed, and no record of r's waits.
func settled(t *testing.T, r *intakekafka.Reader, c *kgo.Client, partition int32, offset int64) {
	t.Helper()
	await.That(t, func() bool { return committed(t, c, partition) == offset }, "offset %d of partition %d is committed", offset, partition)
	await.That(t, func() bool { return r.Lag() == 0 }, "no record waits")
}

// refusedRecords reads n records of the failure topic.
func refusedRecords(t *testing.T, c *kfake.Cluster, n int) (list []*kgo.Record) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(failures), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx := await.Context(t)
	for len(list) < n {
		f := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d refused records", len(list), n)
		f.EachRecord(func(r *kgo.Record) { list = append(list, r) })
	}
	return list
}

// committed gives the committed offset of a partition; -1: none.
func committed(t *testing.T, c *kgo.Client, partition int32) int64 {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	of := kmsg.NewOffsetFetchRequestTopic()
	of.Topic, of.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, of)
	answer, err := req.RequestWith(t.Context(), c)
	require.NoError(t, err)
	if len(answer.Groups) > 0 {
		for _, one := range answer.Groups[0].Topics {
			return one.Partitions[0].Offset
		}
	}
	for _, one := range answer.Topics {
		return one.Partitions[0].Offset
	}
	return -1
}

func TestRecords(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	stamp := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	late := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
	body := func(b string) *kgo.Record { return &kgo.Record{Value: []byte(b), Timestamp: stamp} }
	good := []*kgo.Record{
		withHeaders("k1", "a", "toc-biz-type", "order_close", "toc-biz-id", "1", "toc-action-time", at.Format(time.RFC3339)),
		withHeaders("k2", "", "toc-biz-type", "order_close", "toc-biz-id", "2", "toc-action-time", strconv.FormatInt(at.UnixMilli(), 10)),
		withHeaders("k3", "c", "toc-biz-type", "order_close", "toc-biz-id", "3", "scheduler-epoch", strconv.FormatInt(at.Unix(), 10)),
		withHeaders("", "d", "toc-biz-type", "order_close", "toc-biz-id", "4", "toc-action-time", at.Format(time.RFC3339)),
		withHeaders("order-5", "e", "toc-biz-type", "order_close", "toc-action-time", at.Format(time.RFC3339)),
		body(fmt.Sprintf(`{"BizType":"order_close","BizID":6,"At":%q,"DedupKey":"own"}`, at.Format(time.RFC3339))),
		body(`{"BizType":"order_close","BizID":7,"Delay":7200000000000}`),
		withHeaders("k8", "h", "toc-biz-type", "order_close", "toc-biz-id", "8", "toc-action-time", late.Format(time.RFC3339)),
		withHeaders("k7", "a text", "toc-biz-type", "order_close", "toc-biz-id", "007", "toc-action-time", at.Format(time.RFC3339)),
	}
	bad := []struct {
		r     *kgo.Record
		field string
	}{
		{withHeaders("k", "x", "toc-biz-type", "order_close", "toc-biz-id", "1"), "toc-action-time"},
		{withHeaders("k", "x", "toc-biz-type", "order_close", "toc-biz-id", "1", "toc-action-time", "noon"), "toc-action-time"},
		{withHeaders("k", "x", "toc-biz-type", "order_close", "toc-biz-id", "1", "scheduler-epoch", "noon"), "scheduler-epoch"},
		{withHeaders("", "x", "toc-biz-type", "order_close", "toc-action-time", "1"), "toc-biz-id"},
		{withHeaders("k", "x", "toc-biz-type", "order_clsoe", "toc-biz-id", "1", "toc-action-time", "1"), "biz_type"},
		{null(withHeaders("", "", "toc-biz-type", "order_close", "toc-biz-id", "1")), "key"},
		{null(withHeaders("nobody", "", "toc-biz-type", "order_close", "toc-biz-id", "1")), "dedup_key"},
		{null(withHeaders("k1", "")), "toc-biz-type"},
		{body(`{`), ""},
		{body(`{"BizType":"order_close","BizID":7,"Delay":-1}`), "delay"},
		{body(`{"BizType":"order_close","BizID":9,"Delay":1,"Past":"refuse"}`), "action_time"},
	}
	for _, r := range good {
		produce(t, p, r)
	}
	for _, b := range bad {
		produce(t, p, b.r)
	}
	var refused sync.Map
	r, _ := read(t, c, s, func(cfg *intakekafka.Config) {
		cfg.Observer = observer(func(name string) { n, _ := refused.LoadOrStore(name, new(int)); *n.(*int)++ })
	})
	list := refusedRecords(t, c, len(bad))
	for i, b := range bad {
		headers := map[string]string{}
		for _, h := range list[i].Headers {
			headers[h.Key] = string(h.Value)
		}
		require.Equal(t, b.field, headers["toc-error-field"], "%d: %s", i, headers["toc-error"])
		require.NotEmpty(t, headers["toc-error"])
		require.Equal(t, []string{topic, "0", strconv.Itoa(len(good) + i)}, []string{headers["toc-topic"], headers["toc-partition"], headers["toc-offset"]})
		require.Equal(t, b.r.Key, list[i].Key)
		require.Equal(t, b.r.Value, list[i].Value)
	}
	settled(t, r, p, 0, int64(len(good)+len(bad)))
	n, _ := refused.Load("orders")
	require.Equal(t, len(bad), *n.(*int))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.tasks, len(good))
	for _, want := range []struct {
		key       api.Key
		at        time.Time
		attribute string
	}{
		{keyOf(1, "k1"), at, "a"}, {keyOf(2, "k2"), at, ""}, {keyOf(3, "k3"), at, "c"},
		{api.Key{BizType: "order_close", BizID: task.HashBizKey("007"), BizKey: "007", DedupKey: "k7"}, at, "a text"},
		{api.Key{BizType: "order_close", BizID: task.HashBizKey("order-5"), BizKey: "order-5", DedupKey: "order-5"}, at, "e"},
		{keyOf(6, "own"), at, "from a body"},
		{keyOf(8, "k8"), late, "h"},
	} {
		require.Contains(t, s.tasks, want.key)
		require.True(t, s.tasks[want.key].ActionTime.Equal(want.at))
		require.Equal(t, want.attribute, s.tasks[want.key].Attribute)
	}
	for k, one := range s.tasks {
		switch k.BizID {
		case 4, 7:
			require.Regexp(t, `^k:[\w-]{22}:0:\d+$`, k.DedupKey)
			require.LessOrEqual(t, len(k.DedupKey), task.MaxDedupKey)
		}
		if k.BizID == 7 {
			require.True(t, one.ActionTime.Equal(stamp.Add(2*time.Hour)), "a delay counts from the record's timestamp")
		}
	}
	require.Equal(t, []string{"h"}, s.fired, "what is past fires at once")
}

// The same key again moves its task, and a null value cancels it.
func TestKeys(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	r, _ := read(t, c, s)
	sent := int64(0)
	send := func(records ...*kgo.Record) {
		t.Helper()
		produce(t, p, records...)
		sent += int64(len(records))
	}
	becomes := func(k api.Key, what string, is func(one api.Task) bool) {
		t.Helper()
		await.That(t, func() bool {
			one, err := s.GetByKey(t.Context(), k)
			return err == nil && is(one)
		}, "%v is %s", k, what)
	}
	holds := func(k api.Key, attribute string) {
		t.Helper()
		becomes(k, attribute, func(one api.Task) bool { return one.Attribute == attribute })
	}
	send(order("a", 1, "v1", time.Hour))
	holds(keyOf(1, "a"), "v1")
	send(order("a", 1, "v2", 2*time.Hour))
	holds(keyOf(1, "a"), "v2")
	send(null(order("a", 1, "", 0)))
	becomes(keyOf(1, "a"), "cancelled", func(one api.Task) bool { return one.Status == "cancelled" })
	send(null(order("a", 1, "", 0))) // again: nothing is wrong

	send(order("b", 1, "v1", time.Hour), order("b", 1, "v2", 2*time.Hour), order("b", 1, "v3", 3*time.Hour))
	holds(keyOf(1, "b"), "v3")
	send(order("c", 1, "v1", time.Hour), null(order("c", 1, "", 0)))
	settled(t, r, p, 0, sent)
	// Whether they came together or not, a statement for the first one that was still on its way finds the cancelled task.
	one, err := s.GetByKey(t.Context(), keyOf(1, "c"))
	require.NoError(t, err)
	require.Equal(t, "cancelled", one.Status)

	// The task of a key has run: the same record again is no fault, another one is.
	s.set(keyOf(1, "b"), task.Processed)
	send(order("b", 1, "v3", time.Hour))
	settled(t, r, p, 0, sent)
	send(order("b", 1, "v4", time.Hour))
	list := refusedRecords(t, c, 1)
	settled(t, r, p, 0, sent)
	require.Len(t, list, 1)
	require.Equal(t, "v4", string(list[0].Value))
}

// A record that comes again after its task was moved does not fire, though its time has passed meanwhile.
func TestOlderRecordsDoNotComeBack(t *testing.T) {
	t.Parallel()
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	s.tasks[keyOf(1, "a")] = &task.Task{JobID: 1 << 40, BizID: 1, ActionTime: time.Now().Add(time.Hour), Attribute: "v2"} // by both records
	produce(t, p, order("a", 1, "v1", -time.Minute))
	for i := range 2000 {
		produce(t, p, order("", uint64(i), strconv.Itoa(i), time.Hour)) // in many batches: they come in several fetches
	}
	produce(t, p, order("a", 1, "v2", time.Hour))
	// No task was ever stored of a type that is not configured, so there is none to cancel.
	strange := func() *kgo.Record {
		return withHeaders("b", "v1", "toc-biz-type", "nothing", "toc-biz-id", "1", "toc-action-time", "2040-01-02T03:04:05Z")
	}
	produce(t, p, strange(), null(strange()))
	r, _ := read(t, c, s)
	await.That(t, func() bool { return s.count() == 2000 && r.Lag() == 0 }, "all records are stored")
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.fired)
	require.Equal(t, "v2", s.tasks[keyOf(1, "a")].Attribute)
}

// With a database away its records wait and the others go on; no offset behind a record that waits is committed.
func TestADatabaseIsAway(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 2), newCenter()
	p := producer(t, c)
	s.setDown(3, true)
	const n = 4000
	var records []*kgo.Record
	for i := range n {
		r := order("", uint64(i), "", time.Hour)
		r.Partition = int32(i % 2)
		records = append(records, r)
	}
	produce(t, p, records...)
	r, stop := read(t, c, s)
	await.That(t, func() bool { return s.count() == n*7/8 }, "the other databases have their records")
	await.That(t, func() bool { return committed(t, p, 0) == n/2 }, "partition 0, which has none of that database, is committed")
	require.Positive(t, r.Lag())
	stop() // it commits all that may be
	require.Equal(t, int64(1), committed(t, p, 1), "biz_id 3 is the second record of partition 1")

	s.setDown(3, false)
	r, _ = read(t, c, s) // another node reads what was not committed again
	await.That(t, func() bool { return s.count() == n }, "all records are stored")
	settled(t, r, p, 1, n/2)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.tasks, n, "no second tasks")
}

// Behind a record whose database stays away a partition is read for a window, and then paused; the other partition goes on. No
// more is kept in memory than can come again.
func TestAPartitionIsPaused(t *testing.T) {
	takesTime(t)
	const window, behind, others = 5_000, 25_000, 12_000
	c, s := brokers(t, 2), newCenter()
	p := producer(t, c)
	s.setDown(3, true)
	records := []*kgo.Record{order("", 3, "", time.Hour)}
	for i := range behind {
		records = append(records, order("", uint64(8*i), "", time.Hour))
	}
	for i := range others {
		r := order("", uint64(8*i+1), "", time.Hour)
		r.Partition = 1
		records = append(records, r)
	}
	produce(t, p, records...)
	r, stop := read(t, c, s)
	await.That(t, func() bool { return s.count() == others+window-1 }, "a window is stored")
	await.That(t, func() bool { return committed(t, p, 1) == others }, "the other partition is committed")
	require.LessOrEqual(t, committed(t, p, 0), int64(0))
	await.That(t, func() bool { return r.Lag() == behind+1 }, "the lag counts what is not fetched, too")
	more := order("", 1, "", time.Hour)
	more.Partition = 1
	produce(t, p, more)
	await.That(t, func() bool { return s.count() == others+window }, "the other partition goes on")

	s.setDown(3, false)
	await.That(t, func() bool { return s.count() == 1+behind+others+1 }, "all records are stored")
	settled(t, r, p, 0, behind+1)
	stop()
	require.Len(t, s.tasks, 1+behind+others+1, "no second tasks")
}

// hung is a center that is about to store one attribute when it hangs.
type hung struct {
	*center
	attribute   string
	begun, goOn chan struct{}
	ended       chan error // why it did not store; nil: it did
}

func (h *hung) SubmitBatch(ctx context.Context, list []api.Submit) ([]api.BatchResult, error) {
	if list[0].Attribute != h.attribute {
		return h.center.SubmitBatch(ctx, list)
	}
	close(h.begun)
	<-h.goOn
	if ctx.Err() != nil {
		h.ended <- ctx.Err()
		return nil, intake.Unavailable("given up")
	}
	stored, err := h.center.SubmitBatch(ctx, list)
	h.ended <- nil
	return stored, err
}

// A reader is cut off from its group while the store hangs, and another one takes its partition and a newer record over. What
// the first one was about to store does not come behind it: its own clock has ended the step, before it could hear of it.
func TestAReaderThatItsGroupHasGivenUp(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	var mu sync.Mutex
	first, cut := "", false
	c.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		member := r.(*kmsg.HeartbeatRequest).MemberID
		if first == "" {
			first = member
		}
		return nil, nil, cut && member == first // no answer: its client gives up after 10 s, and says so
	})
	gone := &hung{center: s, attribute: "v1", begun: make(chan struct{}), goOn: make(chan struct{}), ended: make(chan error, 1)}
	read(t, c, gone)
	await.That(t, func() bool { mu.Lock(); defer mu.Unlock(); return first != "" }, "the first reader is a member")
	produce(t, p, order("a", 1, "v1", time.Hour))
	<-gone.begun
	mu.Lock()
	cut = true
	mu.Unlock()
	produce(t, p, order("a", 1, "v2", 2*time.Hour))
	read(t, c, s)
	stored := func() string {
		one, err := s.GetByKey(t.Context(), keyOf(1, "a"))
		if err != nil {
			return ""
		}
		return one.Attribute
	}
	await.That(t, func() bool { return stored() == "v2" }, "the second reader stores the newer record")
	close(gone.goOn)
	// Without its clock the step would go on, or be cancelled by the client: whichever comes first on this machine.
	require.Equal(t, context.DeadlineExceeded, <-gone.ended)
	await.That(t, func() bool { return committed(t, p, 0) == 2 }, "both records are committed")
	require.Equal(t, "v2", stored())
}

// A topic that is deleted and made again is read again, from its start. At 799f0ec it was not before a restart.
func TestATopicIsMadeAgain(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	for i := range uint64(5) {
		produce(t, p, order("", i, "", time.Hour))
	}
	r, _ := read(t, c, s)
	settled(t, r, p, 0, 5)

	gone := kmsg.NewPtrDeleteTopicsRequest()
	one := kmsg.NewDeleteTopicsRequestTopic()
	one.Topic, gone.TopicNames = kmsg.StringPtr(topic), []string{topic}
	gone.Topics, gone.TimeoutMillis = append(gone.Topics, one), 5000
	_, err := gone.RequestWith(t.Context(), p)
	require.NoError(t, err)
	again := kmsg.NewPtrCreateTopicsRequest()
	made := kmsg.NewCreateTopicsRequestTopic()
	made.Topic, made.NumPartitions, made.ReplicationFactor = topic, 1, 1
	again.Topics = append(again.Topics, made)
	answer, err := again.RequestWith(t.Context(), p)
	require.NoError(t, err)
	require.Zero(t, answer.Topics[0].ErrorCode)

	p = producer(t, c)
	for i := range uint64(20) {
		produce(t, p, order("", i, "", time.Hour))
	}
	await.That(t, func() bool { return s.count() == 25 }, "all records of the new topic are stored")
	settled(t, r, p, 0, 20)
}

// A refused record that is too large for the failure topic goes there without its value, and a batch that would take too much
// memory is refused as one record. At 799f0ec the first stopped its partition for ever, and the second was decompressed.
func TestRecordsThatAreTooLarge(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	large, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(64<<20), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	require.NoError(t, err)
	t.Cleanup(large.Close)
	p := producer(t, c)
	value := strings.Repeat("z", 1_200_000)
	produce(t, large, withHeaders("a key", value, "own", strings.Repeat("h", 2000)))
	produce(t, p, order("", 1, "", time.Hour))
	bomb := &kgo.Record{Value: make([]byte, 40<<20)}
	produce(t, large, bomb)
	produce(t, p, order("", 2, "", time.Hour))
	produce(t, large, &kgo.Record{Value: make([]byte, 40<<20)})
	r, stop := read(t, c, s)
	settled(t, r, p, 0, 5)
	stop()
	require.Equal(t, 2, s.count())
	list := refusedRecords(t, c, 3)
	of := func(r *kgo.Record) map[string]string {
		h := map[string]string{}
		for _, one := range r.Headers {
			h[one.Key] = string(one.Value)
		}
		return h
	}
	slices.SortFunc(list, func(a, b *kgo.Record) int { return strings.Compare(of(a)["toc-offset"], of(b)["toc-offset"]) })
	sum := sha256.Sum256([]byte(value))
	require.Empty(t, list[0].Value)
	require.Equal(t, "a key", string(list[0].Key))
	h := of(list[0])
	require.Equal(t, []string{"1200000", hex.EncodeToString(sum[:]), "0", topic}, []string{h["toc-value-size"], h["toc-value-sha256"], h["toc-offset"], h["toc-topic"]})
	require.NotContains(t, h, "own")
	for i, offset := range []string{"2", "4"} {
		h := of(list[1+i])
		require.Equal(t, []string{"value", offset}, []string{h["toc-error-field"], h["toc-offset"]})
		require.Contains(t, h["toc-error"], "larger than 32 MiB")
	}
	require.Contains(t, of(list[1])["toc-error"], strconv.FormatInt(bomb.Offset, 10))

	// Nothing of it comes again.
	r, _ = read(t, c, s)
	produce(t, p, order("", 3, "", time.Hour))
	settled(t, r, p, 0, 6)
	require.Len(t, refusedRecords(t, c, 3), 3)
	require.Equal(t, 3, s.count())
}

// Refused records without a failure topic are a line of the log each 10 s. At 799f0ec each was a line.
func TestManyRefusedRecords(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	var bad []*kgo.Record
	for range 300 {
		bad = append(bad, withHeaders("", "x", "toc-biz-type", "unknown"))
	}
	produce(t, p, bad...)
	var mu sync.Mutex
	var text bytes.Buffer
	var refused atomic.Int64
	log := slog.New(slog.NewTextHandler(writer(func(b []byte) { mu.Lock(); text.Write(b); mu.Unlock() }), nil))
	logged := func() string { mu.Lock(); defer mu.Unlock(); return text.String() }
	r, _ := read(t, c, s, func(cfg *intakekafka.Config) {
		cfg.FailureTopic, cfg.Logger, cfg.Observer = "", log, observer(func(string) { refused.Add(1) })
	})
	settled(t, r, p, 0, 300)
	require.EqualValues(t, 300, refused.Load())
	await.That(t, func() bool { return strings.Contains(logged(), "records=299") }, "the others are summed up")
	require.Equal(t, 2, strings.Count(logged(), "record refused"))
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// Brokers that are away are told: without that a topic would look empty.
func TestNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	r, _ := read(t, brokers(t, 1), newCenter(), func(c *intakekafka.Config) { c.Cluster.Brokers = []string{closed.Addr().String()} })
	await.That(t, func() bool { return r.Away() != nil }, "the brokers are away")
	require.ErrorIs(t, r.Away(), syscall.ECONNREFUSED)
}

// Readers come and go while records come: none is lost, and no offset is ahead of the store.
func TestReadersComeAndGo(t *testing.T) {
	takesTime(t)
	const partitions, ahead = 8, 4_000
	c, s := brokers(t, partitions), newCenter()
	p := producer(t, c)
	n := 0
	more := func() {
		var records []*kgo.Record
		for range ahead / 2 {
			r := order("", uint64(n), "", time.Hour)
			r.Partition = int32(n % partitions)
			records = append(records, r)
			n++
		}
		produce(t, p, records...)
	}
	check := func() {
		var offsets [partitions]int64
		for i := range int32(partitions) {
			offsets[i] = committed(t, p, i)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var stored [partitions]int64
		for _, id := range s.stored {
			stored[id%partitions]++
		}
		for i, at := range offsets {
			require.LessOrEqual(t, at, stored[i])
		}
	}
	more()
	_, stop := read(t, c, s)
	for range 4 {
		_, next := read(t, c, s)
		for range 5 {
			more()
			await.That(t, func() bool { return s.count() >= n-ahead }, "%d of %d records are stored", n-ahead, n)
			check()
		}
		stop()
		stop = next
	}
	await.That(t, func() bool { return s.count() == n }, "all records are stored")
	check()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.stored, n)
}

// The rate holds for what is due later than slow_after; what is due sooner passes.
func TestRate(t *testing.T) {
	takesTime(t)
	const rate = 10 // with a burst of one
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	var records []*kgo.Record
	for i := range 1000 {
		due := 2 * time.Hour
		if i%100 == 99 {
			due = time.Minute
		}
		records = append(records, order("", uint64(i), "", due))
	}
	produce(t, p, records...)
	began := time.Now()
	read(t, c, s, func(cfg *intakekafka.Config) { cfg.Rate, cfg.SlowAfter = rate, time.Hour })
	stored := func() (soon, later int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range s.stored {
			if id%100 == 99 {
				soon++
			} else {
				later++
			}
		}
		return soon, later
	}
	await.That(t, func() bool {
		soon, later := stored()
		require.LessOrEqual(t, later, 1+int(rate*time.Since(began).Seconds()))
		return soon == 10 && later > rate
	}, "all that is due soon is stored, and a second's worth of the rest")
}

// A failure topic that is not there keeps the refused record, and what is behind it, from being committed.
func TestTheFailureTopicIsMissing(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	produce(t, p, withHeaders("k", "x", "toc-biz-type", "unknown", "toc-biz-id", "1", "toc-action-time", "1"), order("a", 1, "", time.Hour))
	_, stop := read(t, c, s, func(cfg *intakekafka.Config) { cfg.FailureTopic = "nowhere" })
	await.That(t, func() bool { return s.count() == 1 }, "the other record is stored")
	stop()
	require.LessOrEqual(t, committed(t, p, 0), int64(0))
	read(t, c, s)
	require.Len(t, refusedRecords(t, c, 1), 1)
	await.That(t, func() bool { return committed(t, p, 0) == 2 }, "both records are committed")
	require.Equal(t, 1, s.count())
}

func TestNew(t *testing.T) {
	_, err := intakekafka.New(intakekafka.Config{Name: "orders", Cluster: kafka.Cluster{Name: "main", SASL: "ntlm"}})
	require.ErrorContains(t, err, "ntlm")
}

// A record with on_duplicate again takes the key of a task that has ended; the same record once more, as after a kill, does not.
func TestAgain(t *testing.T) {
	takesTime(t)
	c, s := brokers(t, 1), newCenter()
	p := producer(t, c)
	record := func() *kgo.Record {
		return &kgo.Record{Value: []byte(`{"BizType":"order_close","BizID":1,"Delay":3600000000000,"DedupKey":"k","Again":true}`), Timestamp: time.Now()}
	}
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tasks[keyOf(1, "k")].Status = task.Processed
	}
	r, _ := read(t, c, s)
	first := record()
	produce(t, p, first)
	settled(t, r, p, 0, 1)
	end()
	produce(t, p, &kgo.Record{Value: first.Value, Timestamp: first.Timestamp})
	settled(t, r, p, 0, 2)
	require.Equal(t, []uint64{1}, s.stored, "its own task has ended")
	produce(t, p, record())
	settled(t, r, p, 0, 3)
	require.Equal(t, []uint64{1, 1}, s.stored)
}
