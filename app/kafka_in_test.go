package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/task"
)

// fromKafka gives a configuration an intake, and a cluster with its topics.
func fromKafka(t testing.TB, cfg configs.Config) (configs.Config, *kgo.Client) {
	inRealTime(t)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(8, "timers"), kfake.SeedTopics(1, "timers-refused"))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: brokers.ListenAddrs()}}
	cfg.Intake = []configs.Intake{{Name: "orders", Cluster: "main", Topic: "timers", FailureTopic: "timers-refused"}}
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers.ListenAddrs()...), kgo.DefaultProduceTopic("timers"))
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	return cfg, producer
}

// timers are n records, each the submit of a task that is due at a time: by headers with a key, by headers without one, and
// as a body.
func timers(n int, at time.Time) (list []*kgo.Record) {
	for i := range n {
		r := &kgo.Record{Value: []byte(strconv.Itoa(i))}
		switch i % 3 {
		case 0:
			r.Key = fmt.Appendf(nil, "timer-%d", i)
		case 1:
			r.Value = fmt.Appendf(nil, `{"biz_type":"order_close","biz_id":%d,"action_time":%q,"attribute":"%d"}`, i, at.Format(time.RFC3339Nano), i)
		}
		if i%3 != 1 {
			for _, h := range [][2]string{{"toc-biz-type", "order_close"}, {"toc-biz-id", strconv.Itoa(i)}, {"toc-action-time", strconv.FormatInt(at.UnixMilli(), 10)}} {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
			}
		}
		list = append(list, r)
	}
	return list
}

// The process is killed again and again while it reads: each record is one task.
func TestKafkaIn(t *testing.T) {
	onSQLite(t, func(t *testing.T, cfg configs.Config) {
		cfg, producer := fromKafka(t, cfg)
		cfg.BizTypes[0].Processor = configs.ProcessorLog
		file := filepath.Join(t.TempDir(), "toc.yaml")
		require.NoError(t, os.WriteFile(file, []byte(cfg.String()), 0o600))
		require.NoError(t, app.Migrate(t.Context(), cfg, nil, nil)) // so that rows can be counted
		const n = 1200
		list := timers(n, time.Now().Add(time.Hour))
		produce := func(upTo int) { // some are always there to be read
			for ; len(list) > 0 && n-len(list) < upTo; list = list[100:] {
				require.NoError(t, producer.ProduceSync(t.Context(), list[:100]...).FirstErr())
			}
		}
		for i := range 2 {
			cmd := startChild(t, file)
			// Each child has joined when it is killed: kfake keeps a member for ever that was killed while its join waited.
			moment := max(i*n/2+rand.IntN(n/2), countStatus(t, cfg, task.Pending))
			await.That(t, func() bool {
				stored := countStatus(t, cfg, task.Pending)
				produce(stored + 200)
				return stored > moment
			}, "more than %d are stored", moment)
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
		}
		produce(n)
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Value: []byte(`{"biz_typ":"order_close"}`)}).FirstErr())
		c := run(t, cfg)
		await.That(t, func() bool { return strings.Contains(scrape(t, c), "toc_intake_refused_total{name=\"orders\"} 1\n") }, "the wrong one is refused")
		await.That(t, func() bool { return countStatus(t, cfg, task.Pending) >= n }, "all records are stored") // a partition that was not read yet has no lag
		await.That(t, func() bool { return strings.Contains(scrape(t, c), "toc_intake_lag{name=\"orders\"} 0\n") }, "all records are read")
		require.Equal(t, n, countStatus(t, cfg, task.Pending), "lost records or second tasks")
		distinct := 0
		eachTable(t, cfg, func(db querier, table string) {
			var n int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(DISTINCT attribute) FROM "+table).Scan(&n))
			distinct += n
		})
		require.Equal(t, n, distinct)
	})
}

// A topic whose brokers are away looks like one without records, so /readyz shows which it is.
func TestKafkaInIsAway(t *testing.T) {
	inRealTime(t)
	t.Parallel()
	cfg := fewTables(t)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "timers"))
	require.NoError(t, err)
	defer brokers.Close()
	line := testrig.StartProxy(t, brokers.ListenAddrs()[0])
	line.Cut()
	cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: []string{line.Addr()}}}
	cfg.Intake = []configs.Intake{{Name: "orders", Cluster: "main", Topic: "timers"}}
	cfg.BizTypes[0].Processor = configs.ProcessorLog
	c := run(t, cfg)
	awaitTrouble(t, c, "intake orders reads nothing: no broker of its Kafka cluster answers")
	require.Contains(t, scrape(t, c), `toc_degraded{database="",reason="kafka"} 1`)
	line.Mend()
	awaitNoTrouble(t, c, "intake")
}

// A task from a topic fires, can be moved and cancelled by its key, and is found by it in the API.
func TestKafkaInByKey(t *testing.T) {
	onEngines(t, func(t *testing.T, cfg configs.Config) {
		cfg, producer := fromKafka(t, cfg)
		fired := newLedger()
		c := run(t, cfg, app.WithProcessor("ledger", fired))
		record := func(key string, value []byte, at time.Time) *kgo.Record {
			return &kgo.Record{Key: []byte(key), Value: value, Headers: []kgo.RecordHeader{
				{Key: "toc-biz-type", Value: []byte("order_close")}, {Key: "toc-biz-id", Value: []byte("42")},
				{Key: "toc-action-time", Value: []byte(at.Format(time.RFC3339Nano))},
			}}
		}
		send := func(key string, value []byte, at time.Time) {
			require.NoError(t, producer.ProduceSync(t.Context(), record(key, value, at)).FirstErr())
		}
		status := func(key string) client.Task {
			one, err := c.Tasks().GetByKey(t.Context(), client.Key{BizType: "order_close", BizID: 42, DedupKey: key})
			if err != nil {
				return client.Task{}
			}
			return one
		}
		hour := time.Now().Add(time.Hour)
		send("cancelled", []byte("a"), hour)
		send("moved", []byte("b"), hour)
		await.That(t, func() bool { return status("cancelled").Status == "pending" && status("moved").Status == "pending" }, "both are stored")
		send("cancelled", nil, hour)
		send("moved", []byte("c"), time.Now().Add(-time.Minute))
		await.That(t, func() bool { return status("cancelled").Status == "cancelled" && status("moved").Status == "processed" }, "one is cancelled, one has run")
		require.Equal(t, "c", status("moved").Attribute)
	})
}

// BenchmarkKafkaIn stores tasks from a topic, from when the first records have come on, and as many by SubmitBatch, with a
// dedup_key as each record has one and without, in turns. The brokers run in the same process.
func BenchmarkKafkaIn(b *testing.B) {
	const n = 50_000
	batch := func(keys bool) func(b *testing.B) {
		return func(b *testing.B) {
			cfg := onMySQL(b, embedded(b))
			c := run(b, cfg, app.WithProcessor("ledger", newLedger()))
			for b.Loop() {
				at := time.Now().Add(time.Hour)
				for from := 0; from < n; from += 10_000 {
					list := make([]client.Submit, 10_000)
					for i := range list {
						list[i] = client.Submit{BizType: "order_close", BizID: uint64(from + i), Attribute: strconv.Itoa(i), ActionTime: at}
						if keys {
							list[i].DedupKey = fmt.Sprint("timer-", at.UnixNano(), from+i)
						}
					}
					_, err := c.Tasks().SubmitBatch(b.Context(), list)
					require.NoError(b, err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tasks/s")
		}
	}
	for range 3 {
		b.Run("batch", batch(false))
		b.Run("batch with keys", batch(true))
		b.Run("kafka", func(b *testing.B) {
			cfg, producer := fromKafka(b, onMySQL(b, embedded(b)))
			total, took := 0, time.Duration(0)
			for b.Loop() {
				require.NoError(b, producer.ProduceSync(context.Background(), timers(n, time.Now().Add(time.Hour))...).FirstErr())
				c := run(b, cfg, app.WithProcessor("ledger", newLedger()))
				await := func(some bool) {
					for {
						time.Sleep(5 * time.Millisecond) // real time: a benchmark
						if lag, _ := metric(b, c, `toc_intake_lag{name="orders"}`); lag > 0 == some {
							return
						}
					}
				}
				await(true)
				start := time.Now()
				for total += n; countStatus(b, cfg, task.Pending) < total; {
					await(false)
				}
				took += time.Since(start)
				require.NoError(b, c.stop())
			}
			b.ReportMetric(float64(total)/took.Seconds(), "tasks/s")
		})
	}
}
