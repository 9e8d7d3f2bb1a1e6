package console

import (
	"net/http"
	"strconv"

	"github.com/timeoutcenter/toc/api"
)

type auditBody struct {
	Actor, Action, From, To string
	Actions                 []string
	Entries                 []auditRow
	pager
}

type auditRow struct {
	api.AuditEntry
	Link string // to what was acted upon
}

var auditActions = []string{"pause", "resume", "cancel", "reschedule", "redrive", "discard", "retry", "stop", "undo"}

func (c *Console) audit(r *http.Request) (*page, error) {
	f := formOf(r)
	from, to := f.time("from"), f.time("to")
	b := &auditBody{Actor: f.text("actor"), Action: f.text("action"), From: forInput(from), To: forInput(to), Actions: auditActions,
		pager: pager{First: f.text("cursor") == ""}}
	p := &page{Name: "audit", Title: "Audit", Body: b}
	if f.err != nil {
		return p, f.err
	}
	shown, err := c.center.Audit(r.Context(), api.Audit{Actor: b.Actor, Action: b.Action, From: from, To: to, Limit: rowsPerPage,
		Cursor: f.text("cursor")})
	if err != nil {
		return p, err
	}
	for _, e := range shown.Entries {
		b.Entries = append(b.Entries, auditRow{e, c.targetLink(e)})
	}
	b.link(func(cursor string) string {
		return "/console/audit" + query("actor", b.Actor, "action", b.Action, "from", b.From, "to", b.To, "cursor", cursor)
	}, shown.NextCursor)
	return p, nil
}

// targetLink is the page of what was acted upon; empty if there is none.
func (c *Console) targetLink(e api.AuditEntry) string {
	if _, ok := c.center.Types().ByName(e.Target); ok {
		return typePath(e.Target)
	}
	n, err := strconv.ParseUint(e.Target, 10, 64)
	if err != nil {
		return ""
	}
	if e.Action == "stop" || e.Action == "undo" {
		return "/console/operations#operation-" + e.Target
	}
	return taskPath(n)
}
