package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/peerproof"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/wire"
)

// conflicts are the outcomes that a 409 can name.
var conflicts = map[string]task.Conflict{
	string(task.ConflictProcessed): task.ConflictProcessed,
	string(task.ConflictCancelled): task.ConflictCancelled,
	string(task.ConflictDead):      task.ConflictDead,
	string(task.ConflictRunning):   task.ConflictRunning,
	string(task.ConflictPending):   task.ConflictPending,
}

// answer turns what came back into one of the desk's answers; answered tells
// whether that is the node's own. Nothing of a body gets into a
// task.ErrUnavailable.
func (n *node) answer(jobID uint64, err error) (answered bool, _ error) {
	if err == nil {
		return true, nil
	}
	var refused *client.Error
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusConflict:
			if c, known := conflicts[refused.Outcome]; known {
				return true, &task.ConflictError{JobID: jobID, Conflict: c}
			}
		case http.StatusPreconditionFailed:
			if refused.Task == nil {
				break
			}
			t, err := n.peers.row(*refused.Task, jobID)
			if err != nil {
				return false, n.unavailable(reason(err))
			}
			return true, &task.ChangedError{Task: t}
		case http.StatusNotFound:
			return true, task.ErrNotFound
		case http.StatusUnprocessableEntity:
			if len(refused.Errors) > 0 {
				return true, fieldError(refused.Errors[0])
			}
		case http.StatusServiceUnavailable: // not now: partitions may be moving
			return true, n.unavailable(reason(err))
		}
	}
	return false, n.unavailable(reason(err))
}

// fieldError turns body.delay into delay.
func fieldError(f client.FieldError) *task.FieldError {
	_, field, found := strings.Cut(f.Location, ".")
	if !found {
		field = f.Location
	}
	return &task.FieldError{Field: field, Message: f.Message}
}

func (n *node) unavailable(why string) error { return intake.Unavailable("node %q: %s", n.name, why) }

// errAnswer is an answer that says yes, but not to what was asked.
var errAnswer = errors.New("its answer makes no sense here")

// row reads an answered task.
func (p *Peers) row(answered client.Task, jobID uint64) (task.Task, error) {
	if uint64(answered.JobID) != jobID {
		return task.Task{}, fmt.Errorf("%w: it is another task", errAnswer)
	}
	b, known := p.cfg.Types().ByName(answered.BizType)
	if !known { // taken out of the configuration: then it is shown by its id
		id, err := wire.ParseID(answered.BizType)
		if err != nil {
			return task.Task{}, fmt.Errorf("%w: its biz_type is not configured on this node", errAnswer)
		}
		b.ID = uint64(id)
	}
	t, err := answered.Task(b.ID)
	if err != nil {
		return task.Task{}, fmt.Errorf("%w: its status is unknown", errAnswer)
	}
	return t, nil
}

// notConnected tells whether an error came before there was a connection: what
// was asked has not been sent.
func notConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// reason says why there is no answer, without any of its bytes.
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
	case errors.As(err, &op) && op.Op == "dial":
		return op.Error()
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	default:
		return "its answer did not arrive, or cannot be read"
	}
}
