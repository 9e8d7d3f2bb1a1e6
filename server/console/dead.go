package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/task"
)

type deadBody struct {
	BizType, Error, Since, Until string
	TypeNames                    []string
	Groups                       []api.DeadGroup
	GroupCount, GroupTasks       int
	Partial                      bool
	Tasks                        []api.Task
	pager
	Filtered bool
	Rate     string
	exact    api.ListDead // the filter, to the millisecond
}

// ExactSince is Since to the millisecond.
func (b *deadBody) ExactSince() string { return exactly(b.exact.Since) }

// ExactUntil is Until to the millisecond.
func (b *deadBody) ExactUntil() string { return exactly(b.exact.Until) }

// groupsMost is how many groups a page lists.
const groupsMost = 50

// deadFilter reads which dead tasks somebody means.
func deadFilter(f *form) (api.ListDead, deadBody) {
	d := api.ListDead{BizType: f.text("biz_type"), Error: f.values.Get("error"), Since: f.time("since"), Until: f.time("until")}
	return d, deadBody{BizType: d.BizType, Error: d.Error, Since: forInput(d.Since), Until: forInput(d.Until), Rate: f.text("rate"),
		Filtered: d != api.ListDead{}, exact: d}
}

// deadPath is the page of the tasks that a filter selects.
func deadPath(q api.ListDead) string {
	return "/console/dead" + query("biz_type", q.BizType, "error", q.Error, "since", exactly(q.Since), "until", exactly(q.Until),
		"cursor", q.Cursor)
}

// GroupLink is the page with the dead tasks of a group. Its error has # instead of numbers, so the longest text without one stands for it.
func (b *deadBody) GroupLink(g api.DeadGroup) string {
	return deadPath(api.ListDead{BizType: g.BizType, Error: longestLiteral(g.Error)})
}

func (c *Console) dead(r *http.Request) (*page, error) {
	f := formOf(r)
	ask, b := deadFilter(f)
	b.TypeNames, b.First = c.typeNames(), f.text("cursor") == ""
	b.Start = "/console/dead"
	p := &page{Name: "dead", Title: "Dead letters", Body: &b}
	wrong := func(err error) (*page, error) {
		b.First, b.Filtered = b.Groups != nil, false // what is not known is not said to be none
		return p, err
	}
	if f.err != nil {
		return wrong(f.err)
	}
	if b.First {
		all, err := c.center.DeadGroups(r.Context(), ask.BizType)
		if err != nil {
			return wrong(err)
		}
		b.Partial, b.GroupCount = all.Partial, len(all.Groups)
		for _, g := range all.Groups {
			b.GroupTasks += g.Count
		}
		b.Groups = all.Groups[:min(groupsMost, len(all.Groups))]
	}
	ask.Limit, ask.Cursor = rowsPerPage, f.text("cursor")
	shown, err := c.center.ListDead(r.Context(), ask)
	if err != nil {
		return wrong(err)
	}
	b.Tasks = shown.Tasks
	b.link(func(cursor string) string { ask.Cursor = cursor; return deadPath(ask) }, shown.NextCursor)
	return p, nil
}

// bulk is a change of all dead tasks that match.
type bulk struct {
	api.ListDead
	rate float64
	verb string // redrive or discard
}

func bulkOf(r *http.Request) (bulk, error) {
	f := formOf(r)
	f.only("biz_type", "error", "since", "until", "limit", "rate", asked)
	k := bulk{verb: path.Base(r.URL.Path)}
	k.ListDead, _ = deadFilter(f)
	k.Limit = f.number("limit", 1, 1<<31-1, 0)
	k.rate = f.rate("rate")
	return k, f.err
}

// askDead counts what matches, changes nothing, and asks.
func (c *Console) askDead(r *http.Request) (*page, error) {
	k, err := bulkOf(r)
	if err != nil {
		return nil, err
	}
	back := deadPath(k.ListDead)
	if k.Until.IsZero() { // so that the act changes no task that dies after the count
		k.Until = task.CeilMilli(c.cfg.Now().Add(time.Millisecond))
	}
	verb, end := "Redrive", "They become pending with a fresh start, and run as soon as their limits let them. Undo makes those dead again that have not started."
	if k.verb == "discard" {
		verb, end = "Discard", "They become cancelled and never run. Undo makes them dead again."
	}
	matched, _, err := c.changeAll(r.Context(), &k, true)
	if err != nil {
		return nil, err
	}
	n := matched
	if k.Limit > 0 {
		n = min(n, k.Limit)
	}
	b := confirmBody{Question: fmt.Sprintf("%s all %s that match?", verb, num(matched)), Button: verb,
		Action: "/console/dead/" + k.verb, Back: back, Danger: k.verb == "discard"}
	switch {
	case matched == 0:
		b.Question, b.Button = "No dead task matches.", ""
		return &page{Name: "confirm", Title: verb + " dead tasks", Body: b}, nil
	case n < matched:
		b.Question = fmt.Sprintf("%s the first %s of %s that match?", verb, num(n), num(matched))
	}
	b.Explain = []string{"Which: " + whichDead(k.ListDead) + ".", end,
		fmt.Sprintf("At %s a second it takes about %s. It goes on if this node stops, and you can stop it.", trimFloat(k.rate),
			span(time.Duration(float64(n)/k.rate*float64(time.Second))))}
	b.Fields = url.Values{"biz_type": {k.BizType}, "error": {k.Error}, "since": {exactly(k.Since)}, "until": {exactly(k.Until)},
		"rate": {trimFloat(k.rate)}, asked: {rand.Text()}}
	if k.Limit > 0 {
		b.Fields.Set("limit", strconv.Itoa(k.Limit))
	}
	return &page{Name: "confirm", Title: verb + " dead tasks", Body: b}, nil
}

func trimFloat(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// whichDead says which tasks are meant.
func whichDead(k api.ListDead) string {
	text := "dead tasks of all types"
	if k.BizType != "" {
		text = "dead tasks of " + k.BizType
	}
	if k.Error != "" {
		text += fmt.Sprintf(", whose error has “%s”", k.Error)
	}
	if !k.Since.IsZero() {
		text += ", that died at " + api.Time(k.Since).String() + " or later"
	}
	if !k.Until.IsZero() {
		text += ", that died before " + api.Time(k.Until).String()
	}
	return text
}

// changeDead starts the operation.
func (c *Console) changeDead(r *http.Request) (*page, error) {
	k, err := bulkOf(r)
	if err != nil {
		return nil, err
	}
	c.acts.Lock()
	defer c.acts.Unlock()
	form := sha256.Sum256([]byte(k.verb + " " + r.PostForm.Encode()))
	of, sent := c.sent[form]
	if !sent {
		if _, of, err = c.changeAll(r.Context(), &k, false); err != nil {
			return nil, err
		}
		if r.PostForm.Has(asked) {
			if len(c.sent) == maxSent {
				clear(c.sent)
			}
			c.sent[form] = of
		}
	}
	return see("/console/operations?did=" + k.verb + "#operation-" + of.String()), nil
}

// changeAll starts the operation of a change, or counts what matches.
func (c *Console) changeAll(ctx context.Context, k *bulk, dryRun bool) (matched int, operation api.ID, err error) {
	r := k.Request()
	r.Rate, r.DryRun = k.rate, dryRun
	var got api.Changed
	if k.verb == "discard" {
		got, err = c.center.DiscardDead(ctx, r)
	} else {
		got, err = c.center.RedriveDead(ctx, r)
	}
	matched, _, operation = got.Counts()
	return matched, operation, err
}

// asked is the field by which the forms of two pages differ that ask the same, so that one that is sent twice is known.
const asked = "asked"

// maxSent bounds how many forms are remembered.
const maxSent = 1000

// longestLiteral is the longest part of an error of a group that has no #.
func longestLiteral(text string) string {
	return slices.MaxFunc(strings.Split(text, "#"), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
}
