package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"github.com/timeoutcenter/toc/bench/server"
)

// beanstalkPeer is beanstalkd: jobs in memory, with a binlog.
type beanstalkPeer struct {
	driver
	addr  string
	conns []*beanstalk.Conn // of callers
	done  atomic.Int64
	early bool                          // delays are rounded down: see Gated
	held  atomic.Pointer[chan struct{}] // closed: workers may take jobs; nil: they always may
}

// beanstalkConns is how many connections put, and how many reserve.
const beanstalkConns = 32

func (p *beanstalkPeer) Info() Info {
	return Info{
		Name: "beanstalkd", Parts: everything&^Batches | Restarts,
		Settings: "binlog on, synced every 50 ms; 32 connections put, 32 reserve",
		Durable:  "binlog synced every 50 ms: up to that is lost",
		Precise:  "a delay in whole seconds from when it is put; tasks are made due a whole number of seconds later",
	}
}

func (p *beanstalkPeer) Version(ctx context.Context, _ Env) (string, error) {
	v, err := server.Beanstalkd.Version(ctx)
	return v + ", MIT; go-beanstalk " + moduleVersion("github.com/beanstalkd/go-beanstalk"), err
}

func (p *beanstalkPeer) Up(ctx context.Context, env Env) error {
	s, err := p.start(ctx, server.Beanstalkd, env)
	if err != nil {
		return err
	}
	p.addr = s.Addr
	for range beanstalkConns {
		c, err := p.dial()
		if err != nil {
			return err
		}
		p.conns = append(p.conns, c)
	}
	p.put = p.insert
	return nil
}

func (p *beanstalkPeer) dial() (*beanstalk.Conn, error) {
	c, err := beanstalk.Dial("tcp", p.addr)
	if err == nil {
		p.onDown(func() error { _ = c.Close(); return nil })
	}
	return c, err
}

func (p *beanstalkPeer) insert(_ context.Context, caller int, jobs []job) error {
	tube := beanstalk.NewTube(p.conns[caller%len(p.conns)], "default")
	for _, j := range jobs {
		now := time.Now()
		delay := max(0, j.due.Sub(now))
		if !p.early {
			delay += time.Second - 1
		}
		delay = delay.Truncate(time.Second)
		body := binary.LittleEndian.AppendUint64([]byte(Attribute), uint64(now.Add(delay).UnixNano()))
		body = binary.LittleEndian.AppendUint64(body, j.biz)
		if _, err := tube.Put(body, 1024, delay, 30*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// Load makes tasks of one instant due in the second before it.
func (p *beanstalkPeer) Load(ctx context.Context, l Load) (Loaded, error) {
	p.early = !l.At.IsZero() && l.Spread == 0
	return p.driver.Load(ctx, l)
}

// Hold implements Gated.
func (p *beanstalkPeer) Hold() {
	held := make(chan struct{})
	p.held.Store(&held)
}

// Release implements Gated.
func (p *beanstalkPeer) Release() { close(*p.held.Load()) }

func (p *beanstalkPeer) Work(context.Context) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range beanstalkConns {
		wg.Go(func() {
			for !isClosed(stop) {
				c, err := beanstalk.Dial("tcp", p.addr)
				if err != nil { // the server starts again
					time.Sleep(10 * time.Millisecond)
					continue
				}
				p.consume(c, stop)
				_ = c.Close()
			}
		})
	}
	p.onDown(func() error { close(stop); wg.Wait(); return nil })
	return nil
}

func isClosed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// consume ends with the connection, or when stop is closed: at the latest after reserveFor. So does it heed Hold.
func (p *beanstalkPeer) consume(c *beanstalk.Conn, stop <-chan struct{}) {
	const reserveFor = time.Second
	set := beanstalk.NewTubeSet(c, "default")
	for !isClosed(stop) {
		if held := p.held.Load(); held != nil {
			select {
			case <-*held:
			case <-stop:
				return
			}
		}
		id, body, err := set.Reserve(reserveFor)
		if errors.Is(err, beanstalk.ErrTimeout) || errors.Is(err, beanstalk.ErrDeadline) {
			continue
		}
		if err != nil {
			return
		}
		body = body[len(Attribute):]
		p.fired(time.Unix(0, int64(binary.LittleEndian.Uint64(body))), binary.LittleEndian.Uint64(body[8:]))
		if c.Delete(id) != nil {
			return
		}
		p.done.Add(1)
	}
}

func (p *beanstalkPeer) Done(context.Context) (int, error) { return int(p.done.Load()), nil }
