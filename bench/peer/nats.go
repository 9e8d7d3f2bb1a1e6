package peer

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/timeoutcenter/toc/bench/server"
)

// NATSCommand makes this program a NATS server: ServeNATS.
const NATSCommand = "nats-server"

// ServeNATS runs a NATS server with its streams in a directory until ctx ends.
func ServeNATS(ctx context.Context, dir, port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: n, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true})
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// natsPeer is NATS JetStream: messages with a schedule, in a stream on disk.
type natsPeer struct {
	driver
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject atomic.Int64 // each schedule needs another one
	done    atomic.Int64
}

// natsWorkers is how many messages are processed at the same time.
const natsWorkers = 32

func (p *natsPeer) Info() Info {
	return Info{
		Name: "nats", Parts: everything | Restarts,
		Settings: "work queue, sync_interval always, at most 10,000 messages not acknowledged; batches: asynchronous publishes",
		Durable:  "stream, an fsync each message: nothing is lost",
		Precise:  "nanoseconds",
	}
}

func (p *natsPeer) Version(context.Context, Env) (string, error) {
	return fmt.Sprintf("NATS %s, Apache-2.0; nats.go %s", natsserver.VERSION, moduleVersion("github.com/nats-io/nats.go")), nil
}

func (p *natsPeer) Up(ctx context.Context, env Env) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s, err := p.start(ctx, server.Own("nats", self, func(dir, port string) []string { return []string{NATSCommand, dir, port} }), env)
	if err != nil {
		return err
	}
	conn, err := nats.Connect("nats://"+s.Addr, nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	p.onDown(func() error { conn.Close(); return nil })
	if p.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1000)); err != nil {
		return err
	}
	p.put = p.insert
	p.stream, err = p.js.CreateStream(ctx, jetstream.StreamConfig{Name: "toc", Subjects: []string{"s.*", "d.*"}, Storage: jetstream.FileStorage,
		Retention: jetstream.WorkQueuePolicy, AllowMsgSchedules: true})
	return err
}

func (p *natsPeer) message(j job) *nats.Msg {
	n := strconv.FormatInt(p.subject.Add(1), 10)
	m := nats.NewMsg("s." + n)
	m.Header.Set("Nats-Schedule", "@at "+j.due.UTC().Format(time.RFC3339Nano))
	m.Header.Set("Nats-Schedule-Target", "d."+n)
	m.Header.Set("Due", strconv.FormatInt(j.due.UnixNano(), 10))
	m.Header.Set("Number", strconv.FormatUint(j.biz, 10))
	m.Data = []byte(Attribute)
	return m
}

func (p *natsPeer) insert(ctx context.Context, _ int, jobs []job) error {
	if len(jobs) == 1 {
		_, err := p.js.PublishMsg(ctx, p.message(jobs[0]))
		return err
	}
	stored := make([]jetstream.PubAckFuture, len(jobs))
	for i, j := range jobs {
		var err error
		if stored[i], err = p.js.PublishMsgAsync(p.message(j), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	for _, one := range stored {
		select {
		case <-one.Ok():
		case err := <-one.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *natsPeer) Work(ctx context.Context) error {
	consumer, err := p.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "workers", FilterSubject: "d.*",
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000})
	if err != nil {
		return err
	}
	for range natsWorkers {
		consuming, err := consumer.Consume(func(m jetstream.Msg) {
			ns, _ := strconv.ParseInt(m.Headers().Get("Due"), 10, 64)
			number, _ := strconv.ParseUint(m.Headers().Get("Number"), 10, 64)
			p.fired(time.Unix(0, ns), number)
			if m.DoubleAck(context.WithoutCancel(ctx)) == nil {
				p.done.Add(1)
			}
		})
		if err != nil {
			return err
		}
		p.onDown(func() error { consuming.Stop(); <-consuming.Closed(); return nil })
	}
	return nil
}

func (p *natsPeer) Done(context.Context) (int, error) { return int(p.done.Load()), nil }
