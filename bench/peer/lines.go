package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/timeoutcenter/toc/internal/testrig/child"
)

// lines drives a peer that is not written in Go: a process makes the load, reads the clock and counts. A request is a line
// of JSON to its stdin, {id, do, …}; an answer is a line of its stdout, {id, …} or {id, error}.
type lines struct {
	driver // for its servers
	proc   *child.Process
	in     io.WriteCloser

	mu    sync.Mutex
	last  int
	waits map[int]chan json.RawMessage
	ended error // set once the process answers no more
}

// run starts the process, and waits until it answers.
func (p *lines) run(ctx context.Context, cmd *exec.Cmd) (err error) {
	cmd.Stderr = os.Stderr
	if p.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	// A pipe of our own: the one of exec.Cmd is closed when the process ends, read or not.
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = write
	p.proc, err = child.Start(cmd, syscall.SIGKILL)
	err = errors.Join(err, write.Close())
	if err != nil {
		return errors.Join(err, read.Close())
	}
	p.waits = make(map[int]chan json.RawMessage)
	reader := make(chan struct{})
	go func() {
		defer close(reader)
		p.listen(read)
	}()
	p.onDown(func() error {
		err := p.in.Close()
		select {
		case <-p.proc.Done():
		case <-time.After(5 * time.Second):
			_ = p.proc.Signal(syscall.SIGKILL)
			<-p.proc.Done()
		}
		<-reader
		return errors.Join(err, read.Close())
	})
	return p.ask(ctx, "done", nil, &struct{}{})
}

// listen hands answers to those who wait for them.
func (p *lines) listen(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			p.mu.Lock()
			p.ended = fmt.Errorf("the peer's process ended: %w", err)
			for _, w := range p.waits {
				close(w)
			}
			p.waits = nil
			p.mu.Unlock()
			return
		}
		var head struct{ ID int }
		if json.Unmarshal(line, &head) != nil {
			continue
		}
		p.mu.Lock()
		if w, ok := p.waits[head.ID]; ok {
			w <- line
			delete(p.waits, head.ID)
		}
		p.mu.Unlock()
	}
}

// ask sends a request and waits for its answer.
func (p *lines) ask(ctx context.Context, do string, with map[string]any, answer any) error {
	wait := make(chan json.RawMessage, 1)
	p.mu.Lock()
	if p.ended != nil {
		p.mu.Unlock()
		return p.ended
	}
	p.last++
	request := map[string]any{"id": p.last, "do": do}
	for k, v := range with {
		request[k] = v
	}
	line, err := json.Marshal(request)
	if err == nil {
		p.waits[p.last] = wait
		_, err = p.in.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case line, ok := <-wait:
		if !ok {
			return p.ended
		}
		var failed struct{ Error string }
		if err := json.Unmarshal(line, &failed); err != nil {
			return err
		}
		if failed.Error != "" {
			return fmt.Errorf("%s: %s", do, failed.Error)
		}
		return json.Unmarshal(line, answer)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *lines) Work(ctx context.Context) error { return p.ask(ctx, "work", nil, &struct{}{}) }

func (p *lines) Load(ctx context.Context, l Load) (Loaded, error) {
	var at int64
	if !l.At.IsZero() {
		at = l.At.UnixMilli()
	}
	var answer struct {
		Took  float64   `json:"took_ms"`
		Calls []float64 `json:"calls_ms"`
	}
	err := p.ask(ctx, "load", map[string]any{
		"n": l.N, "callers": l.Callers, "batch": l.Batch, "rate": l.Rate,
		"at_ms": at, "after_ms": l.After.Milliseconds(), "spread_ms": l.Spread.Milliseconds(),
	}, &answer)
	return Loaded{Took: duration(answer.Took), Calls: durations(answer.Calls)}, err
}

func (p *lines) Done(ctx context.Context) (int, error) {
	var answer struct{ Done int }
	err := p.ask(ctx, "done", nil, &answer)
	return answer.Done, err
}

func (p *lines) Heard(ctx context.Context) (int, error) {
	var answer struct{ Heard int }
	err := p.ask(ctx, "heard", nil, &answer)
	return answer.Heard, err
}

func (p *lines) Reset(ctx context.Context, n int) error {
	return p.ask(ctx, "reset", map[string]any{"n": n}, &struct{}{})
}

func (p *lines) Fired(ctx context.Context) (Fired, error) {
	var answer struct {
		Late    []float64 `json:"late_ms"`
		Numbers []uint64  `json:"numbers"`
		First   float64   `json:"first_ms"`
	}
	err := p.ask(ctx, "fired", nil, &answer)
	f := Fired{Late: durations(answer.Late)}
	slices.Sort(answer.Numbers)
	f.Tasks, f.Twice = tally(answer.Numbers)
	if answer.First > 0 {
		f.First = time.UnixMicro(int64(answer.First * 1000))
	}
	return f, err
}

// Processes is the peer's and the servers': this process only asks.
func (p *lines) Processes() []Process {
	list := []Process{{Name: "client", PID: p.proc.Pid()}}
	for _, s := range p.servers {
		list = append(list, process(s.Name, s))
	}
	return list
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// durations are sorted.
func durations(ms []float64) []time.Duration {
	list := make([]time.Duration, len(ms))
	for i, m := range ms {
		list[i] = duration(m)
	}
	slices.Sort(list)
	return list
}
