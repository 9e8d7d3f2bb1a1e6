package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig/fakecenter"
	"github.com/timeoutcenter/toc/server/rest"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// Each row of the server's table of errors arrives at the caller as what it was.
func TestARefusalIsAnErrorOfPackageTask(t *testing.T) {
	types, err := task.NewTypes(task.BizType{ID: 7, Name: "order_close"})
	require.NoError(t, err)
	center := &fakecenter.Center{BizTypes: types}
	server := httptest.NewServer(rest.New(rest.Config{Center: center, Status: calm{}, Logger: slog.New(slog.DiscardHandler)}))
	defer server.Close()
	c := client.New(server.URL)
	defer c.CloseIdleConnections()
	ask := map[string]func(ctx context.Context) error{
		"submit": func(ctx context.Context) error {
			_, err := c.Submit(ctx, client.Submit{BizType: "order_close", Now: true})
			return err
		},
		"submit with another": func(ctx context.Context) error {
			s := client.Submit{BizType: "order_close", Now: true}
			_, errs := c.SubmitTogether(ctx, s, s)
			return errs[1]
		},
		"get by key": func(ctx context.Context) error {
			_, err := c.GetByKey(ctx, client.Key{BizType: "order_close", BizKey: "a", DedupKey: "k"})
			return err
		},
		"list":   func(ctx context.Context) error { _, err := c.List(ctx, client.List{BizID: 1}); return err },
		"cancel": func(ctx context.Context) error { return c.Cancel(ctx, 1) },
		"reschedule": func(ctx context.Context) error {
			_, err := c.Reschedule(ctx, 1, client.Change{Timeout: time.Second})
			return err
		},
	}
	all := []error{task.ErrNotFound, task.ErrUnavailable, task.ErrLocked, task.ErrNotBegun}
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, row := range map[string]struct {
		said error
		is   []error // those of all that it is
		as   error   // the typed error in it
	}{
		"field":           {said: &task.FieldError{Field: "delay", Message: "is wrong"}, as: &task.FieldError{Field: "delay", Message: "is wrong"}},
		"wrapped field":   {said: fmt.Errorf("x: %w", &task.FieldError{Field: "limit", Message: "y"}), as: &task.FieldError{Field: "limit", Message: "y"}},
		"processed":       {said: &task.ConflictError{JobID: 5, Conflict: task.ConflictProcessed}, as: &task.ConflictError{Conflict: task.ConflictProcessed}},
		"cancelled":       {said: &task.ConflictError{JobID: 5, Conflict: task.ConflictCancelled}, as: &task.ConflictError{Conflict: task.ConflictCancelled}},
		"dead":            {said: &task.ConflictError{JobID: 5, Conflict: task.ConflictDead}, as: &task.ConflictError{Conflict: task.ConflictDead}},
		"running":         {said: &task.ConflictError{JobID: 5, Conflict: task.ConflictRunning}, as: &task.ConflictError{Conflict: task.ConflictRunning}},
		"leased":          {said: &task.ConflictError{JobID: 5, Conflict: task.ConflictRunning, Until: due}, as: &task.ConflictError{Conflict: task.ConflictRunning, Until: due}},
		"pending":         {said: &task.ConflictError{JobID: 5, Conflict: task.ConflictPending}, as: &task.ConflictError{Conflict: task.ConflictPending}},
		"not found":       {said: task.ErrNotFound, is: []error{task.ErrNotFound}},
		"unavailable":     {said: task.ErrUnavailable, is: []error{task.ErrUnavailable}},
		"locked":          {said: fmt.Errorf("%w: %w", task.ErrUnavailable, task.ErrLocked), is: []error{task.ErrUnavailable, task.ErrLocked}},
		"not begun":       {said: fmt.Errorf("%w: %w", task.ErrUnavailable, task.ErrNotBegun), is: []error{task.ErrUnavailable, task.ErrNotBegun}},
		"a database":      {said: &store.DatabaseError{Database: 3, Err: errors.New("x")}, is: []error{task.ErrUnavailable}},
		"of a database":   {said: &store.DatabaseError{Database: 3, Err: task.ErrNotBegun}, is: []error{task.ErrUnavailable, task.ErrNotBegun}},
		"took too long":   {said: context.DeadlineExceeded, is: []error{task.ErrUnavailable}},
		"caller has left": {said: context.Canceled, is: []error{task.ErrUnavailable}},
		"changed": {
			said: &task.ChangedError{Task: task.Task{JobID: 5, BizID: 6, BizType: 7, ActionTime: due, Attribute: "a"}},
			as:   &task.ChangedError{Task: task.Task{JobID: 5, BizID: 6, ActionTime: due, Attribute: "a"}},
		},
		"anything else": {said: errors.New("x")},
	} {
		for call, ask := range ask {
			t.Run(name+", "+call, func(t *testing.T) {
				center.Err = row.said
				err := ask(t.Context())
				var is []error
				for _, one := range all {
					if errors.Is(err, one) {
						is = append(is, one)
					}
				}
				require.Equal(t, row.is, is)
				require.Equal(t, row.as, typed(err))
			})
		}
	}
}

// typed gives the typed error of package task that an error holds; nil if there is none.
func typed(err error) error {
	var field *task.FieldError
	var conflict *task.ConflictError
	var changed *task.ChangedError
	switch {
	case errors.As(err, &field):
		return field
	case errors.As(err, &conflict):
		return conflict
	case errors.As(err, &changed):
		return changed
	}
	return nil
}

// What refuses too much at once is not available, and each field that is wrong is named.
func TestRefusalsBeforeTheDesk(t *testing.T) {
	server := httptest.NewServer(rest.New(rest.Config{Center: &fakecenter.Center{}, Status: calm{}, MaxAnswers: 1}))
	defer server.Close()
	c := client.New(server.URL)
	defer c.CloseIdleConnections()
	_, err := c.SubmitBatch(t.Context(), []client.Submit{{BizType: "order_close", Now: true}})
	require.ErrorIs(t, err, task.ErrUnavailable)

	_, err = c.Wake(t.Context(), nil)
	require.Equal(t, &task.FieldError{Field: "job_ids", Message: "is empty; give 1 to 1000 ids"}, typed(err))
	_, err = c.Submit(t.Context(), client.Submit{BizType: "order_close", ActionTime: time.Unix(due13, 0)})
	require.Equal(t, &task.FieldError{Field: "action_time", Message: "is in the year 58863; give one from 0 to 9999"}, typed(err))
	_, err = c.Reschedule(t.Context(), 1, client.Change{ActionTime: time.Unix(due13, 0)})
	require.Equal(t, "action_time", typed(err).(*task.FieldError).Field)
}

// due13 are milliseconds, which a caller has taken for seconds.
const due13 = 1_795_400_000_000
