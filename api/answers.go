package api

import (
	"encoding/json"
	"strconv"

	"github.com/timeoutcenter/toc/queue/limits"
	"github.com/timeoutcenter/toc/task"
)

// BatchAnswer answers a batch: one result a task, in order.
type BatchAnswer struct {
	Results []BatchResult `json:"results" nullable:"false"`
}

// BatchResult is what became of one task of a batch: a job_id, or an error; an answer if that was asked for.
type BatchResult struct {
	JobID     ID          `json:"job_id,omitzero" doc:"Id of the task." example:"413351953711104"`
	Duplicate bool        `json:"duplicate,omitempty" doc:"The dedup_key was known: job_id is the first task's, which is unchanged, or moved if the task asked for that."`
	Err       *BatchError `json:"error,omitempty" doc:"Why this task was not stored."` // nil: it is stored
	// Answer is of a batch with Full, and stands for all of the above.
	Answer *SubmitAnswer `json:"answer,omitempty" doc:"With full, and instead of all else: what POST /v1/tasks would have answered."`
}

// SubmitAnswer is the answer of POST /v1/tasks to one task of a batch: a task, or a problem.
type SubmitAnswer struct {
	Status     int      `json:"status" doc:"Of HTTP. 201: the task is stored. 200: the dedup_key was known." example:"201"`
	ETag       string   `json:"etag,omitempty" doc:"The header ETag." example:"\"ys2jcA5Gxu2UQyFi\""`
	RetryAfter int      `json:"retry_after,omitempty" doc:"The header Retry-After, in seconds." example:"1"`
	Task       *Task    `json:"task,omitempty" doc:"The task, where the status is 200 or 201."`
	Problem    *Problem `json:"problem,omitempty" doc:"Why the task was not stored."`
}

// AppendJSON appends a as JSON to dst; see Task.AppendJSON.
func (a BatchAnswer) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"results":[`...)
	for i := range a.Results {
		if i > 0 {
			dst = append(dst, ',')
		}
		r := a.Results[i]
		switch {
		case r.Answer != nil && r.Answer.Task != nil:
			dst = strconv.AppendInt(append(dst, `{"answer":{"status":`...), int64(r.Answer.Status), 10)
			dst = appendString(append(dst, `,"etag":`...), r.Answer.ETag)
			dst = append(r.Answer.Task.AppendJSON(append(dst, `,"task":`...)), `}}`...)
		case r.Answer == nil && r.Err == nil && !r.Duplicate && r.JobID != 0:
			dst = append(r.JobID.appendJSON(append(dst, `{"job_id":`...)), '}')
		default:
			text, _ := json.Marshal(r) // it holds strings and numbers
			dst = append(dst, text...)
		}
	}
	return append(dst, `]}`...)
}

// BatchError says why one task of a batch was not stored.
type BatchError struct {
	Field   string `json:"field" doc:"The field that is wrong; empty if none is." example:"biz_type"`
	Message string `json:"message" doc:"What would be right."`
	Outcome string `json:"outcome,omitempty" enum:"already_processed,already_cancelled,dead,running" doc:"Why the first task could not be moved."`
	Retry   bool   `json:"retry,omitempty" doc:"Nothing is wrong with the task: submit it again."`
	// Cause is the error itself, in the process of the center.
	Cause error `json:"-"`
}

// Page is a part of a list of tasks.
type Page struct {
	Tasks      []Task `json:"tasks" nullable:"false"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Asks for the next page. Left out on the last one."`
}

// Cancelled answers a cancel. Its outcome is OutcomeCancelled.
type Cancelled struct {
	Outcome string `json:"outcome" enum:"cancelled"`
}

// OutcomeCancelled says that a task never fires.
const OutcomeCancelled = "cancelled"

// Changed is what became of a change of many tasks.
type Changed interface {
	// Counts are how many tasks matched, how many of them were changed, and the operation that goes on to change them; 0: none does.
	Counts() (matched, changed int, operation ID)
}

// Redriven answers a redrive of many tasks.
type Redriven struct {
	Matched   int `json:"matched" doc:"Dead tasks that match, whatever the limit."`
	Redriven  int `json:"redriven" doc:"Of those, put back to pending; 0 in a dry run, and with a rate."`
	Operation ID  `json:"operation,omitzero" doc:"With a rate: the operation that changes them."`
}

// Counts implements Changed.
func (r Redriven) Counts() (matched, changed int, operation ID) {
	return r.Matched, r.Redriven, r.Operation
}

// Discarded answers a discard of many tasks.
type Discarded struct {
	Matched   int `json:"matched" doc:"Dead tasks that match, whatever the limit."`
	Discarded int `json:"discarded" doc:"Of those, cancelled; 0 in a dry run, and with a rate."`
	Operation ID  `json:"operation,omitzero" doc:"With a rate: the operation that changes them."`
}

// Counts implements Changed.
func (r Discarded) Counts() (matched, changed int, operation ID) {
	return r.Matched, r.Discarded, r.Operation
}

// Forecast is how many tasks are due when.
type Forecast struct {
	AsOf        Time        `json:"as_of" doc:"When they were counted, RFC 3339."`
	StepSeconds int         `json:"step_seconds" doc:"The length of a bucket." example:"60"`
	Buckets     []DueBucket `json:"buckets" nullable:"false" doc:"Those with tasks, in the order of time and business type."`
	Crowded     []DueSecond `json:"crowded" nullable:"false" doc:"The ten seconds with the most tasks, at least ten each; the most crowded first."`
	Estimated   bool        `json:"estimated,omitempty" doc:"There are so many tasks that those of some tables stand for all."`
}

// DueBucket is a part of a forecast.
type DueBucket struct {
	At      Time   `json:"at" doc:"When the bucket begins, a multiple of the step in UTC; RFC 3339."`
	BizType string `json:"biz_type" example:"order_close"`
	Due     int    `json:"due" doc:"How many pending tasks are due in it." example:"250"`
}

// DueSecond is a crowded second of a forecast.
type DueSecond struct {
	Second  Time   `json:"second" doc:"RFC 3339."`
	BizType string `json:"biz_type" example:"order_close"`
	Due     int    `json:"due" doc:"How many pending tasks are due in it." example:"250"`
}

// Retried is what became of a retry of the failing tasks of a business type.
type Retried struct {
	Matched   int `json:"matched" doc:"Pending tasks that had failed and would have run again later." example:"341"`
	Retried   int `json:"retried" doc:"Of those, the ones that run now." example:"341"`
	Operation ID  `json:"operation,omitzero" doc:"The operation that goes on to retry them." example:"1886427354112000001"`
}

// Counts implements Changed.
func (r Retried) Counts() (matched, changed int, operation ID) {
	return r.Matched, r.Retried, r.Operation
}

// DeadGroups sums up dead tasks by their error.
type DeadGroups struct {
	Groups  []DeadGroup `json:"groups" nullable:"false" doc:"The largest first; at most 1000."`
	Partial bool        `json:"partial,omitempty" doc:"There are more groups than these, or so many dead tasks that the counts are estimated from some of the tables."`
}

// DeadGroup is the dead tasks of a business type that died of the same error.
type DeadGroup struct {
	BizType string `json:"biz_type" doc:"Name of the business type, or its number if it is not configured." example:"order_close"`
	Error   string `json:"error" doc:"The last_error, with # instead of numbers and ids, but for addresses and HTTP statuses; at most 160 characters of it." example:"order # is locked"`
	Count   int    `json:"count" doc:"How many tasks." example:"250"`
	Oldest  Time   `json:"oldest" doc:"The first death, RFC 3339."`
	Newest  Time   `json:"newest" doc:"The last death, RFC 3339."`
	JobID   ID     `json:"job_id" doc:"One of the tasks." example:"413351953711104"`
}

// Operations is a list of operations.
type Operations struct {
	Operations []Operation `json:"operations" nullable:"false" doc:"The latest first."`
}

// Operation is a redrive or a discard of dead tasks at a rate, or a retry of failing ones.
type Operation struct {
	ID      ID              `json:"id" doc:"Its id." example:"413351953711104"`
	Kind    string          `json:"kind" enum:"redrive,discard,retry,undo" doc:"What it does."`
	Undoes  ID              `json:"undoes,omitzero" doc:"Of an undo: the operation that it takes back." example:"413351953711104"`
	By      string          `json:"by" doc:"Who has started it." example:"api"`
	Filter  OperationFilter `json:"filter" doc:"Which dead tasks: those that match and died before it started. Of a retry: the pending tasks of the business type that had failed then."`
	Rate    float64         `json:"rate" doc:"Tasks a second, over the whole cluster; 0: an undo, up to 1,000 on each node." example:"50"`
	State   string          `json:"state" enum:"running,done,stopped" doc:"How it stands."`
	Matched int             `json:"matched" doc:"Dead tasks that matched when it started, whatever the limit." example:"250"`
	Done    int             `json:"done" doc:"Tasks that it has redriven, discarded, retried or made dead again." example:"100"`
	Skipped int             `json:"skipped" doc:"Tasks that somebody else changed in the moment in which it was about to. Of an undo: those that run, or have changed since." example:"0"`
	Started Time            `json:"started" doc:"RFC 3339."`
	Ended   Time            `json:"ended,omitzero" doc:"RFC 3339. Left out: it runs."`
}

// OperationFilter is what was asked for.
type OperationFilter struct {
	BizType string `json:"biz_type,omitempty" doc:"Name of the business type; left out: all." example:"order_close"`
	Error   string `json:"error,omitempty" doc:"A part of last_error."`
	Since   Time   `json:"since,omitzero" doc:"Died at this time or later, RFC 3339."`
	Until   Time   `json:"until,omitzero" doc:"Died before this time, RFC 3339."`
	Limit   int    `json:"limit,omitempty" doc:"At most this many."`
}

// AuditPage is a part of the audit.
type AuditPage struct {
	Entries    []AuditEntry `json:"entries" nullable:"false" doc:"The latest first."`
	NextCursor string       `json:"next_cursor,omitempty" doc:"Asks for the next page. Left out on the last one."`
}

// AuditEntry is who did what.
type AuditEntry struct {
	At     Time   `json:"at" doc:"When, RFC 3339."`
	Actor  string `json:"actor" doc:"Who." example:"api"`
	Action string `json:"action" doc:"What." example:"redrive"`
	Target string `json:"target" doc:"To what: a task's job_id, or the name of a business type; empty: all." example:"order_close"`
	Count  int    `json:"count" doc:"How many tasks it changed." example:"250"`
	Detail string `json:"detail" doc:"More of the request, as JSON; may be empty." example:"{\"error\":\"is locked\"}"`
}

// ExchangeAnswer is how a node is, and what it gives of its limits.
type ExchangeAnswer struct {
	Node       string         `json:"node,omitempty" doc:"Name of the node that answers." example:"node-1"`
	Now        Time           `json:"now,omitzero" doc:"The clock of the node that answers. Nodes compare theirs by it." example:"2026-01-02T15:04:05.000Z"`
	Grants     []limits.Grant `json:"grants" nullable:"false" doc:"Of each business type that was asked for, that this node knows and that has limits."`
	Unanswered []ID           `json:"unanswered,omitempty" nullable:"false" doc:"The numbers of the questions for leases that this node has asked the asking one and that have no answer." example:"[\"12\"]"`
	BizTypes   []BizType      `json:"biz_types,omitempty" nullable:"false" doc:"The business types and their load on this node, if detail was asked for."`
	Pulse      *Pulse         `json:"pulse,omitempty" doc:"As in GET /v1/cluster/pulse, if detail was asked for."`
}

// Unanswered is what a node of the version before asks for alone: ExchangeAnswer.Unanswered.
type Unanswered struct {
	Questions []ID `json:"questions" nullable:"false" doc:"The numbers of the questions." example:"[\"12\"]"`
}

// Woken answers a wake.
type Woken struct {
	Taken int `json:"taken" doc:"How many of the tasks this node has queued: those that are pending, due soon and in its partitions." example:"2"`
}

// Cluster is who owns what.
type Cluster struct {
	Node       string     `json:"node" doc:"Name of the node that answers." example:"node-1"`
	Partitions int        `json:"partitions" doc:"How many partitions there are." example:"256"`
	Nodes      []Node     `json:"nodes" nullable:"false" doc:"The healthy nodes."`
	Unworked   []Unworked `json:"unworked,omitempty" nullable:"false" doc:"Partitions that nobody works, or whose owner does not answer this node."`
	Outdated   string     `json:"outdated,omitempty" doc:"Why the lists may be those of an earlier time: the node that answers has no Consul."`
	Now        Time       `json:"now,omitzero" doc:"The clock of the node that answers. Nodes compare theirs by it." example:"2026-01-02T15:04:05.000Z"`
}

// Unworked is a group of partitions that nobody works for longer than a take-over takes, or whose owner does not answer.
type Unworked struct {
	Partitions []int  `json:"partitions" nullable:"false" example:"[0,1,2]"`
	Node       string `json:"node,omitempty" doc:"The node that holds their locks; absent: none does." example:"node-2"`
	Address    string `json:"address,omitempty" doc:"Where its HTTP API listens." example:"10.0.0.8:8080"`
	Session    string `json:"session,omitempty" doc:"Its session in Consul, by which it holds them." example:"adf4238a-882b-9ddc-4a9d-5b6758e4159e"`
	Reason     string `json:"reason" doc:"What is wrong, and what to do."`
}

// Node is one node of the cluster.
type Node struct {
	Name       string `json:"name" example:"node-1"`
	Address    string `json:"address" doc:"Where its HTTP API listens." example:"10.0.0.7:8080"`
	Partitions []int  `json:"partitions" nullable:"false" doc:"The partitions it owns." example:"[0,1,2]"`
}

// BizTypes lists the configured business types.
type BizTypes struct {
	BizTypes []BizType `json:"biz_types" nullable:"false"`
}

// BizType is a business type and how much it has to do.
type BizType struct {
	ID         ID     `json:"id" doc:"Its number in the task tables." example:"1"`
	Name       string `json:"name" example:"order_close"`
	Mode       string `json:"mode" enum:"scan,redis" doc:"The engine that finds its due tasks."`
	Processor  string `json:"processor" example:"webhook"`
	QueueDepth int    `json:"queue_depth" doc:"Tasks in the queues of the nodes." example:"12"`
	Running    int    `json:"running" doc:"Tasks that are being processed." example:"3"`
	Overdue    int    `json:"overdue" doc:"Pending tasks whose time has come, as of the last scan of each node." example:"0"`

	OldestOverdue float64 `json:"oldest_overdue_seconds" doc:"How long the oldest of them is overdue." example:"0"`
	Retrying      int     `json:"retrying" doc:"Pending tasks that have failed and run again, as of the last scan of each node." example:"0"`
	Retryable     int     `json:"retryable,omitempty" doc:"Of these, the tasks that a retry makes run now. The others are due already (they run, or wait for a consumer or a limit), or a consumer has them. Left out if there is none." example:"0"`
	OldestRetry   float64 `json:"oldest_retrying_seconds" doc:"How long ago the oldest of them was promised." example:"0"`
	OldestPromise float64 `json:"oldest_promise_seconds" doc:"How long ago the oldest promised time is of what is overdue or runs again: retries do not move it." example:"0"`
	LastError     string  `json:"last_error,omitempty" doc:"Why a run has failed, while runs fail." example:"POST http://127.0.0.1:9000/close: 503 Service Unavailable"`
	Paused        *Pause  `json:"paused,omitempty" doc:"Its pause. Left out if it is not paused."`

	RateLimit  int    `json:"rate_limit" doc:"Runs a second in the whole cluster; 0: no limit." example:"500"`
	MaxRunning int    `json:"max_running" doc:"Runs at the same time in the whole cluster; 0: no limit." example:"20"`
	CatchUp    int    `json:"catch_up" doc:"Runs a second of what is overdue by more than 10 s; 0: no limit." example:"2000"`
	Throttled  string `json:"throttled,omitempty" enum:"rate,running,catch_up" doc:"The limit for which due tasks wait now, on some node."`
}

// Pause is why and how long the tasks of a business type do not start.
type Pause struct {
	By     string `json:"by" doc:"Who paused it." example:"api"`
	Since  Time   `json:"since" doc:"When it was last paused." example:"2026-01-02T15:04:05.000Z"`
	Until  Time   `json:"until,omitzero" doc:"When the pause ends by itself. Left out if it does not." example:"2026-01-02T18:00:00.000Z"`
	Reason string `json:"reason,omitempty" example:"the shop is down"`
}

// Health says that the process lives.
type Health struct {
	Status string `json:"status" enum:"ok"`
}

// Readiness says whether a node can serve.
type Readiness struct {
	Ready    bool     `json:"ready"`
	Degraded []string `json:"degraded" nullable:"false" doc:"What does not work as it should; it need not keep the node from being ready. Without a token, where there are some: only its reason, as in toc_degraded." example:"database toc_3 is down"`
	Reasons  []string `json:"-"` // of Degraded, without names, addresses and values
}

// Why says where a task waits, until when, and for which reasons; or its outcome.
type Why struct {
	State   string   `json:"state" enum:"pending,processed,cancelled,dead,unknown" doc:"Its status; unknown while its row cannot be read."`
	Where   string   `json:"where" enum:"store,slot,queue,running,done" doc:"Where it waits now: in the store alone, in its slot in Redis, in the memory of its node, or nowhere: it runs, or is done."`
	Node    string   `json:"node" doc:"The node that knows this: the owner of its partition, if it answers." example:"node-1"`
	Next    Time     `json:"next,omitzero" doc:"When something should happen to it: its time, the next scan, the end of its time-out. Left out if nobody can say." example:"2026-01-02T15:04:05.000Z"`
	Because []string `json:"because" nullable:"false" doc:"What holds it, for a reader; the most important first." example:"[\"its time has not come: it is due at 2026-01-02T15:04:05.000Z, in 30m0s\"]"`

	FailedRuns []FailedRun `json:"failed_runs,omitempty" nullable:"false" doc:"Its failed runs, the oldest first; of many the last ones. Left out if it has none, or its row cannot be read."`
}

// FailedRun is a run of a task that failed and counted as an attempt.
type FailedRun struct {
	Attempt int    `json:"attempt" doc:"Which failed run it was. After a redrive the count may begin again at 1." example:"1"`
	At      Time   `json:"at" doc:"When it was recorded." example:"2026-01-02T15:04:05.000Z"`
	Error   string `json:"error" doc:"Why it failed; cut to 255 bytes." example:"webhook answered 500"`
}

// FailedRunsOf converts failed runs.
func FailedRunsOf(runs []task.FailedRun) []FailedRun {
	list := make([]FailedRun, len(runs))
	for i, r := range runs {
		list[i] = FailedRun{Attempt: r.Attempt, At: Time(r.At), Error: r.Error}
	}
	return list
}

// Values of Why.
const (
	WhyUnknown = "unknown" // State
	WhyStore   = "store"
	WhySlot    = "slot"
	WhyQueue   = "queue"
	WhyRunning = "running"
	WhyDone    = "done"
)

// Pulse is how a node is and what it did in the last hour. The console of each node asks all nodes.
type Pulse struct {
	Node      string        `json:"node" example:"node-1"`
	Ready     bool          `json:"ready"`
	Degraded  []string      `json:"degraded" nullable:"false" doc:"As in GET /readyz."`
	Minutes   []PulseMinute `json:"minutes" nullable:"false" doc:"The last hour, the earliest first; the last one is under way."`
	Waiting   int           `json:"waiting" doc:"Tasks in this node's queue." example:"12"`
	Running   int           `json:"running" doc:"Tasks that are being processed by this node." example:"3"`
	Overdue   int           `json:"overdue" doc:"Pending tasks in this node's tables whose time has come." example:"0"`
	BizTypes  []PulseType   `json:"biz_types" nullable:"false" doc:"Those with work, the most overdue first; at most 100."`
	Databases []PulseServer `json:"databases" nullable:"false" doc:"Each database, as this node finds it."`
	Redis     *bool         `json:"redis,omitempty" doc:"Whether Redis answers. Left out if no business type needs it."`
	Consul    *bool         `json:"consul,omitempty" doc:"Whether Consul answers. Left out if there is none."`
	Clocks    []PulseClock  `json:"clocks" nullable:"false" doc:"The clocks that this node has compared its own with."`
}

// PulseMinute is what a node did in a minute.
type PulseMinute struct {
	At        Time        `json:"at" doc:"When the minute begins, RFC 3339." example:"2026-01-02T15:04:00.000Z"`
	Submitted int         `json:"submitted" doc:"Tasks stored." example:"250"`
	Runs      int         `json:"runs" doc:"Runs that ended." example:"250"`
	Failed    int         `json:"failed" doc:"Of those, failed ones." example:"2"`
	Late      []LateCount `json:"late" nullable:"false" doc:"Runs that started, by their lateness."`
}

// LateCount counts runs that started late by so much.
type LateCount struct {
	Under float64 `json:"under" doc:"Seconds: they were late by less than this, and by no less than the bound before. 0: by an hour or more." example:"0.005"`
	Runs  int     `json:"runs" example:"248"`
}

// PulseType is the work of a business type on a node.
type PulseType struct {
	Name    string  `json:"biz_type" example:"order_close"`
	Waiting int     `json:"waiting" doc:"Tasks in this node's queue." example:"12"`
	Running int     `json:"running" doc:"Tasks that are being processed by this node." example:"3"`
	Overdue int     `json:"overdue" doc:"Pending tasks in this node's tables whose time has come." example:"0"`
	Oldest  float64 `json:"oldest_overdue_seconds" doc:"How long the oldest of them is overdue." example:"0"`
}

// PulseServer is a database as a node finds it.
type PulseServer struct {
	Up     bool    `json:"up" doc:"It can be read and takes writes."`
	Fault  string  `json:"fault,omitempty" doc:"What is wrong with it." example:"no answer"`
	Since  Time    `json:"since,omitzero" doc:"Since when, RFC 3339."`
	Answer float64 `json:"answer_seconds,omitempty" doc:"Time of an answer, where it is slow." example:"0.7"`
}

// PulseClock is another clock.
type PulseClock struct {
	Of    string  `json:"of" enum:"redis,database,node" doc:"Whose clock."`
	Name  string  `json:"name" example:"3"`
	Ahead float64 `json:"ahead_seconds" doc:"How far this node's clock is ahead of it; negative: behind." example:"0.002"`
}
