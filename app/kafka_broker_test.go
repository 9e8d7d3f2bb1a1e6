package app_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// On a broker of Kafka's own, which is killed while records come in and timeouts go out: each record is one task, each task is
// written, and nothing is written for nobody.
func TestABrokerOfKafkasOwn(t *testing.T) {
	t.Parallel()
	testrig.OnlyInAll(t, "TestKafkaIn and TestKafkaOut, on kfake")
	broker := testrig.StartKafka(t)
	for topic, partitions := range map[string]int32{"timers": 4, "timers-refused": 1, "timeouts": 4} {
		broker.CreateTopic(topic, partitions)
	}
	cfg := fewTables(t)
	cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: []string{broker.Addr()}}}
	cfg.Intake = []configs.Intake{{Name: "orders", Cluster: "main", Topic: "timers", FailureTopic: "timers-refused"}}
	b := &cfg.BizTypes[0]
	b.Processor, b.Kafka = configs.ProcessorKafka, configs.KafkaOut{Cluster: "main", Topic: "timeouts", Key: configs.KeyBizID}
	b.Timeout, b.Backoff.Min, b.Backoff.Max = 5*time.Second, 100*time.Millisecond, time.Second
	c := run(t, cfg)

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.DefaultProduceTopic("timers"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	const n = 3000
	records := timers(n, time.Now().Add(5*time.Second))
	require.NoError(t, client.ProduceSync(t.Context(), records[:n/2]...).FirstErr())
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Value: []byte(`{"biz_typ":"order_close"}`)}).FirstErr())
	await.That(t, func() bool { return countStatus(t, cfg, task.Processed) > 0 }, "the first ones are processed")
	broker.Kill() // most of the first half is due now
	second := make(chan error, 1)
	go func() { second <- client.ProduceSync(context.Background(), records[n/2:]...).FirstErr() }()
	broker.Start()
	require.NoError(t, <-second)

	awaitRows(t, cfg, task.Processed, n)
	await.That(t, func() bool { return strings.Contains(scrape(t, c), "toc_intake_lag{name=\"orders\"} 0\n") }, "all records are read")
	require.NoError(t, c.stop())
	require.Equal(t, n, countStatus(t, cfg, task.Processed), "second tasks")
	require.Equal(t, int64(n+1), committedOf(t, client, "toc", "timers", 4), "offsets")

	jobs := map[string]string{} // by attribute
	written := readTopic(t, broker.Addr(), "timeouts", func() bool { return len(jobs) == n }, func(r *kgo.Record) {
		job := ""
		for _, h := range r.Headers {
			if h.Key == "toc-job-id" {
				job = string(h.Value)
			}
		}
		if before, known := jobs[string(r.Value)]; known {
			require.Equal(t, before, job, "two tasks for a record")
		}
		jobs[string(r.Value)] = job
	})
	t.Logf("%d tasks, %d records written", n, written)
	var refused *kgo.Record
	readTopic(t, broker.Addr(), "timers-refused", func() bool { return refused != nil }, func(r *kgo.Record) { refused = r })
	require.Contains(t, fmt.Sprint(refused.Headers), "toc-error")
}

// readTopic reads a topic from its beginning until all is there, and returns how many records came.
func readTopic(t *testing.T, broker, topic string, all func() bool, each func(*kgo.Record)) (n int) {
	t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer consumer.Close()
	ctx := await.Context(t)
	for !all() {
		fetches := consumer.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "only %d records of %s", n, topic)
		fetches.EachRecord(func(r *kgo.Record) { n++; each(r) })
	}
	return n
}

// committedOf adds up the committed offsets of a group.
func committedOf(t *testing.T, c *kgo.Client, group, topic string, partitions int32) (sum int64) {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = group
	of := kmsg.NewOffsetFetchRequestGroupTopic()
	of.Topic = topic
	for p := range partitions {
		of.Partitions = append(of.Partitions, p)
	}
	one.Topics = append(one.Topics, of)
	req.Groups = append(req.Groups, one)
	answer, err := req.RequestWith(t.Context(), c)
	require.NoError(t, err)
	for _, p := range answer.Groups[0].Topics[0].Partitions {
		require.Zero(t, p.ErrorCode, strconv.Itoa(int(p.ErrorCode)))
		sum += max(0, p.Offset)
	}
	return sum
}
