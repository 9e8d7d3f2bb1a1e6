package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/store"
)

type operationsBody struct {
	Operations []operationRow
	Most       int
}

type operationRow struct {
	api.Operation
	Percent int
	Which   string
}

// operationsMost is how many operations the page lists.
const operationsMost = 50

// didOperation says what was done to an operation.
var didOperation = map[string]string{
	"redrive": "The redrive has started.",
	"discard": "The discard has started.",
	"retry":   "The retry has started.",
	"stop":    "The operation is stopped. What it has changed stays so.",
	"undo":    "The undo has started.",
	"over":    "The operation was over already. Nothing was done.",
	"undone":  "The operation is taken back already. Nothing was done.",
}

func (c *Console) operationsBody(ctx context.Context, _ string) (any, error) {
	list, err := c.center.Operations(ctx, operationsMost)
	if err != nil {
		return nil, err
	}
	b := &operationsBody{Most: operationsMost}
	for _, o := range list {
		b.Operations = append(b.Operations, operationRow{Operation: o, Which: which(o), Percent: percent(o)})
	}
	return b, nil
}

// percent says how far an operation is. One that is done has nothing left, although fewer tasks than matched may be done:
// the others ran, or changed, before it came to them.
func percent(o api.Operation) int {
	all := o.Matched
	if o.Filter.Limit > 0 {
		all = min(all, o.Filter.Limit)
	}
	switch {
	case o.State == store.OperationDone:
		return 100
	case all == 0:
		return 0
	}
	return min(100, 100*(o.Done+o.Skipped)/all)
}

// which says which tasks an operation is about.
func which(o api.Operation) string {
	if o.Undoes != 0 {
		return "takes operation " + o.Undoes.String() + " back"
	}
	if o.Kind == store.OperationRetry {
		return "failing tasks of " + o.Filter.BizType
	}
	text := whichDead(api.ListDead{BizType: o.Filter.BizType, Error: o.Filter.Error, Since: o.Filter.Since.Time(),
		Until: o.Filter.Until.Time()})
	if o.Filter.Limit > 0 {
		text += fmt.Sprintf(", at most %s", num(o.Filter.Limit))
	}
	return text
}

func (c *Console) stop(r *http.Request) (*page, error) {
	return c.changeOperation(r, "stop", c.center.StopOperation)
}

func (c *Console) undo(r *http.Request) (*page, error) {
	return c.changeOperation(r, "undo", c.center.UndoOperation)
}

func (c *Console) changeOperation(r *http.Request, did string,
	change func(context.Context, uint64) (api.Operation, error)) (*page, error) {
	of, err := id(r, "id")
	if err != nil {
		return nil, err
	}
	c.acts.Lock()
	defer c.acts.Unlock()
	before, err := c.isDone(r.Context(), of, did)
	if err == nil && before == "" {
		_, err = change(r.Context(), of)
	}
	if err != nil {
		return nil, err
	}
	return see("/console/operations?did=" + cmp.Or(before, did)), nil
}

// isDone returns a key of didOperation if there is nothing left to stop or to take back; "" if there is.
func (c *Console) isDone(ctx context.Context, of uint64, did string) (before string, err error) {
	if did == "stop" {
		o, err := c.center.Operation(ctx, of)
		if err == nil && o.State != store.OperationRunning {
			before = "over"
		}
		return before, err
	}
	list, err := c.center.Operations(ctx, operationsMost)
	for i := range list {
		if uint64(list[i].Undoes) == of {
			before = "undone"
		}
	}
	return before, err
}

func (c *Console) askUndo(r *http.Request) (*page, error) {
	of, err := id(r, "id")
	if err != nil {
		return nil, err
	}
	o, err := c.center.Operation(r.Context(), of)
	if err != nil {
		return nil, err
	}
	return &page{Name: "confirm", Title: "Undo operation " + o.ID.String(), Body: confirmBody{
		Question: fmt.Sprintf("Undo the %s of %s?", o.Kind, plural(o.Done, "task", "tasks")),
		Explain: []string{"It was of " + which(o) + ".",
			"Those that have not started since are dead again, with their attempts as before. One that runs, or that somebody has changed, is skipped.",
			"If it is still running, it is stopped first."},
		Button: "Undo", Action: "/console/operations/" + o.ID.String() + "/undo", Back: "/console/operations", Fields: url.Values{},
	}}, nil
}
