package transcript

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/virtual"
	"github.com/timeoutcenter/toc/sharding"
)

// args are the arguments of a step: words, and options like in=5s.
type args struct {
	s       *stage
	words   []string
	options map[string]string
}

// do does one step and returns its output.
func (s *stage) do(step string) []string {
	s.t.Helper()
	a := args{s: s, options: map[string]string{}}
	words := strings.Fields(step)
	for _, word := range words[1:] {
		if key, value, ok := strings.Cut(word, "="); ok && words[0] != "sql" {
			a.options[key] = value
		} else {
			a.words = append(a.words, word)
		}
	}
	verb := verbs[words[0]]
	if verb == nil {
		s.t.Fatalf("%s: there is no such verb", step)
	}
	verb(a)
	synctest.Wait()
	if s.apart > 0 {
		s.world.Wait(s.apart)
	}
	return s.news(words[0] == "advance")
}

var verbs = map[string]func(a args){
	// center [cluster] [coalesce] [mode=redis] [pull=10s] [retries=2] [in-flight=2] [drain=30s] [apart=3ms] says what the center is like. Steps are apart by a
	// time where one would meet what the center does at that instant by itself.
	"center": func(a args) { a.s.open(a) },
	// start NODE … starts nodes.
	"start": func(a args) {
		for _, name := range a.words {
			a.s.nodes[name] = a.s.world.Start(name)
		}
	},
	// stop NODE ends a node as SIGTERM does. The next steps do not wait for it.
	"stop": func(a args) {
		n := a.node(0)
		go func() {
			err := n.Shutdown()
			a.s.nextLife(n.Name)
			a.s.happens("%s has stopped%s", n.Name, because(err))
		}()
	},
	// crash NODE ends a node as kill -9 does.
	"crash": func(a args) { a.node(0).Crash(); a.s.nextLife(a.words[0]) },
	// cut A B lets nothing pass between two hosts: nodes, consul, redis, database-0. mend A B ends it.
	"cut":  func(a args) { a.s.world.Cut(a.words[0], a.words[1]) },
	"mend": func(a args) { a.s.world.Mend(a.words[0], a.words[1]) },
	// freeze NODE makes all input and output of a node stand still; thaw NODE lets it go on.
	"freeze": func(a args) { a.node(0).Stop() },
	"thaw":   func(a args) { a.node(0).Resume() },
	// end-session NODE ends the session of a node in Consul.
	"end-session": func(a args) { a.s.world.EndSession(a.words[0]) },
	// skew NODE DURATION makes the clock of a node wrong by a duration, 0s right again.
	"skew": func(a args) { a.node(0).Skew(a.duration(a.words[1])) },
	// flush redis loses all that Redis has.
	"flush": func(a args) { a.s.world.FlushRedis() },
	// switch MODE changes the engine of the business type in the configuration file.
	"switch": func(a args) { a.s.world.SwitchEngine(bizType, a.words[0]) },
	// advance DURATION lets time pass.
	"advance": func(a args) { a.s.world.Wait(a.duration(a.words[0])) },
	// submit TASK in=5s [biz=order] [partition=0] [timeout=1s] [takes=3s] [fails=1] submits a task. Tasks with the same biz have the
	// same biz_id. Its runs take that long, and that many of them fail.
	"submit": func(a args) {
		partition, _ := strconv.Atoi(a.options["partition"])
		biz := cmp.Or(a.options["biz"], a.words[0])
		bizID, known := a.s.bizIDs[biz]
		if !known {
			bizID = uint64(len(a.s.bizIDs)*a.s.layout.Partitions + partition)
			a.s.bizIDs[biz] = bizID
		}
		q := client.Submit{BizType: bizType, BizID: bizID, Delay: a.duration(a.options["in"]), Timeout: a.duration(a.options["timeout"]),
			Attribute: strings.Join([]string{a.words[0], a.options["takes"], a.options["fails"]}, ",")}
		q.Now = q.Delay == 0
		a.ask(func(ctx context.Context, api *client.Client) (string, error) {
			_, err := api.Submit(ctx, q)
			return "", err
		})
	},
	"cancel": onTask(func(ctx context.Context, api *client.Client, id uint64, _ time.Duration) error {
		return api.Cancel(ctx, id)
	}),
	"reschedule": onTask(func(ctx context.Context, api *client.Client, id uint64, in time.Duration) error {
		_, err := api.Reschedule(ctx, id, client.Change{Delay: &in})
		return err
	}),
	"redrive": onTask(func(ctx context.Context, api *client.Client, id uint64, _ time.Duration) error {
		_, err := api.Redrive(ctx, id)
		return err
	}),
	"discard-dead": func(a args) {
		a.ask(func(ctx context.Context, api *client.Client) (string, error) {
			_, err := api.DiscardDead(ctx, client.DiscardDead{BizType: bizType})
			return "", err
		})
	},
	// members asks a node who owns what.
	"members": func(a args) {
		a.ask(func(ctx context.Context, api *client.Client) (string, error) {
			got, err := api.Cluster(ctx)
			var list []string
			for _, n := range got.Nodes {
				list = append(list, fmt.Sprint(n.Name, " ", n.Partitions))
			}
			return strings.Join(list, ", "), err
		})
	},
	// ready asks a node what is wrong with the center.
	"ready": func(a args) {
		a.options["at"] = a.words[0]
		a.ask(func(ctx context.Context, _ *client.Client) (string, error) {
			answer, err := a.s.http.Get("http://" + a.words[0] + ":8080/readyz")
			if err != nil {
				return "", err
			}
			defer answer.Body.Close()
			var got struct{ Degraded []string }
			err = json.NewDecoder(answer.Body).Decode(&got)
			trouble := lengthy.ReplaceAllStringFunc(strings.Join(got.Degraded, "; "), func(text string) string {
				d, err := time.ParseDuration(text)
				a.must(err)
				return d.Round(time.Second).String() // a clock is read to the millisecond
			})
			return cmp.Or(trouble, "nothing is wrong"), err
		})
	},
	"why": func(a args) {
		id := a.task()
		a.ask(func(ctx context.Context, api *client.Client) (string, error) {
			got, err := api.Why(ctx, id)
			if err != nil {
				return "", err
			}
			return got.Where + ": " + got.Because[0], nil
		})
	},
	// lease NODE [max=1] [wait=10s] [ttr=30s] asks a node for tasks, as a consumer does. The next steps do not wait for the answer.
	"lease": func(a args) {
		a.options["at"] = a.words[0]
		q := client.AskLease{Wait: a.duration(a.options["wait"]), TTR: a.duration(a.options["ttr"])}
		q.Max, _ = strconv.Atoi(a.options["max"])
		a.ask(func(ctx context.Context, api *client.Client) (string, error) {
			got, err := api.Lease(ctx, bizType, q)
			for again := 0; q.Wait == 0 && len(got.Tasks) == 0 && err == nil && again < 2; again++ {
				got, err = api.Lease(ctx, bizType, q) // without wait a node gives up soon on rows that it must read again
			}
			return a.s.leased(got), err
		})
	},
	// ack, nack, extend, reject and release TASK [after=5s] [ttr=30s] [error=text] settle the last lease of a task; order-1/1 is
	// the first lease of order-1.
	"ack": settle(client.Ack), "nack": settle(client.Nack), "extend": settle(client.Extend), "reject": settle(client.Reject), "release": settle(client.Release),
	// sql TASK SET changes a row by hand: sql order-1 attempts = 2. now() is the time.
	"sql": func(a args) {
		id := a.task()
		set := strings.ReplaceAll(strings.Join(a.words[1:], " "), "now()", time.Now().UTC().Format("'2006-01-02 15:04:05.000'"))
		shard, _ := a.s.layout.ShardOf(id)
		_, err := a.s.db.Exec("UPDATE "+sharding.TableName(a.s.layout.Table(shard))+" SET "+set+" WHERE job_id = ?", id)
		a.must(err)
	},
}

// onTask makes a verb of a call that changes a task, perhaps to a time from now.
func onTask(do func(ctx context.Context, api *client.Client, id uint64, in time.Duration) error) func(a args) {
	return func(a args) {
		id, in := a.task(), a.duration(a.options["in"])
		a.ask(func(ctx context.Context, api *client.Client) (string, error) { return "", do(ctx, api, id, in) })
	}
}

func settle(do api.Do) func(a args) {
	return func(a args) {
		q := client.Settlement{Lease: cmp.Or(a.s.leases[a.words[0]], a.words[0]), Do: do, TTR: api.Duration(a.duration(a.options["ttr"])), Error: a.options["error"]}
		if after, ok := a.options["after"]; ok {
			q.RetryAfter = new(api.Duration(a.duration(after)))
		}
		a.ask(func(ctx context.Context, api *client.Client) (string, error) {
			got, err := api.Settle(ctx, q)
			if err != nil {
				return "", err
			}
			return got[0].Result, nil
		})
	}
}

// lengthy finds durations of a minute or more.
var lengthy = regexp.MustCompile(`\b(\d+h)?\d+m\d+(\.\d+)?s\b`)

// jobID finds the ids in texts for people.
var jobID = regexp.MustCompile(`\b\d{15,}\b`)

// ask asks a node, at=NODE or the first one, as a caller does. What it answers is news.
func (a args) ask(question func(ctx context.Context, api *client.Client) (string, error)) {
	at := a.options["at"]
	if at == "" {
		at = a.s.world.Nodes()[0].Name
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		answer, err := question(context.Background(), client.New("http://"+at+":8080", client.WithHTTPClient(a.s.http)))
		switch {
		case err != nil:
			a.s.happens("%s refuses: %s", at, jobID.ReplaceAllString(err.Error(), "N"))
		case answer != "":
			a.s.happens("%s answers: %s", at, answer)
		}
	}()
	if a.options["wait"] == "" {
		select {
		case <-answered:
		case <-time.After(400 * time.Millisecond): // it comes with a later step
		}
	}
}

func (a args) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	a.must(err)
	return d
}

func (a args) must(err error) {
	if err != nil {
		a.s.t.Fatal(err)
	}
}

func (a args) node(i int) *virtual.Node { return a.s.nodes[a.words[i]] }

// task is the job_id of the task that is named first.
func (a args) task() uint64 {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for id, name := range a.s.tasks {
		if name == a.words[0] {
			return id
		}
	}
	a.s.t.Fatalf("there is no %s", a.words[0])
	return 0
}
