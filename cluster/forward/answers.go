package forward

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// answer converts the owner's answer to the errors of package task; answered reports whether the owner has
// answered. A task.ErrUnavailable has no bytes of the body.
func (n *node) answer(jobID uint64, err error) (answered bool, _ error) {
	var refused *client.Error
	var conflict *task.ConflictError
	var changed *task.ChangedError
	var field *task.FieldError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &conflict):
		conflict.JobID = jobID
		return true, conflict
	case errors.As(err, &changed) && errors.As(err, &refused):
		if err = checkTask(*refused.Task, jobID); err == nil {
			return true, refused
		}
	case errors.As(err, &field):
		return true, field
	case errors.Is(err, task.ErrNotFound):
		return true, task.ErrNotFound
	}
	// With ErrUnavailable the owner cannot decide now: partitions may be moving.
	known := err
	if notConnected(err) { // nothing was sent
		known = task.ErrNotBegun
	}
	return errors.Is(err, task.ErrUnavailable), intake.UnavailableAs(known, "node %q: %s", n.name, reason(err))
}

// stopping is the error of a question that is not asked any more.
func (n *node) stopping() error { return intake.NotBegun("node %q: this node is stopping", n.name) }

// errAnswer is a positive answer that does not fit the question.
var errAnswer = errors.New("its answer makes no sense here")

// checkTask checks an answered task: it must be the one in question.
func checkTask(t api.Task, jobID uint64) error {
	_, err := task.ParseStatus(t.Status)
	switch {
	case uint64(t.JobID) != jobID:
		return fmt.Errorf("%w: it is another task", errAnswer)
	case err != nil:
		return fmt.Errorf("%w: its status is unknown", errAnswer)
	}
	return nil
}

// reason says why there is no answer, without any bytes of it.
func reason(err error) string {
	var refused *client.Error
	var unproved *peerproof.AnswerError
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("it answered with status %d", refused.Status)
	case errors.Is(err, errAnswer):
		return err.Error()
	case errors.As(err, &unproved):
		return unproved.Error()
	case errors.Is(err, context.Canceled):
		return "the caller did not wait for its answer"
	case notConnected(err) && errors.As(err, &op):
		return op.Error()
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	default:
		return "its answer did not arrive, or cannot be read"
	}
}
