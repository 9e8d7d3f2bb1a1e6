package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/task"
)

// waiters are the consumers that wait, by business type. While there are some, each other node is asked, once for all of
// them, to answer when it has a task that is due. Then the consumer that has waited longest asks that node.
type waiters struct {
	peers  func() []Peer
	ctx    context.Context // of the questions
	stop   context.CancelFunc
	asking sync.WaitGroup

	mu    sync.Mutex
	types map[uint64]*waitingFor
}

// waitingFor is the waiters of one business type.
type waitingFor struct {
	list   []*waiter     // the longest first
	asked  map[Peer]bool // nodes that are asked
	quiet  map[Peer]bool // nodes that have not answered yet: nothing is due there
	more   chan struct{} // closed when a waiter comes; nil: nobody waits for that
	recent time.Time     // when the last waiter came or went
}

type waiter struct {
	wake  func()
	there *there // set when another node has a task
}

// there is another node that has a task.
type there struct {
	peer  Peer
	tried chan bool // whether it had one
}

// linger is how long other nodes are asked after the last consumer has left: most come back at once.
const linger = 3 * time.Second

func newWaiters(peers func() []Peer) *waiters {
	w := &waiters{peers: peers, types: make(map[uint64]*waitingFor)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

func (w *waiters) add(b task.BizType, one *waiter) {
	peers := w.peers()
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.types[b.ID]
	if f == nil {
		f = &waitingFor{asked: make(map[Peer]bool), quiet: make(map[Peer]bool)}
		w.types[b.ID] = f
	}
	f.list, f.recent = append(f.list, one), time.Now()
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
	for _, p := range peers {
		if !f.asked[p] && w.ctx.Err() == nil {
			f.asked[p] = true
			w.asking.Go(func() { w.askPeer(b, f, p) })
		}
	}
}

// remove ends a wait. It returns the node that has woken the waiter, if one has.
func (w *waiters) remove(b task.BizType, one *waiter) *there {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.types[b.ID]
	f.recent = time.Now()
	f.list = slices.DeleteFunc(f.list, func(o *waiter) bool { return o == one })
	return one.there
}

// askPeer asks a node, again and again, to answer when it has a task that is due, and wakes a waiter then.
func (w *waiters) askPeer(b task.BizType, f *waitingFor, p Peer) {
	empty := time.Duration(0)
	for w.hasWaiters(f, p) {
		w.setQuiet(f, p, true)
		_, err := p.Lease(w.ctx, b.Name, api.AskLease{Max: 1, Wait: askWait})
		w.setQuiet(f, p, false)
		if err != nil {
			_ = wait.For(w.ctx, askPause)
			continue
		}
		if one := w.wakeFirst(f, p); one == nil || <-one.tried {
			empty = 0
			continue
		}
		empty = min(max(time.Millisecond, 2*empty), maxEmpty) // others were faster, or a limit holds
		_ = wait.For(w.ctx, empty)
	}
}

const (
	askWait  = 20 * time.Second       // of a question
	askPause = 500 * time.Millisecond // after an error
	maxEmpty = 200 * time.Millisecond // the pause after a node that had no task after all, at most
)

// background runs f, and Close waits for it.
func (w *waiters) background(f func()) {
	w.mu.Lock()
	closing := w.ctx.Err() != nil
	if !closing {
		w.asking.Go(f)
	}
	w.mu.Unlock()
	if closing {
		f()
	}
}

func (w *waiters) setQuiet(f *waitingFor, p Peer, quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.quiet[p] = quiet
}

// isWatched reports whether a node has a question under way: then a waiter is woken when the node has a task.
func (w *waiters) isWatched(bizType uint64, p Peer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.types[bizType]
	return f != nil && f.quiet[p]
}

// hasWaiters waits until there is a waiter. It returns false, and ends the question, if none has come for a while or the
// node is gone.
func (w *waiters) hasWaiters(f *waitingFor, p Peer) bool {
	for {
		isThere := slices.Contains(w.peers(), p)
		w.mu.Lock()
		if !isThere || w.ctx.Err() != nil || len(f.list) == 0 && time.Since(f.recent) > linger {
			delete(f.asked, p)
			delete(f.quiet, p)
			w.mu.Unlock()
			return false
		}
		if len(f.list) > 0 {
			w.mu.Unlock()
			return true
		}
		if f.more == nil {
			f.more = make(chan struct{})
		}
		more := f.more
		w.mu.Unlock()
		_ = wait.ForOr(w.ctx, linger, more)
	}
}

// wakeFirst wakes the first waiter; nil: there is none any more.
func (w *waiters) wakeFirst(f *waitingFor, p Peer) *there {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(f.list) == 0 {
		return nil
	}
	one := f.list[0]
	f.list = f.list[1:]
	one.there = &there{peer: p, tried: make(chan bool, 1)}
	one.wake()
	return one.there
}
