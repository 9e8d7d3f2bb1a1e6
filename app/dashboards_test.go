package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/task"
)

// What the dashboards, their variables and annotations ask for, and what the alerts compare, is there: on a real Prometheus
// with the files of deploy/, which scrapes a real node of a cluster that has all that a node may have, under load and with
// faults. No query is left out.
func TestDashboardsHaveAnswers(t *testing.T) {
	t.Parallel()
	cfg, topic := withEverything(t)
	began, end := make(chan struct{}), make(chan struct{})
	c := run(t, cfg, app.WithProcessor("ledger", processor.Func(func(_ context.Context, one task.Task) error {
		switch one.Attribute {
		case "slow":
			close(began)
			<-end
		case "dies":
			return errors.New("the receiver is down")
		}
		return nil
	})))
	load(t, c, topic)
	server := scraped(t, c.Addr(), cfg.HTTP.Tokens[0])
	// What is due is counted after some seconds, and each minute; while a table is gone it is not.
	counted := question{"", `toc_due{biz_type="seat_hold"}`}
	require.Eventually(t, func() bool { return hasAnswer(t, server, counted) }, 2*time.Minute, 100*time.Millisecond)
	breakThings(t, cfg, c, began, end)

	rest := questions(t, map[string]string{"job": "toc", "type": "seat_hold", "__rate_interval": "30s"})
	require.Greater(t, len(rest), 80)
	for deadline := time.Now().Add(4 * time.Minute); ; <-time.After(500 * time.Millisecond) {
		rest = slices.DeleteFunc(rest, func(q question) bool { return hasAnswer(t, server, q) })
		if len(rest) == 0 {
			return
		}
		require.True(t, time.Now().Before(deadline), "without an answer: %q", rest)
	}
}

// withEverything is a node with both engines, Redis, Consul, limits, and Kafka in and out. Records of the topic are submits.
func withEverything(t *testing.T) (cfg configs.Config, topic *kgo.Client) {
	consul, r := testrig.Consul(t), testrig.Redis(t)
	cfg = fewTables(t)
	cfg.Store.TablesPerDatabase = loaded/cfg.Store.Databases + 1 // the last ones have the faults
	cfg = clustered(onMySQL(t, cfg), consul.Addr(), consul.Prefix())
	cfg.Redis.Addrs = []string{r.Addr()}
	limited, published := cfg.BizTypes[0], cfg.BizTypes[0]
	limited.ID, limited.Name, limited.Mode, limited.Topic = 2, "seat_hold", configs.ModeRedis, r.Prefix()+"seat_hold"
	limited.RateLimit, limited.MaxRetries = 5, 0
	published.ID, published.Name, published.Processor = 3, "published", configs.ProcessorKafka
	published.Kafka = configs.KafkaOut{Cluster: "main", Topic: "timeouts", Key: configs.KeyBizID}
	cfg.BizTypes = append(cfg.BizTypes, limited, published)

	// A process that is none of the cluster's holds a partition, which nobody works therefore.
	holdPartition(t, consul.Addr(), cfg.Cluster.Consul.Prefix, 1)

	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "timers", "timers-refused", "timeouts"))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	cfg.Kafka.Clusters = configs.KafkaClusters{{Name: "main", Brokers: brokers.ListenAddrs()}}
	cfg.Intake = []configs.Intake{{Name: "orders", Cluster: "main", Topic: "timers", FailureTopic: "timers-refused"}}
	topic, err = kgo.NewClient(kgo.SeedBrokers(brokers.ListenAddrs()...), kgo.DefaultProduceTopic("timers"))
	require.NoError(t, err)
	t.Cleanup(topic.Close)
	return cfg, topic
}

// biz_ids below loaded have no fault in their tables.
const loaded = 30

// breakThings makes faults that last until the end of the test: an outcome waits for a row that is locked, a table is gone,
// and a task has a biz_type that is not configured.
func breakThings(t *testing.T, cfg configs.Config, c *center, began, end chan struct{}) {
	const locked, gone = loaded, loaded + 1 // in the last tables of two databases
	list, err := app.Databases(cfg, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, app.CloseDatabases(list)) })
	database := func(bizID int) int { return bizID % cfg.Store.Databases }
	table := sharding.TableName(loaded / cfg.Store.Databases)

	held, err := c.Tasks().Submit(t.Context(), client.Submit{BizType: "order_close", BizID: locked, Attribute: "slow", Now: true})
	require.NoError(t, err)
	<-began
	tx, err := list[database(locked)].DB.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback()) })
	_, err = tx.ExecContext(t.Context(), "UPDATE "+table+" SET last_error = 'looking into it' WHERE job_id = ?", held.Task.JobID.String())
	require.NoError(t, err)
	close(end)

	rename := func(from, to string) {
		_, err := list[database(gone)].DB.ExecContext(context.Background(), "RENAME TABLE "+from+" TO "+to)
		require.NoError(t, err)
	}
	rename(table, "gone")
	t.Cleanup(func() { rename("gone", table) })

	by := admin{t, cfg}
	by.exec(0, "INSERT INTO %s (job_id, biz_id, biz_type, action_time) VALUES (?, 0, 99, ?)", by.jobID(0), sqlTime(time.Now().Add(-time.Minute)))
}

// load submits tasks of all types by the API and by Kafka, some of which die or are refused, until the test ends.
func load(t *testing.T, c *center, topic *kgo.Client) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	var failed atomic.Pointer[error]
	t.Cleanup(func() {
		if err := failed.Load(); err != nil {
			t.Errorf("the load ended: %v", *err)
		}
	})
	go func() {
		defer close(ended)
		ask := askHTTP(c)
		for n := uint64(0); ctx.Err() == nil; n++ {
			if err := loadOnce(ctx, ask, topic, n); err != nil && ctx.Err() == nil {
				failed.Store(&err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
}

func loadOnce(ctx context.Context, ask *client.Client, topic *kgo.Client, n uint64) error {
	var list []client.Submit
	for i, name := range []string{"order_close", "seat_hold", "published", "seat_hold"} {
		id := (4*n + uint64(i)) % loaded
		list = append(list, client.Submit{BizType: name, BizID: id, Delay: 100 * time.Millisecond, Attribute: []string{"", "dies"}[n%2]},
			client.Submit{BizType: name, BizID: id, Delay: time.Hour})
	}
	if _, err := ask.SubmitBatch(ctx, list); err != nil {
		return err
	}
	if _, err := ask.Submit(ctx, client.Submit{BizType: "no_such_type", BizID: 1, Now: true}); err == nil {
		return errors.New("a type that is not there is taken")
	}
	return topic.ProduceSync(ctx,
		&kgo.Record{Value: fmt.Appendf(nil, `{"biz_type":"order_close","biz_id":%d,"delay":"1s"}`, n%loaded)},
		&kgo.Record{Value: []byte("no JSON")}).FirstErr()
}

// scraped starts a Prometheus with the project's files, of which only the addresses, the path of the token and the interval
// are the test's.
func scraped(t *testing.T, node, token string) *testrig.PrometheusServer {
	text, err := os.ReadFile("../deploy/prometheus/prometheus.yml")
	require.NoError(t, err)
	var file struct {
		Global  map[string]string `yaml:"global"`
		Rules   []string          `yaml:"rule_files"`
		Scrapes []map[string]any  `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	file.Global["scrape_interval"], file.Global["evaluation_interval"] = "1s", "1s"
	for i := range file.Rules {
		file.Rules[i], err = filepath.Abs(filepath.Join("../deploy/prometheus", file.Rules[i]))
		require.NoError(t, err)
	}
	require.Equal(t, "toc", file.Scrapes[0]["job_name"])
	file.Scrapes = file.Scrapes[:1]
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(token), 0o600))
	file.Scrapes[0]["authorization"] = map[string]string{"credentials_file": secret}
	file.Scrapes[0]["static_configs"] = []map[string]any{{"targets": []string{node}}}
	text, err = yaml.Marshal(file)
	require.NoError(t, err)
	return testrig.StartPrometheus(t, string(text))
}

// holdPartition takes a partition's lock for a process that does not live.
func holdPartition(t *testing.T, addr, prefix string, partition int) {
	consul, err := api.NewClient(&api.Config{Address: addr, Transport: &http.Transport{DisableKeepAlives: true}})
	require.NoError(t, err)
	session, _, err := consul.Session().CreateNoChecks(&api.SessionEntry{Name: "held"}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = consul.Session().Destroy(session, nil) })
	has, _, err := consul.KV().Acquire(&api.KVPair{Key: fmt.Sprintf("%s/partitions/%d", prefix, partition), Value: []byte("gone"), Session: session}, nil)
	require.NoError(t, err)
	require.True(t, has)
}
