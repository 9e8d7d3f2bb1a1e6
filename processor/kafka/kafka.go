// Package kafka is the processor that writes tasks to a topic of Kafka.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/tlsclient"
	"github.com/timeoutcenter/toc/internal/tracing"
	"github.com/timeoutcenter/toc/task"
)

// Cluster is a Kafka cluster.
type Cluster struct {
	Name    string   // for messages and metrics
	Brokers []string // host:port of some of them
	// Dial connects to a broker. Nil: in plain text.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// SASL is plain, scram-sha-256 or scram-sha-512; "": none.
	SASL               string
	Username, Password string
}

// Key is what the key of a record is.
type Key string

// The keys.
const (
	BizID    Key = "biz_id"
	JobID    Key = "job_id"
	DedupKey Key = "dedup_key" // none: the record has no key
)

// Observer receives the time that the brokers of a cluster took to acknowledge a record.
type Observer interface {
	Produced(cluster string, took time.Duration)
}

type noObserver struct{}

func (noObserver) Produced(string, time.Duration) {}

// Config says where to write.
type Config struct {
	Cluster Cluster
	Topic   string // it must exist
	Key     Key
	// Observer defaults to none.
	Observer Observer
}

// Processor writes a task as a record: its attribute as the value, and headers that say which task it is. A task is
// processed when all in-sync replicas have acknowledged the record. The producer is idempotent, so a record is written once
// unless its acknowledgement is lost for as long as the time-out: then the task has failed and is written again, with the
// same toc-job-id and the next toc-attempt.
type Processor struct {
	cfg     Config
	bizType string
	client  *kgo.Client // its own: a broker that hangs holds up this business type only
	connect *connects
}

// New makes the Kafka processor of a business type. It connects with the first task.
func New(b task.BizType, cfg Config) (*Processor, error) {
	cfg.Observer = cmp.Or[Observer](cfg.Observer, noObserver{})
	options, err := cfg.Cluster.Options()
	if err != nil {
		return nil, err
	}
	connect := new(connects)
	options = append(options, kgo.DefaultProduceTopic(cfg.Topic), kgo.WithHooks(connect),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		// Else a broker that does not answer would hold the worker for longer than the time-out of the type.
		kgo.AllowIdempotentProduceCancellation(),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("kafka cluster %s: %w", cfg.Cluster.Name, err)
	}
	return &Processor{cfg: cfg, bizType: b.Name, client: client, connect: connect}, nil
}

// The times of a connection to a broker; docs/production.md lists them.
const (
	answerTime  = 10 * time.Second // of a connect, and of an answer beyond the request's own time
	idleTime    = 30 * time.Second
	metadataAge = time.Minute // of the cluster's list of its brokers
)

// Options are what a client of the cluster needs to connect.
func (c Cluster) Options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(c.Brokers...), kgo.ClientID("toc"),
		kgo.DialTimeout(answerTime), kgo.RequestTimeoutOverhead(answerTime), kgo.ConnIdleTimeout(idleTime), kgo.MetadataMaxAge(metadataAge)}
	if c.Dial != nil {
		options = append(options, kgo.Dialer(c.Dial))
	}
	mechanism, err := c.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (c Cluster) mechanism() (sasl.Mechanism, error) {
	switch c.SASL {
	case "":
		return nil, nil
	case "plain":
		return plain.Auth{User: c.Username, Pass: c.Password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("kafka cluster %s: the SASL mechanism %q is unknown", c.Name, c.SASL)
}

// Limits implements processor.Limited: one worker hands the tasks to the producer in the order in which it gets them.
func (p *Processor) Limits() (tasks, workers int) { return maxBatch, 1 }

const maxBatch = 1000

// Process writes one task.
func (p *Processor) Process(ctx context.Context, t task.Task) error {
	return p.ProcessBatch(ctx, []task.Task{t})[0]
}

// ProcessBatch writes tasks, in order, and waits until each is acknowledged or has failed.
func (p *Processor) ProcessBatch(ctx context.Context, tasks []task.Task) []error {
	type outcome struct {
		of  int
		err error
	}
	outcomes := make(chan outcome, len(tasks))
	began := time.Now()
	for i := range tasks {
		p.client.Produce(ctx, p.record(&tasks[i]), func(_ *kgo.Record, err error) {
			if err == nil {
				p.cfg.Observer.Produced(p.cfg.Cluster.Name, time.Since(began))
			}
			outcomes <- outcome{i, err}
		})
	}
	errs := slices.Repeat([]error{errNoAnswer}, len(tasks))
	ended, late := ctx.Done(), (<-chan time.Time)(nil)
	for left := len(tasks); left > 0; {
		select {
		case o := <-outcomes:
			errs[o.of] = o.err
			left--
		case <-ended: // the client ends them now
			ended, late = nil, time.After(endWithin)
		case <-late:
			left = 0
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = p.describe(ctx, err, time.Since(began))
		}
	}
	return errs
}

// endWithin is how long ProcessBatch waits for the client after the time-out.
const endWithin = time.Second

var errNoAnswer = errors.New("not acknowledged")

// describe makes the error of a failed run.
func (p *Processor) describe(ctx context.Context, err error, after time.Duration) error {
	where := fmt.Sprintf("kafka %s, topic %s", p.cfg.Cluster.Name, p.cfg.Topic)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: not acknowledged within %s: %w", where, after.Round(time.Millisecond), p.connect.explain(err))
	}
	return fmt.Errorf("%s: %w", where, tlsclient.Cause(err))
}

// The headers of a record.
const (
	headerJobID   = "toc-job-id"
	headerBizType = "toc-biz-type"
	headerBizID   = "toc-biz-id"
	headerDueTime = "toc-due-time" // RFC 3339, in milliseconds: the promised time
	headerAttempt = "toc-attempt"  // from 1
	// And tracing.Header, where the task has a trace.
)

func (p *Processor) record(t *task.Task) *kgo.Record {
	shown := api.From(*t, p.bizType)
	r := &kgo.Record{
		Value: []byte(t.Attribute),
		Headers: []kgo.RecordHeader{
			{Key: headerJobID, Value: strconv.AppendUint(nil, t.JobID, 10)},
			{Key: headerBizType, Value: []byte(p.bizType)},
			{Key: headerBizID, Value: []byte(shown.BizID.String())},
			{Key: headerDueTime, Value: []byte(api.Time(t.Promised()).String())},
			{Key: headerAttempt, Value: strconv.AppendInt(nil, int64(t.Attempts)+1, 10)},
		},
	}
	if t.Trace != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: tracing.Header, Value: []byte(t.Trace)})
	}
	switch p.cfg.Key {
	case JobID:
		r.Key = r.Headers[0].Value
	case DedupKey:
		if t.DedupKey != "" {
			r.Key = []byte(t.DedupKey)
		}
	default:
		r.Key = r.Headers[2].Value
	}
	return r
}

// Close ends the connections.
func (p *Processor) Close() error {
	p.client.Close()
	return nil
}
