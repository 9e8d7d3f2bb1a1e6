package intake

import (
	"context"

	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// MaxPage is how many tasks a look-up answers at most.
const MaxPage = 1000

// Get reads one task; task.ErrNotFound if there is none.
func (d *Desk) Get(ctx context.Context, jobID uint64) (task.Task, error) {
	return d.cfg.Store.Get(ctx, jobID)
}

// List narrows a look-up by biz_id.
type List struct {
	BizID   uint64
	BizType string       // name; empty: all
	Status  *task.Status // nil: all
	After   uint64       // the Next of the page before; 0: the first page
	Limit   int          // 1 to MaxPage
}

// Page is a part of a look-up's answer.
type Page struct {
	Tasks []task.Task
	Next  uint64 // where the next page goes on; 0: there is none
}

// List reads the tasks of a biz_id in the order of their submission.
func (d *Desk) List(ctx context.Context, q List) (Page, error) {
	bizType, err := d.typeFilter(q.BizType)
	if err != nil {
		return Page{}, err
	}
	list, err := d.cfg.Store.List(ctx, q.BizID, store.Filter{BizType: bizType, Status: q.Status, After: q.After, Limit: q.Limit + 1})
	return page(list, q.Limit), err
}

// ListDead reads the dead tasks of a business type (empty: of all).
func (d *Desk) ListDead(ctx context.Context, bizType string, after uint64, limit int) (Page, error) {
	id, err := d.typeFilter(bizType)
	if err != nil {
		return Page{}, err
	}
	list, err := d.cfg.Store.ListDead(ctx, id, after, limit+1)
	return page(list, limit), err
}

// page cuts the one task off that was read to see whether there are more.
func page(list []task.Task, limit int) Page {
	if len(list) <= limit {
		return Page{Tasks: list}
	}
	return Page{Tasks: list[:limit], Next: list[limit-1].JobID}
}

// typeFilter turns a name into an id; an empty name into nil.
func (d *Desk) typeFilter(name string) (*uint64, error) {
	if name == "" {
		return nil, nil
	}
	b, ok := d.Types().ByName(name)
	if !ok {
		return nil, d.unknownType(name)
	}
	return &b.ID, nil
}
