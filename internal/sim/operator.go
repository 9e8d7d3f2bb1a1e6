package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/testrig/traffic"
)

// operate redrives and discards dead tasks, with a rate and without one, and takes some of that back.
func (w *world) operate(ctx context.Context, r *rand.Rand) {
	types := bizTypes(w.o.Small)
	for traffic.Wait(ctx, between(r, 15*time.Second, 40*time.Second)) {
		p := w.any(r)
		b := types[r.IntN(len(types))]
		ask := client.RedriveDead{BizType: b.Name, Limit: []int{0, 4, 8}[r.IntN(3)], Rate: []float64{0, 0.5, 1, 50}[r.IntN(4)]}
		if r.IntN(2) == 0 {
			ask.BizType = ""
		}
		o := audit.Operation{Kind: "redrive", BizType: ask.BizType, Limit: ask.Limit, Sent: time.Now()}
		call, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if r.IntN(4) == 0 {
			o.Kind = "discard"
			got, _ := p.api.DiscardDead(call, ask)
			o.ID = uint64(got.Operation)
		} else {
			got, _ := p.api.RedriveDead(call, ask)
			o.ID = uint64(got.Operation)
		}
		cancel()
		o.Answered = time.Now()
		w.add(o)
		if o.ID == 0 || r.IntN(3) > 0 {
			continue
		}
		traffic.Wait(ctx, between(r, 0, 20*time.Second))
		call, cancel = context.WithTimeout(context.Background(), 10*time.Second)
		undo := audit.Operation{Kind: "undo", BizType: ask.BizType, Sent: time.Now()}
		if p = w.any(r); r.IntN(2) == 0 {
			got, _ := p.api.UndoOperation(call, o.ID)
			undo.ID, undo.Answered = uint64(got.ID), time.Now()
			w.add(undo)
		} else {
			_, _ = p.api.StopOperation(call, o.ID)
		}
		cancel()
	}
}

func (w *world) add(o audit.Operation) {
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
