package intake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// A program submits a task in process, moves it, and cancels it.
func Example() {
	dir, _ := os.MkdirTemp("", "toc-example-")
	defer os.RemoveAll(dir)
	cfg := configs.Default()
	cfg.Store.SQLite.Dir = dir
	center, err := app.New(cfg, app.WithoutHTTP(), app.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	ctx := context.Background()
	check(center.Start(ctx))
	defer center.Stop(ctx)

	desk := center.Desk()
	unpaid := intake.Submit{BizType: "order_close", BizID: 42, When: intake.In(30 * time.Minute), DedupKey: "unpaid"}
	first, err := desk.Submit(ctx, unpaid) // without an error it is committed
	fmt.Println("submitted:", first.Task.Status, err)

	again, err := desk.Submit(ctx, unpaid) // the same dedup_key: the first task is answered
	fmt.Println("once more:", again.Duplicate, again.Task.JobID == first.Task.JobID, err)

	_, err = desk.Reschedule(ctx, first.Task.JobID, intake.Change{When: new(intake.In(time.Hour))})
	fmt.Println("moved:", err)

	fmt.Println("cancelled:", desk.Cancel(ctx, first.Task.JobID)) // nil: it never fires

	var conflict *task.ConflictError
	if err := desk.Cancel(ctx, first.Task.JobID); errors.As(err, &conflict) {
		fmt.Println("twice:", conflict.Conflict)
	}
	var wrong *task.FieldError
	if _, err := desk.Submit(ctx, intake.Submit{BizType: "order_close", BizID: 42}); errors.As(err, &wrong) {
		fmt.Println("refused:", wrong.Field)
	}
	// Output:
	// submitted: pending <nil>
	// once more: true true <nil>
	// moved: <nil>
	// cancelled: <nil>
	// twice: already_cancelled
	// refused: action_time
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
