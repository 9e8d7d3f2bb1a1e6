package app_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// toKafka gives the business type of a configuration the processor kafka, and a cluster with its topic.
func toKafka(t testing.TB, cfg configs.Config) (configs.Config, *kfake.Cluster) {
	inRealTime(t)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(8, "timeouts"))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: brokers.ListenAddrs()}}
	cfg.BizTypes[0].Processor = configs.ProcessorKafka
	cfg.BizTypes[0].Kafka = configs.KafkaOut{Cluster: "main", Topic: "timeouts", Key: configs.KeyBizID}
	return cfg, brokers
}

// consumed reads the records of the topic until n have come.
func consumed(t testing.TB, brokers *kfake.Cluster, n int) (records []*kgo.Record) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(brokers.ListenAddrs()...), kgo.ConsumeTopics("timeouts"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	for len(records) < n {
		fetches := consumer.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records", len(records), n)
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	return records
}

// Each task becomes one record, though connections break and leaders move. It is processed when the brokers have it.
func TestKafkaOut(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		cfg, brokers := toKafka(t, cfg)
		cfg.BizTypes[0].Timeout = await.Patience
		c := run(t, cfg)
		const n, orders = 200, 5
		submit := func(from, to int) {
			var list []client.Submit
			for i := from; i < to; i++ {
				list = append(list, client.Submit{BizType: "order_close", BizID: uint64(i % orders), Attribute: strconv.Itoa(i), Now: true})
			}
			_, err := c.Tasks().SubmitBatch(t.Context(), list)
			require.NoError(t, err)
		}
		var breaks atomic.Bool
		broken := make(chan struct{}, 1)
		brokers.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			brokers.KeepControl()
			if !breaks.Load() {
				return nil, nil, false
			}
			select {
			case broken <- struct{}{}:
			default:
			}
			return nil, errors.New("the connection breaks"), true
		})
		submit(0, n/2)
		awaitRows(t, cfg, task.Processed, n/2)
		breaks.Store(true)
		submit(n/2, n)
		for range 3 {
			await.Receive(t, broken, "a connection breaks")
		}
		for p := range int32(8) {
			require.NoError(t, brokers.MoveTopicPartition("timeouts", p, p%3))
		}
		await.Receive(t, broken, "a connection breaks")
		require.Equal(t, n/2, countStatus(t, cfg, task.Processed), "processed without the brokers")
		breaks.Store(false)

		awaitRows(t, cfg, task.Processed, n)
		seen := map[int]bool{}
		for _, r := range consumed(t, brokers, n) {
			i, err := strconv.Atoi(string(r.Value))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i%orders), string(r.Key))
			require.False(t, seen[i], "twice")
			seen[i] = true
		}
		require.Len(t, seen, n)
	})
}

// BenchmarkKafkaOut drains tasks that are due at one instant by the processors log and kafka, in turns. The brokers run in
// the same process.
func BenchmarkKafkaOut(b *testing.B) {
	for range 2 {
		for _, processor := range []string{configs.ProcessorLog, configs.ProcessorKafka} {
			b.Run(processor, func(b *testing.B) {
				cfg := onMySQL(b, embedded(b))
				cfg, brokers := toKafka(b, cfg)
				cfg.BizTypes[0].Processor = processor
				c := run(b, cfg)
				const n = 20_000
				total, took := 0, time.Duration(0)
				for b.Loop() {
					due := time.Now().Add(4 * time.Second)
					list := make([]client.Submit, n)
					for i := range list {
						list[i] = client.Submit{BizType: "order_close", BizID: uint64(i), Attribute: "x", ActionTime: due}
					}
					for part := range 2 {
						_, err := c.Tasks().SubmitBatch(b.Context(), list[part*n/2:(part+1)*n/2])
						require.NoError(b, err)
					}
					require.Greater(b, time.Until(due), 300*time.Millisecond, "the submits took too long")
					time.Sleep(time.Until(due)) // real time: a benchmark
					for total += n; countStatus(b, cfg, task.Processed) < total; {
						time.Sleep(20 * time.Millisecond) // real time: a benchmark
					}
					took += time.Since(due)
				}
				b.ReportMetric(float64(total)/took.Seconds(), "tasks/s")
				b.ReportMetric(0, "ns/op")
				if processor == configs.ProcessorKafka {
					consumed(b, brokers, total)
				}
			})
		}
	}
}
