package kafka

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/timeoutcenter/toc/internal/testrig/memnet"
	"github.com/timeoutcenter/toc/task"
)

// bubble is a Kafka of one broker.
type bubble struct {
	*testing.T
	memnet.Net
	says atomic.Pointer[string] // where the broker says that it is
}

const (
	brokerAt = "broker:9092"
	topic    = "order-timeouts"
)

// The times after which a request finds its connection silent: the client adds answerTime to what the request lets the broker
// take. Those of a write and of a read are the client's own.
const (
	writeTime = answerTime + 10*time.Second
	readTime  = answerTime + 5*time.Second
)

// inNetwork runs a test in a bubble.
func inNetwork(t *testing.T, f func(*bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t}
		b.move(brokerAt)
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic), kfake.ListenFn(func(string, string) (net.Listener, error) {
			return &listener{b.Listen(brokerAt), b}, nil
		}))
		require.NoError(t, err)
		defer c.Close()
		f(b)
	})
}

// move changes what the broker says of its address.
func (b *bubble) move(address string) { b.says.Store(&address) }

// listener is the broker's.
type listener struct {
	net.Listener
	b *bubble
}

func (l *listener) Addr() net.Addr { return address(*l.b.says.Load()) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func (b *bubble) cluster() Cluster {
	return Cluster{Name: "main", Brokers: []string{brokerAt}, Dial: b.Dial}
}

// open makes a Processor, and the function that writes a task with it. The task is written once; the client tries until then.
func (b *bubble) open() (p *Processor, write func() error) {
	p, err := New(task.BizType{Name: "order_close"}, Config{Cluster: b.cluster(), Topic: topic})
	require.NoError(b, err)
	return p, func() error {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		return p.Process(ctx, task.Task{JobID: 1})
	}
}

// client makes a client as readers have it.
func (b *bubble) client(more ...kgo.Opt) *kgo.Client {
	options, err := b.cluster().Options()
	require.NoError(b, err)
	c, err := kgo.NewClient(append(options, more...)...)
	require.NoError(b, err)
	return c
}

// took is how long f takes.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// retryTime is more than the client waits before it tries again.
const retryTime = time.Second

// All connections fall silent, while new ones work: a request waits for its time, and is then made on a new one.
func TestASilentBrokerIsLeft(t *testing.T) {
	t.Run("write", func(t *testing.T) {
		inNetwork(t, func(b *bubble) {
			p, write := b.open()
			defer func() { require.NoError(b, p.Close()) }()
			require.NoError(b, write())
			b.Silence()
			after := took(func() { require.NoError(b, write()) })
			require.InDelta(b, writeTime, after, float64(retryTime))
			require.Less(b, took(func() { require.NoError(b, write()) }), retryTime)
		})
	})
	t.Run("read", func(t *testing.T) {
		inNetwork(t, func(b *bubble) {
			c := b.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			defer c.Close()
			read := func() { require.Len(b, c.PollFetches(b.Context()).Records(), 1) }
			p, write := b.open()
			require.NoError(b, write())
			require.NoError(b, p.Close())
			read()
			time.Sleep(time.Millisecond) // the next read is under way
			b.Silence()
			p, write = b.open()
			defer func() { require.NoError(b, p.Close()) }()
			require.NoError(b, write())
			require.InDelta(b, readTime, took(read), float64(retryTime))
			require.NoError(b, write())
			require.Less(b, took(read), retryTime)
		})
	})
	t.Run("question", func(t *testing.T) {
		inNetwork(t, func(b *bubble) {
			c := b.client()
			defer c.Close()
			broker, question := c.Broker(0), kmsg.NewPtrDescribeClusterRequest()
			ask := func() { // again if the client finds the connection dead before it writes
				_, err := broker.RetriableRequest(b.Context(), question)
				require.NoError(b, err)
			}
			ask()
			b.Silence()
			require.Equal(b, answerTime, took(func() {
				_, err := broker.Request(b.Context(), question)
				require.Error(b, err)
			}))
			require.Less(b, took(ask), retryTime)
		})
	})
}

// A connection without a request is not used after idleTime, and is closed within as much again.
func TestAnIdleConnectionIsClosed(t *testing.T) {
	inNetwork(t, func(b *bubble) {
		p, write := b.open()
		defer func() { require.NoError(b, p.Close()) }()
		require.NoError(b, write())
		time.Sleep(idleTime - time.Second)
		dialed := b.Dialed()
		require.NoError(b, write())
		require.Equal(b, dialed, b.Dialed(), "it is used until then")
		time.Sleep(idleTime + time.Millisecond)
		b.Silence() // a firewall has forgotten it
		require.Less(b, took(func() { require.NoError(b, write()) }), retryTime)
		time.Sleep(2*idleTime + time.Second)
		require.LessOrEqual(b, b.Open(), 1, "the client asks for the brokers now and then")
	})
}

// A broker says that it has another address. The old one still answers.
func TestABrokerWithANewAddressIsFollowed(t *testing.T) {
	inNetwork(t, func(b *bubble) {
		p, write := b.open()
		defer func() { require.NoError(b, p.Close()) }()
		require.NoError(b, write())
		const next = "next:9092"
		b.Alias(next, brokerAt)
		b.move(next)
		for moved := time.Now(); b.OpenTo(next) == 0; time.Sleep(100 * time.Millisecond) {
			require.LessOrEqual(b, time.Since(moved), metadataAge+retryTime)
			require.NoError(b, write())
		}
		require.Less(b, took(func() { require.NoError(b, write()) }), retryTime)
		require.Less(b, b.OpenTo(brokerAt), 2, "that by which the cluster was first found may be there")
	})
}

// The client has no age of connections: what is written steadily stays at the address that a name had.
func TestAConnectionInUseIsNotReplaced(t *testing.T) {
	inNetwork(t, func(b *bubble) {
		p, write := b.open()
		defer func() { require.NoError(b, p.Close()) }()
		require.NoError(b, write())
		require.NoError(b, b.Listen(brokerAt).Close()) // the name leads nowhere now
		for range 600 {
			time.Sleep(time.Second)
			require.NoError(b, write())
		}
	})
}
