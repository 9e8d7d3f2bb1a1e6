package soak_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
	"github.com/timeoutcenter/toc/task"
)

// In the arena of Kafka the nodes read tasks from one topic and write those that are due to another one, while nodes are
// killed, stopped and replaced, brokers do not answer, restart and change places, and the group meets elsewhere. The brokers
// live in this process (kfake).

// The topics.
const (
	topicIn      = "timers"
	topicOut     = "timeouts"
	topicRefused = "timers-refused"
	partitionsIn = 12
)

// The kinds of faults that only brokers have.
const (
	brokersSilent   = "brokers take no records"
	brokerRestarted = "a broker restarted"
	leadersMoved    = "leaders moved"
	groupMoved      = "the group's coordinator moved"
	topicMadeAnew   = "the topic was made anew"
)

// breakBrokers does to the brokers what a kind says.
func (i *faultInjector) breakBrokers(kind string) {
	t := i.fleet.t
	switch kind {
	case brokersSilent:
		var over atomic.Bool
		i.brokers.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if over.Load() {
				i.brokers.DropControl()
				return nil, nil, false
			}
			i.brokers.KeepControl()
			return nil, nil, true // no answer
		})
		i.last(i.patience(3*time.Second, 30*time.Second, 31*time.Second), nil)
		over.Store(true)
	case brokerRestarted:
		id := int32(i.rng.IntN(3))
		require.NoError(t, i.brokers.RemoveNode(id))
		i.listeners.cut(i.brokerPorts[id])
		i.last(i.patience(time.Second, 2*time.Second, 6*time.Second), nil)
		_, _, err := i.brokers.AddNode(id, i.brokerPorts[id])
		require.NoError(t, err)
		i.brokers.ShufflePartitionLeaders()
	case leadersMoved:
		i.brokers.ShufflePartitionLeaders()
		i.fleet.rest(500 * time.Millisecond)
	case groupMoved:
		i.brokers.RehashCoordinators()
		i.fleet.rest(500 * time.Millisecond)
	case topicMadeAnew:
		i.records.makeTopicAnew()
	}
}

// soakKafka is soak with tasks that come from records and become records.
func soakKafka(t *testing.T, a arena, seed uint64, last time.Duration) {
	listeners := newListeners()
	brokers, err := kfake.NewCluster(kfake.ListenFn(listeners.listen), kfake.NumBrokers(3), kfake.SeedTopics(partitionsIn, topicIn), kfake.SeedTopics(8, topicOut), kfake.SeedTopics(1, topicRefused))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	faults := &faultInjector{rng: rand.New(rand.NewPCG(seed, 0)), long: last > 0, brokers: brokers, listeners: listeners, consul: testrig.StartConsul(t),
		databases: []*testrig.PrivateMySQL{testrig.StartMySQL(t), testrig.StartMySQL(t)},
		chosen:    []string{kill, brokersSilent, leadersMoved, brokerRestarted, groupMoved, topicMadeAnew, pause, rolling, storeKilled, storeFrozen}}
	for _, addr := range brokers.ListenAddrs() { // later they are in another order
		_, text, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		faults.brokerPorts = append(faults.brokerPorts, port)
	}
	redis := testrig.Redis(t)
	s := servers{databases: faults.databases, redis: []string{redis.Addr()}, redisPrefix: redis.Prefix(), consul: faults.consul.Addr(), consulPrefix: "toc"}
	f := newFleet(t, s, a.nodes, func(cfg *configs.Config) {
		cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: brokers.ListenAddrs()}}
		cfg.Intake = []configs.Intake{{Name: "timers", Cluster: "main", Topic: topicIn, Group: "toc", FailureTopic: topicRefused}}
		for i := range cfg.BizTypes {
			b := &cfg.BizTypes[i]
			b.Processor, b.Kafka = configs.ProcessorKafka, configs.KafkaOut{Cluster: "main", Topic: topicOut, Key: configs.KeyBizID}
			b.Timeout, b.MaxRetries = 3*time.Second, 250 // as docs/kafka.md asks for: enough for the longest outage
		}
	})
	faults.fleet = f
	f.startAll()
	f.awaitWhole()

	n, rate, enough := 60_000, 600, make(chan struct{}) // in the short form until the faults are over
	if faults.long {
		n, rate = 100_000, int(100_000/last.Seconds())
	}
	r := newRecords(f, brokers)
	faults.hands, faults.records = r.hands, r
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	produced := make(chan struct{})
	work.Go(func() { defer close(produced); r.produce(ctx, n, rate, enough) })
	work.Go(func() { r.watchOffsets(ctx) })
	began := time.Now()
	f.rest(time.Second)
	for _, kind := range faults.plan() {
		if !faults.long { // which has many
			r.awaitFlow()
		}
		faults.inject(kind)
	}
	for time.Since(began) < last && !t.Failed() {
		faults.inject(faults.anything())
	}
	if !faults.long {
		close(enough)
	}
	for done := false; !done; f.rest(50 * time.Millisecond) {
		select {
		case <-produced:
			done = true
		default:
		}
	}
	r.await(4 * time.Minute)
	stop()
	work.Wait()
	f.stopAll()
	r.audit(t)
}

// listeners know the connections of the brokers. A broker that ends takes its connections along; kfake leaves them open, and answers
// there, as a broker that leads nothing any more, for as long as clients use them.
type listeners struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

func newListeners() *listeners { return &listeners{open: map[net.Conn]bool{}} }

func (l *listeners) listen(network, address string) (net.Listener, error) {
	inner, err := net.Listen(network, address)
	return listener{inner, l}, err
}

type listener struct {
	net.Listener
	all *listeners
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.all.open[conn] = true
	return conn, nil
}

// cut closes the connections to a port.
func (l *listeners) cut(port int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		if conn.LocalAddr().(*net.TCPAddr).Port == port {
			_ = conn.Close()
			delete(l.open, conn)
		}
	}
}

// records are what was produced, and what became of it.
type records struct {
	fleet   *fleet
	asking  *kgo.Client // what the group has committed
	brokers *kfake.Cluster
	hands   *traffic.Hands
	dbs     []*sql.DB

	gate     sync.RWMutex // of what is produced: it is locked while the topic is made anew
	producer *kgo.Client

	mu       sync.Mutex
	topics   int                         // how often the topic was made anew
	gone     [partitionsIn][]int         // the records of the topics before
	places   [partitionsIn]map[int64]int // the number of the record at each offset
	produced int
	checks   int
	verified [partitionsIn]int64 // up to here each record was found in the store
	broken   map[string][]string
}

// What a record asks for follows from its number: of fifty one is moved by a later one, one is cancelled.
type wanted struct {
	moves, cancels, moved, cancelled bool
	soon                             bool // it is due within the soak
}

const apart = 25 // numbers between a record and the one that changes its task

func wantedOf(i int) wanted {
	w := wanted{moved: i%50 == 0, moves: i%50 == apart, cancelled: i%50 == 10, cancels: i%50 == 10+apart}
	w.soon = w.moves || i%3 > 0 && !w.moved && !w.cancelled && !w.cancels
	return w
}

func newRecords(f *fleet, brokers *kfake.Cluster) *records {
	c := f.traffic(false)
	r := &records{fleet: f, brokers: brokers, hands: traffic.NewLoad(c, 0, 0).Hands, dbs: c.DBs, broken: map[string][]string{}}
	r.asking, r.producer = r.newProducer(), r.newProducer()
	r.forgetPlaces()
	return r
}

// newProducer makes a client that writes the topic as it is now: a topic that is made anew is another one to it.
func (r *records) newProducer() *kgo.Client {
	t := r.fleet.t
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers.ListenAddrs()...), kgo.DefaultProduceTopic(topicIn), kgo.RecordRetries(1<<30), kgo.RecordPartitioner(spread()),
		kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(2*time.Second)) // after brokers were silent it goes on soon
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (r *records) forgetPlaces() {
	for p := range r.places {
		r.places[p], r.verified[p] = map[int64]int{}, 0
	}
}

// makeTopicAnew deletes the topic when all of its records are settled, and makes it again: its offsets begin at 0.
func (r *records) makeTopicAnew() {
	t := r.fleet.t
	r.gate.Lock()
	defer r.gate.Unlock()
	require.NoError(t, r.producer.Flush(t.Context()))
	for deadline := time.Now().Add(4 * time.Minute); ; r.fleet.rest(100 * time.Millisecond) {
		if offsets, err := r.committed(t.Context()); err == nil && offsets == r.ends() {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("records are not settled, so the topic is not made anew")
			return
		}
	}
	gone := r.log()
	require.NoError(t, r.brokers.DeleteTopic(topicIn))
	r.mu.Lock()
	r.topics++
	r.forgetPlaces()
	for p, list := range gone {
		r.gone[p] = append(r.gone[p], list...)
	}
	r.mu.Unlock()
	require.NoError(t, r.brokers.CreateTopic(topicIn, partitionsIn, nil))
	r.producer = r.newProducer()
}

// spread gives each partition its share of the records without a key, too: kgo's own choice puts most of them into a few, and the
// node that is killed may have none of these.
func spread() kgo.Partitioner {
	return kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		next := 0
		return func(r *kgo.Record, n int) int {
			if r.Key != nil {
				return int(crc32.ChecksumIEEE(r.Key) % uint32(n))
			}
			next++
			return next % n
		}
	})
}

// blame writes down what must not be.
func (r *records) blame(broken, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken[broken] = append(r.broken[broken], time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// produce writes n records, so many a second, until enough is closed.
func (r *records) produce(ctx context.Context, n, rate int, enough <-chan struct{}) {
	var acknowledged sync.WaitGroup
	defer acknowledged.Wait()
	began := time.Now()
	for i := range n {
		due := time.NewTimer(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		select {
		case <-due.C:
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
		acknowledged.Add(1)
		r.gate.RLock()
		r.producer.Produce(ctx, record(i), func(at *kgo.Record, err error) {
			defer acknowledged.Done()
			if err != nil {
				if ctx.Err() == nil {
					r.blame("records were not produced", "%d: %v", i, err)
				}
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.places[at.Partition][at.Offset] = i
			r.produced++
		})
		r.gate.RUnlock()
	}
}

// record is the record of a number: by headers with a key or without one, or as a body.
func record(i int) *kgo.Record {
	w := wantedOf(i)
	bizType, id, at := bizTypes[i%len(bizTypes)], strconv.Itoa(i), time.Now().Add(time.Hour)
	if w.moves || w.cancels { // the task of an earlier record
		bizType, id = bizTypes[(i-apart)%len(bizTypes)], strconv.Itoa(i-apart)
	}
	if w.soon {
		at = time.Now().Add(time.Second + time.Duration(rand.Int64N(int64(4*time.Second))))
	}
	at = at.Truncate(time.Millisecond)
	special := w.moves || w.cancels || w.moved || w.cancelled
	if i%3 == 1 && !special {
		return &kgo.Record{Value: fmt.Appendf(nil, `{"biz_type":%q,"biz_id":%s,"action_time":%q,"attribute":"%d"}`, bizType, id, at.UTC().Format(time.RFC3339Nano), i)}
	}
	r := &kgo.Record{Value: []byte(strconv.Itoa(i))}
	if special || i%2 == 0 {
		r.Key = []byte("timer-" + id)
	}
	for _, h := range [][2]string{{"toc-biz-type", bizType}, {"toc-biz-id", id}, {"toc-action-time", strconv.FormatInt(at.UnixMilli(), 10)}} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	if w.cancels {
		r.Value = nil
	}
	return r
}

// stored is what the store has of a record.
type stored struct {
	jobID    uint64
	status   task.Status
	attempts int
	action   string
	failure  string
	key      string // dedup_key; of a record without a key its place
}

// read reads all rows by the numbers in their attributes, by plain SQL.
func (r *records) read(ctx context.Context) (map[int][]stored, error) {
	found := make([]map[int][]stored, len(r.dbs))
	var g errgroup.Group
	for d, db := range r.dbs {
		found[d] = map[int][]stored{}
		g.Go(func() error {
			rows, err := db.QueryContext(ctx, audit.EachTable(r.fleet.cfg.Store.TablesPerDatabase, "SELECT job_id, status, attempts, action_time, last_error, COALESCE(dedup_key, ''), attribute FROM %s"))
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var one stored
				var number int
				if err := rows.Scan(&one.jobID, &one.status, &one.attempts, &one.action, &one.failure, &one.key, &number); err != nil {
					return err
				}
				found[d][number] = append(found[d][number], one)
			}
			return rows.Err()
		})
	}
	err := g.Wait()
	all := map[int][]stored{}
	for _, one := range found {
		for number, list := range one {
			all[number] = append(all[number], list...)
		}
	}
	return all, err
}

// watchOffsets checks, again and again, that what is committed in the group is in the store.
func (r *records) watchOffsets(ctx context.Context) {
	for traffic.Wait(ctx, time.Second) {
		r.mu.Lock()
		topics := r.topics
		r.mu.Unlock()
		offsets, err := r.committed(ctx)
		if err != nil {
			continue
		}
		rows, err := r.read(ctx)
		if err != nil {
			continue
		}
		r.checkOffsets(topics, offsets, rows)
	}
}

func (r *records) checkOffsets(topics int, offsets [partitionsIn]int64, rows map[int][]stored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if topics != r.topics { // these offsets may be of a topic that is gone
		return
	}
	r.checks++
	for p, end := range offsets {
		for at := r.verified[p]; at < end; at++ {
			number, known := r.places[p][at]
			if !known { // its producer has no answer yet
				break
			}
			w := wantedOf(number)
			if len(rows[number]) == 0 && !w.moved && !w.cancelled && !w.cancels { // those may have been overtaken
				r.broken["offsets are ahead of the store"] = append(r.broken["offsets are ahead of the store"],
					fmt.Sprintf("partition %d is committed to %d, and record %d at %d is not stored", p, end, number, at))
			}
			r.verified[p] = at + 1
		}
	}
}

// committed asks for the offsets of the group.
func (r *records) committed(ctx context.Context) (offsets [partitionsIn]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ask, group, topic := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	group.Group, topic.Topic = "toc", topicIn
	for p := range int32(partitionsIn) {
		topic.Partitions = append(topic.Partitions, p)
	}
	group.Topics = append(group.Topics, topic)
	ask.Groups = append(ask.Groups, group)
	answer, err := ask.RequestWith(ctx, r.asking)
	if err != nil || len(answer.Groups) == 0 || len(answer.Groups[0].Topics) == 0 {
		return offsets, fmt.Errorf("no offsets: %w", err)
	}
	for _, p := range answer.Groups[0].Topics[0].Partitions {
		offsets[p.Partition] = max(0, p.Offset)
	}
	return offsets, nil
}

// awaitFlow waits until records are read: the next fault is to hit nodes that have stored some whose offsets are not committed.
func (r *records) awaitFlow() {
	began := int64(-1)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); r.fleet.rest(100 * time.Millisecond) {
		offsets, err := r.committed(r.fleet.t.Context())
		if err != nil {
			continue
		}
		sum := int64(0)
		for _, at := range offsets {
			sum += at
		}
		if began < 0 {
			began = sum
		}
		if sum > began+flowing {
			r.fleet.rest(500 * time.Millisecond) // a node has just committed
			return
		}
	}
	r.fleet.t.Errorf("no records are read after a minute")
}

const flowing = 500 // records

// await waits until all records are settled, and what was due soon has run.
func (r *records) await(patience time.Duration) {
	t := r.fleet.t
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); r.fleet.rest(250 * time.Millisecond) {
		offsets, err := r.committed(t.Context())
		if err != nil {
			continue
		}
		rows, err := r.read(t.Context())
		if err != nil {
			continue
		}
		waiting := 0
		for number, list := range rows {
			for _, one := range list {
				if wantedOf(number).soon && one.status == task.Pending {
					waiting++
				}
			}
		}
		if offsets == r.ends() && waiting == 0 {
			return
		}
	}
	t.Errorf("records are still not settled, or tasks not written, after %s", patience)
}

// ends are the ends of the topic's partitions.
func (r *records) ends() (offsets [partitionsIn]int64) {
	for p := range offsets {
		offsets[p] = r.brokers.PartitionInfo(topicIn, int32(p)).HighWatermark
	}
	return offsets
}

// log reads the topic as it is in the end: the numbers of the records by their places. A producer that got no answer for a
// while may have written a record twice, or after one that followed it.
func (r *records) log() (list [partitionsIn][]int) {
	t := r.fleet.t
	consumer, err := kgo.NewClient(kgo.SeedBrokers(r.fleet.cfg.Kafka.Clusters[0].Brokers...), kgo.ConsumeTopics(topicIn), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	left := int64(0)
	for _, end := range r.ends() {
		left += end
	}
	for left > 0 {
		fetches := consumer.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		fetches.EachRecord(func(one *kgo.Record) {
			left--
			list[one.Partition] = append(list[one.Partition], numberOf(t, one))
		})
	}
	return list
}

// numberOf reads the number of a record: its value, or, of one that cancels, from the task that it cancels.
func numberOf(t testing.TB, one *kgo.Record) int {
	text, behind := string(one.Value), 0
	if one.Value == nil {
		text, behind = string(one.Headers[1].Value), apart
	}
	if len(text) > 0 && text[0] == '{' {
		var body struct{ Attribute string }
		require.NoError(t, json.Unmarshal(one.Value, &body))
		text = body.Attribute
	}
	number, err := strconv.Atoi(text)
	require.NoError(t, err)
	return number + behind
}

// audit compares records, rows and what was written.
func (r *records) audit(t *testing.T) {
	rows, err := r.read(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	times, last := map[int]int{}, map[int]int{} // how often a record is in the topic; of those that are about one task the last one
	disordered := 0
	for p, list := range r.log() {
		for _, number := range slices.Concat(r.gone[p], list) {
			about := number
			if w := wantedOf(number); w.moves || w.cancels {
				about -= apart
			}
			if times[number]++; times[number] > 1 || last[about] > number {
				disordered++
			}
			last[about] = number
		}
	}
	var counts struct{ rows, soon, far, cancelled int }
	for number, n := range times {
		w, list := wantedOf(number), rows[number]
		counts.rows += len(list)
		switch special := w.moves || w.moved || w.cancels || w.cancelled; {
		case len(list) > n, special && len(list) > 1:
			r.blame("records have a second task", "%d, %d times in the topic: %v", number, n, list)
		case w.cancels, (w.moves || w.moved) && last[number-number%50] != number:
			if len(list) > 0 {
				r.blame("tasks are as an older record asks for", "%d: %v", number, list)
			}
		case w.cancelled && last[number] != number:
			if len(list) == 1 && list[0].status != task.Cancelled {
				r.blame("tasks are as an older record asks for", "%d: %v", number, list)
			}
			counts.cancelled++
		case len(list) == 0:
			r.blame("records are lost", "%d", number)
		case w.soon && list[0].status != task.Processed, !w.soon && list[0].status != task.Pending:
			r.blame("tasks are not as they should be", "%d: %v", number, list)
		case w.soon:
			counts.soon++
		default:
			counts.far++
		}
	}
	written, twice := r.written(rows, counts.soon)
	t.Logf("%d records: %d tasks of which %d were due and %d are not yet, %d cancelled; %d records written, %d of them again; offsets checked %d times; %d records came into the topic twice or out of order; it was made anew %d times",
		r.produced, counts.rows, counts.soon, counts.far, counts.cancelled, written, twice, r.checks, disordered, r.topics)
	reportBroken(t, r.broken)
	require.Positive(t, counts.soon)
	require.Positive(t, r.checks)
}

// written reads the topic of those that were due: each must be there.
func (r *records) written(rows map[int][]stored, soon int) (n, twice int) {
	t := r.fleet.t
	consumer, err := kgo.NewClient(kgo.SeedBrokers(r.fleet.cfg.Kafka.Clusters[0].Brokers...), kgo.ConsumeTopics(topicOut), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer consumer.Close()
	seen := map[int]string{}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	for len(seen) < soon && ctx.Err() == nil {
		consumer.PollFetches(ctx).EachRecord(func(one *kgo.Record) {
			n++
			number, err := strconv.Atoi(string(one.Value))
			require.NoError(t, err)
			job := ""
			for _, h := range one.Headers {
				if h.Key == "toc-job-id" {
					job = string(h.Value)
				}
			}
			if _, known := seen[number]; known {
				twice++
			}
			seen[number] = job
			if !slices.ContainsFunc(rows[number], func(s stored) bool { return strconv.FormatUint(s.jobID, 10) == job }) {
				list := rows[number]
				r.blame("records are written for no task", "%d of task %s: %v", number, job, list)
			}
		})
	}
	if len(seen) != soon {
		r.blame("processed tasks were not written", "%d of %d", soon-len(seen), soon)
	}
	return n, twice
}
