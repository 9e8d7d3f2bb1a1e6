package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	intakekafka "github.com/timeoutcenter/toc/server/kafka"
	"github.com/timeoutcenter/toc/server/rest"
)

// buildReaders makes the readers of topics.
func (a *App) buildReaders() error {
	for i, n := range a.cfg.Intake {
		c, err := a.kafkaCluster(a.cfg, n.Cluster)
		if err != nil {
			return err
		}
		cfg := intakekafka.Config{
			Name: n.Name, Cluster: c, Topic: n.Topic, Group: n.Group, Rate: n.Rate, FailureTopic: n.FailureTopic,
			Service: a.service, Body: rest.ReadSubmit, Logger: a.component("intake"),
			Observer: a.metrics,
		}
		if n.Lane == configs.LaneSlow {
			cfg.SlowAfter = a.cfg.Store.SlowAfter
		}
		r, err := intakekafka.New(cfg)
		if err != nil {
			return fmt.Errorf("intake[%d]: %w", i, err)
		}
		a.metrics.IntakeRefused(n.Name, 0)
		a.readers = append(a.readers, r)
	}
	return nil
}

// KafkaAdvice asks the Kafka clusters that are used, and says which topics they lack or refuse to show. A cluster that cannot
// be asked is an error.
func KafkaAdvice(ctx context.Context, cfg configs.Config) ([]string, error) {
	cfg = cfg.WithDefaults()
	topics := make(map[string][]string) // by cluster
	for _, b := range cfg.BizTypes {
		if b.Processor == configs.ProcessorKafka {
			topics[b.Kafka.Cluster] = append(topics[b.Kafka.Cluster], b.Kafka.Topic)
		}
	}
	for _, n := range cfg.Intake {
		topics[n.Cluster] = append(topics[n.Cluster], n.Topic)
		if n.FailureTopic != "" {
			topics[n.Cluster] = append(topics[n.Cluster], n.FailureTopic)
		}
	}
	names := slices.Sorted(maps.Keys(topics))
	lists, errs := make([][]string, len(names)), make([]error, len(names))
	var asked sync.WaitGroup
	for i, name := range names { // side by side: a silent one must not take the time of the next
		asked.Go(func() {
			slices.Sort(topics[name])
			list, err := unusableTopics(ctx, cfg, name, slices.Compact(topics[name]))
			if lists[i] = list; err != nil {
				errs[i] = fmt.Errorf("kafka cluster %s: %w", name, err)
			}
		})
	}
	asked.Wait()
	return slices.Concat(lists...), errors.Join(errs...)
}

// brokerTimeout bounds a connect to one broker and one answer of it, so that a silent one leaves time for the others.
const brokerTimeout = 2 * time.Second

func unusableTopics(ctx context.Context, cfg configs.Config, cluster string, topics []string) (advice []string, err error) {
	c, _ := cfg.Kafka.Clusters.Find(cluster)
	client := tlsclient.New(kafkaSection(cluster), c.TLS.Files(), nil)
	options, err := kafkaCluster(c, client, brokerTimeout, nil).Options()
	if err != nil {
		return nil, err
	}
	asking, err := kgo.NewClient(append(options, kgo.RequestTimeoutOverhead(brokerTimeout))...)
	if err != nil {
		return nil, err
	}
	defer asking.Close()
	if err := asking.Ping(ctx); err != nil { // it fails at once; a request is tried again until ctx ends
		return nil, fmt.Errorf("no broker could be asked: %w", tlsclient.Cause(err))
	}
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{} // nil would be all
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		ask.Topics = append(ask.Topics, topic)
	}
	answer, err := ask.RequestWith(ctx, asking)
	if err != nil {
		return nil, err
	}
	for _, t := range answer.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); errors.Is(err, kerr.UnknownTopicOrPartition) {
			advice = append(advice, fmt.Sprintf("kafka cluster %s has no topic %s: create it", cluster, *t.Topic))
		} else if err != nil {
			advice = append(advice, fmt.Sprintf("kafka cluster %s: topic %s: %v", cluster, *t.Topic, err))
		}
	}
	return advice, nil
}
