package transcript

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // to read the rows

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
	"github.com/timeoutcenter/toc/internal/testrig/audit"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/processor"
	"github.com/timeoutcenter/toc/sharding"
	"github.com/timeoutcenter/toc/store"
	"github.com/timeoutcenter/toc/task"
)

// bizType is the one business type.
const bizType = "orders"

// stage is where a transcript plays: a center, and who looks at it.
type stage struct {
	apart  time.Duration // between two steps
	t      *testing.T
	world  *virtual.World
	layout sharding.Layout
	db     *sql.DB
	http   *http.Client
	consul *api.Client // nil: the center is no cluster
	nodes  map[string]*virtual.Node
	before map[string]string // the state after the last step
	owners string            // of the partitions

	mu     sync.Mutex
	bizIDs map[string]uint64 // by the option biz, or the name of the task
	tasks  map[uint64]string // their names by job_id
	leases map[string]string // by the task's name, and by order-1/1, order-1/2 …
	works  []map[string]bool // by partition: the nodes that say it is theirs
	lives  map[string]int    // by node: its starts and ends
	lines  []string          // what has happened since the last step
}

func newStage(t *testing.T) *stage {
	return &stage{t: t, nodes: map[string]*virtual.Node{}, bizIDs: map[string]uint64{}, tasks: map[uint64]string{}, leases: map[string]string{}, lives: map[string]int{}}
}

// open makes the center.
func (s *stage) open(a args) {
	cluster := slices.Contains(a.words, "cluster")
	s.apart = a.duration(a.options["apart"])
	s.world = virtual.New(s.t, virtual.Config{Consul: cluster, HTTP: true, Reloads: true, Options: s.optionsOf, Configure: func(c *configs.Config) {
		b := configs.DefaultBizType()
		b.ID, b.Name, b.Mode, b.Processor = 1, bizType, a.options["mode"], "work"
		b.Timeout, b.Backoff.Min, b.Horizon = time.Minute, time.Second, 10*time.Minute
		if ttr := a.duration(a.options["pull"]); ttr > 0 {
			b.Processor, b.Pull.TTR = configs.ProcessorPull, ttr
		}
		number := func(key string, into *int) { _, _ = fmt.Sscan(a.options[key], into) }
		number("retries", &b.MaxRetries)
		number("in-flight", &b.Pull.MaxInFlight)
		if slices.Contains(a.words, "coalesce") {
			b.Coalesce = configs.CoalesceBizID
		}
		if drain := a.duration(a.options["drain"]); drain > 0 {
			c.Shutdown.Drain = drain
		}
		c.BizTypes = []configs.BizType{b}
	}})
	c := s.world.Config("reader")
	s.layout = sharding.Layout{Databases: c.Store.Databases, TablesPerDatabase: c.Store.TablesPerDatabase, Partitions: c.Cluster.Partitions}
	s.works = make([]map[string]bool, s.layout.Partitions)
	for p := range s.works {
		s.works[p] = map[string]bool{}
	}
	// Who meets a lock does not wait for it: that would be in real time.
	db, err := sql.Open("sqlite", strings.Replace(store.SQLiteDSN(c.Store.SQLite.Dir, 0, false), "busy_timeout%2810000%29", "busy_timeout%280%29", 1))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	s.db = db
	transport := &http.Transport{DialContext: s.world.Net().Host("caller").Dial}
	s.t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Transport: transport}
	if cluster {
		s.consul, err = api.NewClient(&api.Config{Address: c.Cluster.Consul.Address, Transport: transport})
		require.NoError(s.t, err)
	}
}

func (s *stage) optionsOf(node string) []app.Option {
	life := s.nextLife(node)
	options := []app.Option{app.WithAudit(func(partition int, owned bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lives[node] == life {
			s.works[partition][node] = owned
		}
	})}
	if s.world.Config(node).BizTypes[0].Processor == configs.ProcessorPull {
		return options
	}
	return append(options, app.WithProcessor("work", processor.Func(func(ctx context.Context, t task.Task) error { return s.run(ctx, node, t) })))
}

// nextLife forgets what a node said before.
func (s *stage) nextLife(node string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nodes := range s.works {
		delete(nodes, node)
	}
	s.lives[node]++
	return s.lives[node]
}

// run is a run of a task.
func (s *stage) run(ctx context.Context, node string, t task.Task) error {
	name, takes, fails := readAttribute(t.Attribute)
	late := ""
	if d := time.Since(t.ActionTime); d != 0 {
		if d > time.Second {
			d = d.Truncate(time.Second) // chance has a part in the rest
		}
		late = fmt.Sprintf(", %s late", d)
	}
	s.happens("%s runs %s%s", node, name, late)
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), virtual.ErrCrashed) {
				return ctx.Err()
			}
		}
		s.happens("%s ends its run of %s%s", node, name, because(ctx.Err()))
	}
	if t.Attempts < fails {
		return errors.New("the shop is closed")
	}
	return ctx.Err()
}

// readAttribute reads what the attribute of a task says: its name, how long a run takes, and how many of them fail.
func readAttribute(text string) (name string, takes time.Duration, fails int) {
	words := strings.SplitN(text, ",", 3)
	if len(words) < 3 {
		return "", 0, 0
	}
	takes, _ = time.ParseDuration(words[1])
	_, _ = fmt.Sscan(words[2], &fails)
	return words[0], takes, fails
}

// leased names the leases of an answer, and says what it has.
func (s *stage) leased(got client.Leased) string {
	if len(got.Tasks) == 0 {
		return "nothing"
	}
	var list []string
	for _, one := range got.Tasks {
		name := s.nameOf(uint64(one.Task.JobID))
		s.mu.Lock()
		n := 1
		for s.leases[fmt.Sprint(name, "/", n)] != "" {
			n++
		}
		s.leases[name], s.leases[fmt.Sprint(name, "/", n)] = one.Lease.String(), one.Lease.String()
		s.mu.Unlock()
		list = append(list, fmt.Sprintf("%s until %s, attempt %d", name, clock(one.ExpiresAt.Time()), one.Attempt))
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

func (s *stage) nameOf(id uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[id]
}

// happens notes an event.
func (s *stage) happens(format string, values ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, clock(time.Now())+" "+fmt.Sprintf(format, values...))
}

// clock shows a time to the second: the millisecond of a back-off is drawn by chance.
func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// news are the lines that a step prints: the events since the last one, then all state that has changed.
func (s *stage) news(passed bool) []string {
	if s.world == nil {
		return nil
	}
	now := map[string]string{}
	s.readRows(now)
	s.readSlots(now)
	if passed && s.consul != nil {
		s.readOwners()
	}
	now["partitions"] = s.owners
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	slices.Sort(lines)
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if now[what] != s.before[what] {
			lines = append(lines, what+": "+now[what])
		}
	}
	s.before = now
	return lines
}

// readRows reads what the database has of each task.
func (s *stage) readRows(now map[string]string) {
	rows, err := s.db.Query(audit.EachTable(s.layout.TablesPerDatabase,
		"SELECT job_id, attribute, status, action_time, attempts, COALESCE(lease, 0), last_error FROM %s"))
	if err != nil {
		return // no node has made the tables yet
	}
	defer rows.Close()
	for rows.Next() {
		var id, lease uint64
		var status task.Status
		var attribute, at, lastError string
		var attempts int
		require.NoError(s.t, rows.Scan(&id, &attribute, &status, &at, &attempts, &lease, &lastError))
		name, _, _ := readAttribute(attribute)
		s.mu.Lock()
		s.tasks[id] = name
		s.mu.Unlock()
		text := status.String()
		switch {
		case status == task.Pending && (&task.Task{Lease: lease, ActionTime: moment(s.t, at)}).HasLease():
			text += ", leased until " + at[11:19]
		case status == task.Pending:
			text += ", due " + at[11:19]
		}
		if attempts > 0 {
			text += fmt.Sprint(", attempts ", attempts)
		}
		if lastError != "" {
			text += ", " + lastError
		}
		now[name] = text
	}
	require.NoError(s.t, rows.Err())
}

// moment reads a time as SQLite has it.
func moment(t *testing.T, at string) time.Time {
	found, err := time.Parse("2006-01-02 15:04:05", at) // and with milliseconds, if there are any
	require.NoError(t, err)
	return found
}

// readSlots adds where each task is in Redis.
func (s *stage) readSlots(now map[string]string) {
	for p := range s.layout.Partitions {
		slot := fmt.Sprint(bizType, "_", p)
		for key, says := range map[string]string{slot: "store queue", "prepare_{" + slot + "}": "prepare queue until", "dead_{" + slot + "}": "dead queue since"} {
			members, _ := s.world.Redis().ZMembers(key) // an error: there is none. (SortedSet returns the server's own map, unlocked.)
			for _, member := range members {
				var id uint64
				if _, err := fmt.Sscan(member, &id); err != nil || s.nameOf(id) == "" {
					continue // the dummy that keeps a small set a skiplist
				}
				score, err := s.world.Redis().ZScore(key, member)
				require.NoError(s.t, err)
				ms, tries := int64(score)/1000, int64(score)%1000
				if strings.HasPrefix(key, "dead") {
					ms, tries = int64(score), 0
				}
				text := says + " " + clock(time.UnixMilli(ms))
				if tries > 0 {
					text += fmt.Sprint(", tries ", tries)
				}
				now[s.nameOf(id)] += " | " + text
			}
		}
	}
}

// readOwners shows who has the lock of each partition in Consul, and who works it by its own word. How long a hand-over takes
// is left to chance, so it is asked only when time has passed.
func (s *stage) readOwners() {
	pairs, _, err := s.consul.KV().List(s.world.Config("any").Cluster.Consul.Prefix+"/partitions/", nil)
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	locks, works := strings.Fields(strings.Repeat("- ", len(s.works))), strings.Fields(strings.Repeat("- ", len(s.works)))
	for _, pair := range pairs {
		var p int
		if _, err := fmt.Sscan(pair.Key[strings.LastIndex(pair.Key, "/")+1:], &p); err == nil && pair.Session != "" {
			locks[p] = string(pair.Value)
		}
	}
	for p, nodes := range s.works {
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			if nodes[name] {
				works[p] = strings.TrimPrefix(works[p]+name, "-")
			}
		}
	}
	s.owners = "locked by " + strings.Join(locks, " ")
	if !slices.Equal(locks, works) {
		s.owners += ", worked by " + strings.Join(works, " ")
	}
}
