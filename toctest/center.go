package toctest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
)

// Tasks returns what the code under test needs of a center: it has the methods of client.Client, and returns errors. After Crash
// and Restart it must be asked for again, as by a program that starts again.
func (c *Center) Tasks() *app.Tasks { return c.App().Tasks() }

// App is the center itself, for all that the Center has no method for, like Pause. After Crash and Restart it is another one.
func (c *Center) App() *app.App { return c.node.Load().App }

// Client is a client of the center's HTTP API, for consumers that lease tasks and for code that takes a client.Client. It works
// after Crash and Restart, too.
func (c *Center) Client(options ...client.Option) *client.Client {
	transport := new(http.Transport)
	c.world.Net().Enter(transport)
	c.T.Cleanup(transport.CloseIdleConnections)
	return client.New("http://"+nodeName+":8080", append(options, client.WithHTTPClient(&http.Client{Transport: transport}))...)
}

// Serve starts an HTTP server in memory, for a webhook: host is its name, like "shop". It returns the base URL, "http://shop:80".
// The server ends with the test.
func (c *Center) Serve(host string, h http.Handler) (base string) {
	c.Helper()
	base, stop := c.world.Net().Serve(c, host+":80", "http/1.1", h)
	c.T.Cleanup(stop)
	return base
}

// Submit stores a task. An error fails the test.
func (c *Center) Submit(s client.Submit) client.Task {
	c.Helper()
	got, err := c.Tasks().Submit(c.Context(), s)
	if err != nil {
		c.Fatalf("submit of %s %s: %v", s.BizType, bizID(s), err)
	}
	return got.Task
}

func bizID(s client.Submit) string { return cmp.Or(s.BizKey, fmt.Sprint(s.BizID)) }

// Cancel cancels a pending task. An error fails the test.
func (c *Center) Cancel(id client.ID) {
	c.Helper()
	if err := c.Tasks().Cancel(c.Context(), uint64(id)); err != nil {
		c.Fatalf("cancel of task %s: %v\n%s", id, err, c.Why(id))
	}
}

// Reschedule changes a pending task. An error fails the test.
func (c *Center) Reschedule(id client.ID, change client.Change) client.Task {
	c.Helper()
	got, err := c.Tasks().Reschedule(c.Context(), uint64(id), change)
	if err != nil {
		c.Fatalf("reschedule of task %s: %v\n%s", id, err, c.Why(id))
	}
	return got
}

// Get reads a task. An error fails the test.
func (c *Center) Get(id client.ID) client.Task {
	c.Helper()
	got, err := c.Tasks().Get(c.Context(), uint64(id))
	if err != nil {
		c.Fatalf("look-up of task %s: %v", id, err)
	}
	return got
}

// Why is the story of a task: where it waits and what holds it, or what became of it, like the command toc why.
func (c *Center) Why(id client.ID) string {
	w, err := c.Tasks().Why(c.Context(), uint64(id))
	if err != nil {
		return fmt.Sprintf("task %s: %v", id, err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "task %s at %s: state %s, where %s", id, moment(time.Now()), w.State, w.Where)
	if next := w.Next.Time(); !next.IsZero() {
		fmt.Fprintf(&text, ", next %s", moment(next))
	}
	for _, because := range w.Because {
		fmt.Fprintf(&text, "\n  because %s", because)
	}
	for _, run := range w.FailedRuns {
		fmt.Fprintf(&text, "\n  failed run %d at %s: %s", run.Attempt, moment(run.At.Time()), run.Error)
	}
	return text.String()
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Now is the virtual time, in UTC.
func (c *Center) Now() time.Time { return time.Now().UTC() }

// Advance lets time pass, and waits until all that is due then has been done. One goroutine at a time may call it.
func (c *Center) Advance(d time.Duration) {
	c.Helper()
	if !c.time.TryLock() {
		c.Errorf("Advance(%s) while another Advance lets time pass: one goroutine of a test does that", d)
		return
	}
	defer c.time.Unlock()
	if d < 0 {
		c.Errorf("Advance(%s): time does not go back", d)
	}
	c.world.Advance(d)
	synctest.Wait()
}

// Fired returns the runs of a business type that have ended, in the order of their ends; of all types, if bizType is "". A consumer
// that leases tasks makes no run here.
func (c *Center) Fired(bizType string) []Ran {
	c.Helper()
	names := make(map[uint64]string)
	isThere := bizType == ""
	for _, b := range c.App().BizTypes() {
		names[uint64(b.ID)] = b.Name
		isThere = isThere || b.Name == bizType
	}
	if !isThere {
		c.Fatalf("there is no business type %q: there are %v", bizType, slices.Sorted(maps.Values(names)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Ran
	for _, r := range c.ran {
		if r.BizType = names[r.Task.BizType]; bizType == "" || r.BizType == bizType {
			list = append(list, r)
		}
	}
	return list
}

// runsOf returns the runs of a task that have ended.
func (c *Center) runsOf(id client.ID) []Ran {
	return slices.DeleteFunc(c.Fired(""), func(r Ran) bool { return r.Task.JobID != uint64(id) })
}

// Pending reads the tasks that wait or run, in the order of their times. An error fails the test.
func (c *Center) Pending() []client.Task {
	c.Helper()
	var list []client.Task
	for ask := (client.ListAll{Limit: 1000}); ; {
		page, err := c.Tasks().ListAll(c.Context(), ask)
		if err != nil {
			c.Fatalf("list of pending tasks: %v", err)
		}
		list = append(list, page.Tasks...)
		if ask.Cursor = page.NextCursor; ask.Cursor == "" {
			slices.SortStableFunc(list, func(a, b client.Task) int { return a.ActionTime.Time().Compare(b.ActionTime.Time()) })
			return list
		}
	}
}

// RequireFired fails the test unless a task was run and its last run returned no error. It returns that run. A run that a crash cut
// off counts only if there is no other.
func (c *Center) RequireFired(id client.ID) Ran {
	c.Helper()
	runs := c.runsOf(id)
	if len(runs) == 0 {
		c.Fatalf("task %s has not fired (a consumer that leases tasks makes no run here: look at the task's Status)\n%s", id, c.Why(id))
	}
	last := runs[len(runs)-1]
	for _, r := range runs {
		if !errors.Is(r.Err, ErrCrashed) {
			last = r
		}
	}
	if last.Err != nil {
		c.Fatalf("task %s has fired %d times, the last time without success: %v\n%s", id, len(runs), last.Err, c.Why(id))
	}
	return last
}

// RequireFiredAt is RequireFired with the time of the start of that run, to the millisecond.
func (c *Center) RequireFiredAt(id client.ID, at time.Time) Ran {
	c.Helper()
	last := c.RequireFired(id)
	if !last.Started.Truncate(time.Millisecond).Equal(at.Truncate(time.Millisecond)) {
		c.Fatalf("task %s has fired at %s, not at %s\n%s", id, moment(last.Started), moment(at), c.Why(id))
	}
	return last
}

// RequireNotFired fails the test if a task was run, with success or without, or if there is no such task. A run that is under way
// has not ended, and is not seen.
func (c *Center) RequireNotFired(id client.ID) {
	c.Helper()
	if len(c.hangs) == 0 { // else nobody can look
		c.Get(id)
	}
	if runs := c.runsOf(id); len(runs) > 0 {
		c.Fatalf("task %s has fired at %s: %v\n%s", id, moment(runs[0].Started), runs[0].Err, c.Why(id))
	}
}

// Crash ends the center like the end of its process, and starts it again: what it had only in memory is gone. The context of
// each run ends at once with the cause ErrCrashed; such a run is not recorded in the store and is run again, when the center starts.
// So a second Crash right after it cuts off that run, too.
func (c *Center) Crash() {
	c.Helper()
	c.mustNotHang("Crash")
	c.node.Load().Crash()
	synctest.Wait()
	c.start()
}

// start starts the center. A run that it starts at once has it already.
func (c *Center) start() {
	c.Helper()
	n := c.world.Launch(nodeName)
	c.node.Store(n)
	if err := n.Ready(context.Background()); err != nil {
		c.Fatalf("start of the center: %v", err)
	}
	synctest.Wait()
}

// mustNotHang fails a test whose center would wait for ever.
func (c *Center) mustNotHang(verb string) {
	c.Helper()
	if len(c.hangs) > 0 {
		c.Fatalf("%s while a database hangs: the center would wait for it, and nobody could call Mend; call Mend first", verb)
	}
}

// Restart stops the center in order, like SIGTERM, and starts it again.
func (c *Center) Restart() {
	c.Helper()
	c.mustNotHang("Restart")
	if err := c.stop(); err != nil {
		c.Fatal(err)
	}
	c.start()
}

// LoseRedis ends Redis with all that it has: until Mend it answers nothing, and then it is empty.
func (c *Center) LoseRedis() {
	c.world.SilenceRedis()
	c.world.FlushRedis()
}

// Hang makes a database answer nothing until Mend. The first is 0, and there is one unless WithConfig says more
// (store.databases).
func (c *Center) Hang(database int) {
	c.Helper()
	if n := c.world.Config(nodeName).Store.Databases; database < 0 || database >= n {
		c.Fatalf("database %d does not exist: there are %d, from 0 on", database, n)
	}
	c.hangs[database] = true
	c.world.HangDatabase(database)
}

// Mend ends LoseRedis and each Hang.
func (c *Center) Mend() {
	clear(c.hangs)
	c.world.MendAll()
}
