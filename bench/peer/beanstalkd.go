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
	early bool          // delays are rounded down: see Gated
	held  chan struct{} // closed: workers may take jobs; nil: they always may
}

// beanstalkConns is how many connections put, and how many reserve.
const beanstalkConns = 32

func (p *beanstalkPeer) Info() Info {
	return Info{
		Name: "beanstalkd", Parts: everything &^ Batches,
		Settings: "binlog on, synced every 50 ms; 32 connections put, 32 reserve",
		Durable:  "binlog synced every 50 ms: up to that is lost",
		Precise:  "a delay in whole seconds from when it is put; tasks are made due a whole number of seconds later",
	}
}

func (p *beanstalkPeer) Version(ctx context.Context, _ Env) (string, error) {
	v, err := server.Beanstalkd.Version(ctx)
	return v + "; go-beanstalk " + moduleVersion("github.com/beanstalkd/go-beanstalk"), err
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
func (p *beanstalkPeer) Hold() { p.held = make(chan struct{}) }

// Release implements Gated.
func (p *beanstalkPeer) Release() { close(p.held) }

func (p *beanstalkPeer) Work(context.Context) error {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range beanstalkConns {
		c, err := beanstalk.Dial("tcp", p.addr)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			if p.held != nil {
				select {
				case <-p.held:
				case <-stop:
				}
			}
			p.consume(c, stop)
		})
	}
	p.onDown(func() error { close(stop); wg.Wait(); return nil })
	return nil
}

// consume ends when stop is closed, at the latest after reserveFor.
func (p *beanstalkPeer) consume(c *beanstalk.Conn, stop <-chan struct{}) {
	const reserveFor = time.Second
	set := beanstalk.NewTubeSet(c, "default")
	for {
		select {
		case <-stop:
			return
		default:
		}
		id, body, err := set.Reserve(reserveFor)
		if errors.Is(err, beanstalk.ErrTimeout) || errors.Is(err, beanstalk.ErrDeadline) {
			continue
		}
		if err != nil {
			return // the server is gone: what is missing shows
		}
		p.fired(time.Unix(0, int64(binary.LittleEndian.Uint64(body[len(Attribute):]))))
		if c.Delete(id) != nil {
			return
		}
		p.done.Add(1)
	}
}

func (p *beanstalkPeer) Done(context.Context) (int, error) { return int(p.done.Load()), nil }
