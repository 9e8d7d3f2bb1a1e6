package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/app/metrics"
	"github.com/timeoutcenter/toc/task"
	"github.com/timeoutcenter/toc/worker"
)

type typesBody struct {
	Filter, Sort       string
	Paused             bool
	Types              []typeRow
	All, Matching      int
	First              int // number of the first row that is shown
	Previous, Next     string
	PausedCount, Nodes int
	Silent             int
}

// typeRow is a business type with its load on all nodes.
type typeRow struct {
	api.BizType
	Load   typeLoad
	Limits string
}

func (c *Console) types(r *http.Request) (*page, error) {
	f := formOf(r)
	b := &typesBody{Filter: f.text("q"), Sort: f.text("sort"), Paused: f.text("paused") != ""}
	at := f.number("page", 1, 1_000_000, 1)
	if f.err != nil {
		return nil, f.err
	}
	p, err := c.look(r.Context())
	if err != nil {
		return nil, err
	}
	types, err := c.cfg.Status.BizTypes(r.Context())
	if err != nil {
		return nil, err
	}
	b.All, b.PausedCount, b.Nodes, b.Silent = len(types), len(p.Paused), len(p.Nodes), p.Silent
	loads := make(map[string]typeLoad, len(p.Types))
	for _, l := range p.Types {
		loads[l.Name] = l
	}
	var rows []typeRow
	for _, t := range types {
		if strings.Contains(t.Name, b.Filter) && (!b.Paused || t.Paused != nil) {
			rows = append(rows, typeRow{t, loads[t.Name], limitsOf(t)})
		}
	}
	slices.SortFunc(rows, func(x, y typeRow) int {
		if b.Sort == "overdue" {
			return cmp.Or(y.Load.Overdue-x.Load.Overdue, y.Load.Running-x.Load.Running, cmp.Compare(x.Name, y.Name))
		}
		return cmp.Compare(x.Name, y.Name)
	})
	b.Matching = len(rows)
	begin := min((at-1)*rowsPerPage, len(rows))
	end := min(begin+rowsPerPage, len(rows))
	b.Types, b.First = rows[begin:end], begin+1
	if begin > 0 {
		b.Previous = b.link(at - 1)
	}
	if end < len(rows) {
		b.Next = b.link(at + 1)
	}
	return &page{Name: "types", Title: "Types", Body: b}, nil
}

func (b *typesBody) link(at int) string {
	paused := ""
	if b.Paused {
		paused = "yes"
	}
	return "/console/types" + query("q", b.Filter, "sort", b.Sort, "paused", paused, "page", fmt.Sprint(at))
}

// Last is the number of the last row that is shown.
func (b *typesBody) Last() int { return b.First + len(b.Types) - 1 }

// limitsOf says the limits of a business type in a few words.
func limitsOf(t api.BizType) string {
	var list []string
	if t.RateLimit > 0 {
		list = append(list, num(t.RateLimit)+"/s")
	}
	if t.MaxRunning > 0 {
		list = append(list, num(t.MaxRunning)+" at once")
	}
	if t.CatchUp > 0 {
		list = append(list, "catch up "+num(t.CatchUp)+"/s")
	}
	return strings.Join(list, ", ")
}

type typeBody struct {
	api.BizType
	Kind    task.BizType
	Facts   [][2]string
	Nodes   []nodeLoad
	Load    typeLoad
	Node    string // whose counts these are
	Counted metrics.OfType
	Submits string
	Runs    [][2]string
	Parts   []partRow
	Words   string
}

type nodeLoad struct {
	Name string
	api.PulseType
	Silent bool
}

// partRow is a part of lateness. Its share is that of the mean, in percent.
type partRow struct {
	Name, Explain, Half, Most, Mean string
	Share                           int
}

var partWords = map[string]string{
	"find":  "until the engine had it in memory",
	"check": "until its row was read again",
	"wait":  "until a worker took it, and until its limits let it start",
	"start": "until the processor was called",
}

// didType says what was done to a business type.
var didType = map[string]string{
	"pause":  "The type is paused. Its tasks stay pending, and submits are taken. All nodes follow within two seconds.",
	"resume": "The type is resumed. What has become due meanwhile starts now.",
}

func (c *Console) typeBody(ctx context.Context, name string) (*typeBody, error) {
	kind, ok := c.center.Types().ByName(name)
	if !ok {
		return nil, task.ErrNotFound
	}
	all, err := c.cfg.Status.BizTypes(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(t api.BizType) bool { return t.Name == name })
	if at < 0 {
		return nil, task.ErrNotFound
	}
	p, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	b := &typeBody{BizType: all[at], Kind: kind, Node: c.cfg.Node, Counted: c.cfg.Status.OfType(kind)}
	for _, l := range p.Types {
		if l.Name == name {
			b.Load = l
		}
	}
	for _, n := range p.Nodes {
		row := nodeLoad{Name: n.Name, Silent: n.Err != nil}
		for _, t := range n.BizTypes {
			if t.Name == name {
				row.PulseType = t
			}
		}
		b.Nodes = append(b.Nodes, row)
	}
	b.facts()
	b.count()
	return b, nil
}

func (b *typeBody) facts() {
	k := &b.Kind
	add := func(name, value string) { b.Facts = append(b.Facts, [2]string{name, value}) }
	engine := "scan: the tables are read at each tick"
	if k.Mode == task.ModeRedis {
		engine = "redis: a slot timer"
	}
	add("Engine", engine)
	add("Processor", k.Processor)
	add("id", b.ID.String())
	none := func(n int, unit string) string {
		if n == 0 {
			return "no limit"
		}
		return num(n) + unit
	}
	add("Starts a second", none(k.RateLimit, ""))
	add("Runs at once", none(k.MaxRunning, " on all nodes"))
	add("Catch up", none(k.CatchUp, " a second"))
	if k.Pull {
		add("Time to run of a lease", span(k.TTR))
		add("Leases at once", num(k.MaxInFlight)+" on each node")
	} else {
		add("Workers", num(k.Workers)+" on each node")
		add("Time-out of a run", span(k.Timeout))
	}
	add("Retries", fmt.Sprintf("%d, after %s to %s", k.MaxRetries, span(k.BackoffMin), span(k.BackoffMax)))
	if k.ExpireAfter > 0 {
		add("Too late after", span(k.ExpireAfter)+", then "+cmp.Or(string(k.OnExpire), "dead"))
	}
	if k.Coalesce {
		add("Coalesce", "of the overdue tasks of a biz_id the latest runs")
	}
}

func (b *typeBody) count() {
	n := &b.Counted
	b.Submits = num(n.Submitted)
	for _, o := range worker.Outcomes {
		b.Runs = append(b.Runs, [2]string{string(o), num(n.Runs[o])})
	}
	if n.Late.Count == 0 {
		b.Words = "No run has started on this node since it was started itself."
		return
	}
	row := func(name, explain string, d metrics.Distribution) partRow {
		share := 0
		if n.Late.Sum > 0 {
			share = int(math.Round(100 * d.Sum / n.Late.Sum))
		}
		return partRow{name, explain, orNone(quantileOf(d, .5)), orNone(quantileOf(d, .99)), seconds(d.Sum / float64(d.Count)), share}
	}
	names := metrics.LatenessParts()
	most := 0
	for i, d := range n.Parts {
		explain := partWords[names[i]]
		if b.Kind.Pull {
			explain = strings.Replace(explain, "a worker took it", "a consumer asked", 1)
		}
		b.Parts = append(b.Parts, row(names[i], explain, d))
		if b.Parts[i].Share > b.Parts[most].Share {
			most = i
		}
	}
	b.Parts = append(b.Parts, row("all", "lateness: the start of the run minus action_time", n.Late))
	b.Words = fmt.Sprintf("Of %s, half started within %s of their time, and 99 in 100 within %s. The part to blame most is %s: %s.",
		plural(int(n.Late.Count), "run", "runs"), orNone(quantileOf(n.Late, .5)), orNone(quantileOf(n.Late,
			.99)), b.Parts[most].Name, b.Parts[most].Explain)
}

// quantileOf estimates a quantile of a histogram, linear in its bucket.
func quantileOf(d metrics.Distribution, q float64) float64 {
	if d.Count == 0 {
		return math.NaN()
	}
	rank, bound, below := q*float64(d.Count), 0.0, uint64(0)
	for i, upper := range d.Bounds {
		if n := d.Below[i]; float64(n) >= rank && n > below {
			return bound + (upper-bound)*(rank-float64(below))/float64(n-below)
		}
		bound, below = upper, d.Below[i]
	}
	return bound
}

func (c *Console) pause(r *http.Request) (*page, error) {
	f := formOf(r)
	f.only("reason", "until", "for")
	ask := api.AskPause{Reason: f.text("reason"), Until: f.time("until")}
	if d := f.duration("for"); d > 0 && ask.Until.IsZero() {
		ask.Until = c.cfg.Now().Add(d)
	}
	if f.err != nil {
		return c.typeWrong(r, f.err)
	}
	if _, err := c.center.Pause(r.Context(), r.PathValue("name"), ask); err != nil {
		return c.typeWrong(r, err)
	}
	return see(typePath(r.PathValue("name")) + "?did=pause"), nil
}

func (c *Console) resume(r *http.Request) (*page, error) {
	if _, err := c.center.Resume(r.Context(), r.PathValue("name")); err != nil {
		return c.typeWrong(r, err)
	}
	return see(typePath(r.PathValue("name")) + "?did=resume"), nil
}

// retry runs the failing tasks of a business type now.
func (c *Console) retry(r *http.Request) (*page, error) {
	f := formOf(r)
	f.only("rate")
	rate := f.rate("rate")
	if f.err != nil {
		return c.typeWrong(r, f.err)
	}
	started, err := c.center.Retry(r.Context(), r.PathValue("name"), rate)
	if err != nil {
		return c.typeWrong(r, err)
	}
	return see("/console/operations?did=retry#operation-" + started.Operation.String()), nil
}

func typePath(name string) string { return "/console/types/" + url.PathEscape(name) }

// typeWrong is the page of a business type with what went wrong.
func (c *Console) typeWrong(r *http.Request, err error) (*page, error) {
	p, unread := c.showLive("type")(r)
	if unread == nil {
		p.Did = ""
	}
	return p, err
}
