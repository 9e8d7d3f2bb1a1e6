package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
	"github.com/timeoutcenter/toc/task"
)

// operate redrives and discards dead tasks, with a rate and without one, takes some of that back, and retries what has failed.
func (w *world) operate(ctx context.Context, r *rand.Rand) {
	types := bizTypes(w.o.Small)
	for traffic.Wait(ctx, between(r, 5*time.Second, 15*time.Second)) {
		if r.IntN(4) == 0 {
			w.retry(types[r.IntN(len(types))].Name, w.any(r), []float64{0, 0, 0.5, 20}[r.IntN(4)])
			continue
		}
		p, dead := w.any(r), w.count(task.Dead)
		if dead < 4 {
			continue
		}
		b := types[r.IntN(len(types))]
		ask := client.RedriveDead{BizType: b.Name, Limit: []int{0, 4, dead / 2, dead / 2}[r.IntN(4)]}
		seconds := max(0.5, float64(cmp.Or(ask.Limit, dead))/8)
		ask.Rate = []float64{0, 50, seconds, seconds}[r.IntN(4)] // at once, or for some seconds
		if r.IntN(4) > 0 {
			ask.BizType = ""
		}
		o := audit.Operation{Kind: "redrive", BizType: ask.BizType, Limit: ask.Limit, Sent: time.Now()}
		call, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var err error
		if r.IntN(4) == 0 {
			var got client.Discarded
			got, err = p.api.DiscardDead(call, ask)
			o.Kind, o.ID = "discard", uint64(got.Operation)
		} else {
			var got client.Redriven
			got, err = p.api.RedriveDead(call, ask)
			o.ID = uint64(got.Operation)
		}
		cancel()
		w.answered(o, err)
		if o.ID == 0 || r.IntN(3) > 0 {
			continue
		}
		traffic.Wait(ctx, between(r, 0, 20*time.Second))
		call, cancel = context.WithTimeout(context.Background(), 10*time.Second)
		undo := audit.Operation{Kind: "undo", BizType: ask.BizType, Sent: time.Now()}
		if p = w.any(r); r.IntN(2) == 0 {
			got, err := p.api.UndoOperation(call, o.ID)
			undo.ID = uint64(got.ID)
			w.answered(undo, err)
		} else {
			_, _ = p.api.StopOperation(call, o.ID)
		}
		cancel()
	}
}

// retry retries the failing tasks of a business type, with a rate or without one (0).
func (w *world) retry(bizType string, at *process, rate float64) {
	o := audit.Operation{Kind: "retry", BizType: bizType, Sent: time.Now()}
	call, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got, err := at.api.Retry(call, bizType, rate)
	o.ID = uint64(got.Operation)
	w.answered(o, err)
}

// count is how many tasks have a status, in the databases that answer.
func (w *world) count(status task.Status) (sum int) {
	text := fmt.Sprintf("SELECT SUM(n) FROM (%s)", audit.EachTable(w.layout.TablesPerDatabase, fmt.Sprintf("SELECT COUNT(*) n FROM %%s WHERE status = %d", status)))
	for _, db := range w.dbs {
		var n int
		if db.QueryRow(text).Scan(&n) == nil {
			sum += n
		}
	}
	return sum
}

// answered adds an operation that was answered just now.
func (w *world) answered(o audit.Operation, err error) {
	o.Answered = time.Now()
	if err != nil { // maybe it goes on
		o.Ended = o.Answered.Add(10 * time.Minute)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operations = append(w.operations, o)
}

// lookAtOperations sees how the operations stand in the end.
func (w *world) lookAtOperations() {
	for i := range w.operations {
		o := &w.operations[i]
		if o.ID == 0 {
			continue
		}
		p := w.up()[0]
		got, err := p.api.Operation(context.Background(), o.ID)
		if err != nil {
			w.t.Errorf("operation %d: %v", o.ID, err)
			continue
		}
		o.State, o.Done, o.Ended = got.State, got.Done, got.Ended.Time()
	}
}
