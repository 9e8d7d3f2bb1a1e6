package task_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/timeoutcenter/toc/task"
)

// The tables have a number for each word of the API.
func ExampleParseStatus() {
	status, err := task.ParseStatus("dead")
	fmt.Printf("%d %s %v\n", status, status, err)
	_, err = task.ParseStatus("done")
	fmt.Println(err)
	// Output:
	// 4 dead <nil>
	// status "done" is unknown; it is pending, processed, cancelled or dead
}

// Only a pending task runs, and only a dead one gets a fresh start.
func ExampleStatus_CanBecome() {
	all := []task.Status{task.Pending, task.Processed, task.Cancelled, task.Dead}
	for _, from := range all {
		for _, to := range all {
			if from.CanBecome(to) {
				fmt.Println(from, "→", to)
			}
		}
	}
	// Output:
	// pending → pending
	// pending → processed
	// pending → cancelled
	// pending → dead
	// dead → pending
	// dead → cancelled
}

// A biz_id is a number, or a text that stands for one.
func ExampleParseBizID() {
	for _, text := range []string{"42", "order-6f1c", ""} {
		number, key, err := task.ParseBizID(text)
		fmt.Printf("%d %q %v\n", number, key, err)
	}
	// Output:
	// 42 "" <nil>
	// 1338353542957122797 "order-6f1c" <nil>
	// 0 "" biz_id: is empty; give a whole number, or a text of up to 128 bytes
}

// After a failed run the task waits for its next one, and still says when it was promised.
func ExampleTask_Promised() {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	t := task.Task{ActionTime: noon}
	fmt.Println(t.Promised().Format(time.TimeOnly))
	t.DueTime, t.ActionTime, t.Attempts = noon, noon.Add(time.Minute), 1
	fmt.Println(t.Promised().Format(time.TimeOnly), "again at", t.ActionTime.Format(time.TimeOnly))
	// Output:
	// 12:00:00
	// 12:00:00 again at 12:01:00
}

// The error of a refused change says why it was refused.
func ExampleConflictError() {
	err := fmt.Errorf("cancel: %w", &task.ConflictError{JobID: 413351953711104, Conflict: task.ConflictRunning})

	var conflict *task.ConflictError
	if errors.As(err, &conflict) {
		switch conflict.Conflict {
		case task.ConflictRunning:
			fmt.Println("it runs now: ask again when it has ended")
		case task.ConflictProcessed, task.ConflictCancelled, task.ConflictDead:
			fmt.Println("it has ended")
		}
	}
	// Output:
	// it runs now: ask again when it has ended
}
