package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor/kafka"
	"github.com/timeoutcenter/toc/task"
)

const topic = "order-timeouts"

var orderClose = task.BizType{ID: 7, Name: "order_close", Workers: 64, Timeout: 30 * time.Second}

// brokers starts a Kafka of three brokers that has the topic.
func brokers(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(8, topic)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func open(t *testing.T, cfg kafka.Config) *kafka.Processor {
	cfg.Cluster.Name = "main"
	if cfg.Topic == "" {
		cfg.Topic = topic
	}
	p, err := kafka.New(orderClose, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func order(jobID, bizID uint64) task.Task {
	return task.Task{
		JobID: jobID, BizID: bizID, BizType: 7, Attempts: 2, DedupKey: "k-" + strconv.FormatUint(jobID, 10), Attribute: fmt.Sprintf(`{"order":%d}`, bizID),
		ActionTime: time.Date(2026, 1, 2, 15, 4, 6, 0, time.UTC), DueTime: time.Date(2026, 1, 2, 15, 4, 5, 117e6, time.UTC),
	}
}

// consume reads n records of the topic.
func consume(t *testing.T, c *kfake.Cluster, n int) (records []*kgo.Record) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx := await.Context(t)
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records", len(records), n)
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	return records
}

// observer is a kafka.Observer of the clusters.
type observer func(cluster string)

func (o observer) Produced(cluster string, _ time.Duration) { o(cluster) }

func TestRecord(t *testing.T) {
	for key, want := range map[kafka.Key]string{kafka.BizID: "42", kafka.JobID: "413351953711104", kafka.DedupKey: "k-413351953711104", "": "42"} {
		c := brokers(t)
		told := 0
		p := open(t, kafka.Config{Cluster: kafka.Cluster{Brokers: c.ListenAddrs()}, Key: key, Observer: observer(func(cluster string) {
			require.Equal(t, "main", cluster)
			told++
		})})
		require.NoError(t, p.Process(t.Context(), order(413351953711104, 42)))
		r := consume(t, c, 1)[0]
		require.Equal(t, want, string(r.Key))
		require.Equal(t, `{"order":42}`, string(r.Value))
		require.Equal(t, []kgo.RecordHeader{
			{Key: "toc-job-id", Value: []byte("413351953711104")}, {Key: "toc-biz-type", Value: []byte("order_close")},
			{Key: "toc-biz-id", Value: []byte("42")}, {Key: "toc-due-time", Value: []byte("2026-01-02T15:04:05.117Z")}, {Key: "toc-attempt", Value: []byte("3")},
		}, r.Headers)
		require.Equal(t, 1, told)
	}
}

// Each task is written once, and those of one key in the order of the batch, though leaders move.
func TestOrderByKey(t *testing.T) {
	c := brokers(t)
	p := open(t, kafka.Config{Cluster: kafka.Cluster{Brokers: c.ListenAddrs()}})
	const batches, size, keys = 20, 200, 7
	for b := range batches {
		if b%3 == 1 {
			for partition := range int32(8) {
				require.NoError(t, c.MoveTopicPartition(topic, partition, int32(b%2+1)))
			}
		}
		list := make([]task.Task, size)
		for i := range list {
			id := uint64(b*size + i)
			list[i] = order(id, id%keys)
		}
		require.Equal(t, make([]error, size), p.ProcessBatch(t.Context(), list))
	}
	last := map[string]int{}
	seen := map[int]bool{}
	for _, r := range consume(t, c, batches*size) {
		id, err := strconv.Atoi(string(r.Headers[0].Value))
		require.NoError(t, err)
		require.False(t, seen[id], "twice")
		seen[id] = true
		if before, ok := last[string(r.Key)]; ok {
			require.Greater(t, id, before)
		}
		last[string(r.Key)] = id
	}
	require.Len(t, seen, batches*size)
}

// The time-out of the run holds, whatever the brokers do, and each task says what happened.
func TestBrokersDoNotAnswer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: this test waits for the intervals of a client of Kafka")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	require.NoError(t, err)
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	hangs, ended := brokers(t), make(chan struct{})
	t.Cleanup(func() { close(ended) }) // before the brokers are closed
	hangs.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		hangs.KeepControl()
		hangs.SleepControl(func() { <-ended })
		return nil, nil, false
	})
	for name, addrs := range map[string][]string{"silent": {silent.Addr().String()}, "gone": {closed.Addr().String()}, "hangs while it writes": hangs.ListenAddrs()} {
		t.Run(name, func(t *testing.T) {
			p := open(t, kafka.Config{Cluster: kafka.Cluster{Brokers: addrs}})
			processed := func() []error {
				ended := make(chan []error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					ended <- p.ProcessBatch(ctx, []task.Task{order(1, 1), order(2, 2)})
				}()
				errs := await.Receive(t, ended, "the run ends")
				for _, err := range errs {
					require.ErrorContains(t, err, "kafka main, topic order-timeouts: not acknowledged within")
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				return errs
			}
			processed()
			processed()
			if name == "gone" {
				await.That(t, func() bool { return errors.Is(processed()[0], syscall.ECONNREFUSED) }, "a run has time to dial")
				for _, err := range processed() {
					require.ErrorContains(t, err, "no connection to broker "+addrs[0])
				}
			}
		})
	}
}

// What the brokers refuse fails its own tasks only.
func TestBrokersRefuse(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test waits for the intervals of a client of Kafka")
	}
	c := brokers(t)
	p := open(t, kafka.Config{Cluster: kafka.Cluster{Brokers: c.ListenAddrs()}, Topic: "nosuch"})
	require.ErrorContains(t, p.Process(await.Context(t), order(1, 1)), "UNKNOWN_TOPIC_OR_PARTITION")

	p = open(t, kafka.Config{Cluster: kafka.Cluster{Brokers: c.ListenAddrs()}})
	huge := order(2, 2)
	huge.Attribute = string(make([]byte, 2<<20))
	errs := p.ProcessBatch(t.Context(), []task.Task{order(1, 1), huge, order(3, 3)})
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "MESSAGE_TOO_LARGE")
	require.NoError(t, errs[2])
	require.Len(t, consume(t, c, 2), 2)
}

// A broker restarts in the middle: everything is written, once.
func TestBrokersAreAwayForAWhile(t *testing.T) {
	t.Parallel()
	c := brokers(t)
	p := open(t, kafka.Config{Cluster: kafka.Cluster{Brokers: c.ListenAddrs()}})
	require.NoError(t, p.Process(t.Context(), order(1, 1)))
	refusals := 0
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if refusals++; refusals > 1 {
			return nil, nil, false
		}
		return nil, fmt.Errorf("the connection breaks"), true
	})
	errs := p.ProcessBatch(t.Context(), []task.Task{order(2, 1), order(3, 1), order(4, 1)})
	require.Equal(t, make([]error, 3), errs)
	require.Greater(t, refusals, 1)
	require.Len(t, consume(t, c, 4), 4)
}

func TestSASL(t *testing.T) {
	t.Parallel()
	for mechanism, name := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		c := brokers(t, kfake.EnableSASL(), kfake.Superuser(name, "toc", "a password"))
		cluster := kafka.Cluster{Brokers: c.ListenAddrs(), SASL: mechanism, Username: "toc", Password: "a password"}
		require.NoError(t, open(t, kafka.Config{Cluster: cluster}).Process(t.Context(), order(1, 1)))
		cluster.Password = "wrong"
		denied := open(t, kafka.Config{Cluster: cluster})
		var err error
		await.That(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err = denied.Process(ctx, order(1, 1))
			require.Error(t, err)
			return strings.Contains(err.Error(), "no connection to broker")
		}, "the brokers hang up, and the run says so")
		require.NotContains(t, err.Error(), "wrong")
	}
	_, err := kafka.New(orderClose, kafka.Config{Cluster: kafka.Cluster{Name: "main", SASL: "gssapi"}})
	require.ErrorContains(t, err, `"gssapi" is unknown`)
}
