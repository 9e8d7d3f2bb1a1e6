package app

import (
	"context"
	"fmt"

	"github.com/timeoutcenter/toc/api"
)

// Tasks submits, changes and looks up the tasks of a center in the same process. Its methods are those of
// client.Client, with the same requests and answers, so one interface of a program fits both. errors.Is and
// errors.As find the same errors of package task; those of a Client are also a *client.Error.
type Tasks struct{ api.Center }

// Tasks returns the tasks of the center. They can be used between Start and Stop.
func (a *App) Tasks() *Tasks { return &Tasks{a.service} }

// SubmitBatch stores up to 10,000 tasks and returns a result for each of them, in order. A refused one does not
// affect the others, but one that lacks a field does. After an error none is stored.
func (t *Tasks) SubmitBatch(ctx context.Context, list []api.Submit) ([]api.BatchResult, error) {
	for i := range list {
		if _, err := list[i].Request(); err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
	}
	return t.Center.SubmitBatch(ctx, list)
}
