package testrig

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaDir is where scripts/kafka.sh puts Kafka, below the user's cache directory.
const kafkaDir = "toc/kafka-4.1.1"

// kafkad is the engine of Kafka: one node that is broker and controller (KRaft). It keeps what it has acknowledged over a kill
// of its process, as the operating system does.
type kafkad struct{ java, libs string }

func findKafka() (k kafkad, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return k, err
	}
	k.libs = filepath.Join(cache, kafkaDir)
	if jars, _ := filepath.Glob(filepath.Join(k.libs, "kafka_*.jar")); len(jars) == 0 {
		return k, fmt.Errorf("kafka %w", ErrNotInstalled)
	}
	if k.java, err = exec.LookPath("java"); err != nil {
		return k, fmt.Errorf("java %w", ErrNotInstalled)
	}
	return k, nil
}

func (kafkad) name() string { return "kafka" }

// clusterID names the server whose directory it is.
func (kafkad) clusterID(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	sum[0] = 0 // so that it does not look like a flag
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// prepare formats the directory of the log.
func (k kafkad) prepare(ctx context.Context, dir string) error {
	file, err := k.configure(dir, 9092)
	if err != nil {
		return err
	}
	out, err := k.run(ctx, dir, "kafka.tools.StorageTool", "format", "--cluster-id", k.clusterID(dir), "--config", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format: %w\n%s", err, out)
	}
	return nil
}

// configure writes the configuration of a server that listens on a port, and on the next one for itself as its controller.
func (kafkad) configure(dir string, port int) (file string, err error) {
	controller := port ^ 1 // as Consul's ports: where it is taken the server does not start, and launch tries another one
	file = filepath.Join(dir, "server.properties")
	return file, os.WriteFile(file, []byte(strings.Join([]string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@" + loopback(controller),
		"controller.listener.names=CONTROLLER",
		"listeners=PLAINTEXT://" + loopback(port) + ",CONTROLLER://" + loopback(controller),
		"log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"broker.session.timeout.ms=2000", // so long after a kill it cannot start again
		"broker.heartbeat.interval.ms=500",
		"auto.create.topics.enable=false",
	}, "\n")), 0o600)
}

func (k kafkad) command(dir string, port int) *exec.Cmd {
	file, err := k.configure(dir, port)
	if err != nil {
		file = filepath.Join(dir, err.Error()) // which it cannot read, and says so
	}
	return k.run(context.Background(), dir, "kafka.Kafka", file)
}

// run is a program of Kafka's, in a small Java.
func (k kafkad) run(ctx context.Context, dir, class string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.java, append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(k.libs, "*"), class}, args...)...)
	cmd.Dir = dir
	return cmd
}

func (k kafkad) ready(ctx context.Context, dir string, port, _ int) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(loopback(port)), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c)
	switch {
	case err != nil:
		return err
	case answer.ClusterID == nil || *answer.ClusterID != k.clusterID(dir):
		return errors.New("another server has the port")
	case len(answer.Brokers) == 0:
		return errors.New("it has no broker yet")
	}
	return nil
}

// PrivateKafka is a Kafka broker that belongs to one test.
type PrivateKafka struct{ Control }

// StartKafka starts a broker for this test alone. Its data goes when the test ends. On a machine without Kafka, or without
// Java, it leaves the test out; make test says so.
func StartKafka(t testing.TB) *PrivateKafka {
	t.Helper()
	needsServer(t)
	e, err := findKafka()
	if errors.Is(err, ErrNotInstalled) {
		t.Skipf("testrig: %v; nothing of this test ran on a broker of Kafka's own", err)
	}
	return &PrivateKafka{startPrivate(t, e, err)}
}

// Addr is host:port of the broker.
func (k *PrivateKafka) Addr() string { return k.srv.addr() }

// CreateTopic makes a topic with so many partitions.
func (k *PrivateKafka) CreateTopic(name string, partitions int32) {
	k.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()))
	k.must("create a topic on", err)
	defer c.Close()
	ask := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(k.t.Context(), c)
	if err == nil && answer.Topics[0].ErrorCode != 0 {
		err = fmt.Errorf("topic %s: error %s", name, strconv.Itoa(int(answer.Topics[0].ErrorCode)))
	}
	k.must("create a topic on", err)
}
