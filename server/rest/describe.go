package rest

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// introduction opens the documentation.
const introduction = `Stores tasks that must happen at a point in time and fires each one at that time.

64-bit ids are strings in answers; in requests they are strings or numbers. Times are RFC 3339, in answers UTC with milliseconds. ` +
	`Errors are RFC 9457 problems (application/problem+json) whose errors[].location names the field. Unknown fields are refused. A query parameter without a value counts as left out.`

const pausedBizType = `{"id":"1","name":"order_close","mode":"scan","processor":"webhook","queue_depth":0,"running":2,"overdue":0,"oldest_overdue_seconds":0,"retrying":0,"oldest_retrying_seconds":0,"oldest_promise_seconds":0,` +
	`"paused":{"by":"api","since":"2026-01-02T15:04:05.000Z","reason":"the shop is down"},"rate_limit":0,"max_running":0,"catch_up":0}`

// tags group the routes.
var tags = []*huma.Tag{
	{Name: "tasks", Description: "Submit, look up and change tasks."},
	{Name: "dead", Description: "Tasks whose retries are used up, or that expired."},
	{Name: "biz-types", Description: "Business types: their load, pause and resume."},
	{Name: "pull", Description: "Lease the tasks of a business type whose processor is pull, and settle them."},
	{Name: "center", Description: "How the center is."},
}

// description is what the documentation says about a route.
type description struct {
	tag     string
	summary string
	text    string
	request string // example of the body
	answer  string // example of the answer

	success  int            // status; 0: 200
	also     map[int]string // further statuses with the same answer
	refusals []int

	maxBody   int64 // of a body in bytes; 0: smallBody
	open      bool  // asks for no token
	unbounded bool  // may take as long as its caller waits
}

// smallBody holds any task with room to spare, even if all of its text is escaped.
const smallBody = 32 << 10

func (d description) status() int {
	if d.success == 0 {
		return http.StatusOK
	}
	return d.success
}

// refusalTexts say what a refusal means.
var refusalTexts = map[int]string{
	400: "The body is not JSON.",
	401: "No token, or an unknown one; between nodes, no proof of a node.",
	404: "What is named does not exist.",
	409: "The task's state does not allow it; outcome says which state that is. Of an operation: as many as may run are running.",
	412: "The task is not in a state that If-Match names; task and the header ETag tell how it stands. Nothing was changed.",
	413: "The body is larger than this call takes (32 KiB; a batch 8 MiB).",
	415: "The body is not application/json.",
	422: "A field is wrong; errors[].location names it.",
	503: "No node can decide this now; try again.",
}

// refusalHeaders are the headers that come with a refusal.
var refusalHeaders = map[int]map[string]*huma.Param{
	412: {"ETag": {Description: "Names the state of the task as it stands.", Schema: &huma.Schema{Type: huma.TypeString}}},
	503: {"Retry-After": {Description: "So many seconds from now.", Schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64"}}},
}

const (
	pendingTask = `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"42","status":"pending","action_time":"2026-01-02T15:04:05.000Z",
		"due_time":"2026-01-02T15:04:05.000Z","attribute":"{\"shop\":7}","attempts":0,"dedup_key":"order-42-unpaid","gmt_create":"2026-01-02T14:34:05.123Z","gmt_modified":"2026-01-02T14:34:05.123Z"}`
	deadTask = `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"42","status":"dead","action_time":"2026-01-02T18:10:44.870Z",
		"due_time":"2026-01-02T15:04:05.000Z","attempts":17,"last_error":"webhook answered 500","gmt_create":"2026-01-02T14:34:05.123Z","gmt_modified":"2026-01-02T18:10:44.901Z"}`
	runningOperation = `{"id":"1886427354112000001","kind":"redrive","by":"api","filter":{"biz_type":"order_close","error":"is locked"},"rate":50,"state":"running","matched":250,"done":100,"skipped":0,"started":"2026-01-02T15:04:05.000Z"}`
	undoOperation    = `{"id":"1886427354112000002","kind":"undo","undoes":"1886427354112000001","by":"api","filter":{"biz_type":"order_close","error":"is locked"},"rate":0,"state":"running","matched":100,"done":0,"skipped":0,"started":"2026-01-02T15:05:05.000Z"}`
	stoppedOperation = `{"id":"1886427354112000001","kind":"redrive","by":"api","filter":{"biz_type":"order_close","error":"is locked"},"rate":50,"state":"stopped","matched":250,"done":100,"skipped":0,"started":"2026-01-02T15:04:05.000Z","ended":"2026-01-02T15:04:07.120Z"}`
	runningTask      = `{"job_id":"413351953711104","biz_type":"order_close","biz_id":"6f1c0b6e-9a53","status":"pending","action_time":"2026-01-02T15:04:05.000Z",
		"due_time":"2026-01-02T15:04:05.000Z","timeout":"1.5s","attempts":0,"dedup_key":"order-42-unpaid","gmt_create":"2026-01-02T14:34:05.123Z",
		"gmt_modified":"2026-01-02T14:34:05.123Z","running":{"node":"node-1","since":"2026-01-02T15:04:05.001Z"}}`
)

// conditional ends the text of a route that takes If-Match.
const conditional = " With If-Match it is done only to the state that the caller has seen."

// descriptions of the routes, by operation id.
var descriptions = map[string]description{
	"submit-task": {
		tag: "tasks", summary: "Submit a task",
		text: "Stores a task durably: it is committed when the answer arrives. With a dedup_key the submit is safe to repeat: " +
			"the first task of the same biz_type, biz_id and dedup_key is answered with 200, unchanged, whatever has become of it. " +
			"With on_duplicate move that first task gets this action_time and attribute, and this timeout where there is one; " +
			"if it is not pending any more, or running, the answer is 409. " +
			"With on_duplicate again a new task takes the dedup_key of one that is processed, cancelled or dead, and the answer is 201. " +
			"With past fire an action_time that has passed is due at once. " +
			"A header traceparent (W3C trace context) is kept with the task, and the call of its webhook has one.",
		request: `{"biz_type":"order_close","biz_id":"42","delay":"30m","attribute":"{\"shop\":7}","dedup_key":"order-42-unpaid"}`,
		answer:  pendingTask,
		success: 201, also: map[int]string{200: "The dedup_key was known: this is the first task."},
		refusals: []int{400, 409, 413, 415, 422, 503},
	},
	"submit-batch": {
		tag: "tasks", summary: "Submit many tasks", maxBody: 8 << 20,
		text: "Stores up to 10,000 tasks, of 8 MiB together, and answers for each of them, in order. One that is refused does not spoil the rest. " +
			"A first task that on_duplicate cannot move is an error of dedup_key, with its outcome. " +
			"A header traceparent holds for all of them. " +
			"With full, each of up to 1,000 tasks is a submit of its own: its result has only answer, with the status and the body that POST /v1/tasks would have answered.",
		request: `{"tasks":[{"biz_type":"order_close","biz_id":42,"delay":"30m"},{"biz_type":"order_clos","biz_id":43,"delay":"30m"}]}`,
		answer: `{"results":[{"job_id":"413351953711104"},{"error":{"field":"biz_type",` +
			`"message":"\"order_clos\" is not configured; there are: order_close"}}]}`,
		refusals: []int{400, 413, 415, 422, 503},
	},
	"list-tasks": {
		tag: "tasks", summary: "List tasks",
		text: "With biz_id, whose tasks lie in one table: in the order of their submission. Without: those of all tables in the order of table, action_time and job_id; " +
			"a page may be short, or empty, although it has a next_cursor, because what it may cost is bounded. " +
			"Going from page to page ends, whatever is changed meanwhile: what was changed (without biz_id) or submitted after the first page is left out of the later ones.",
		answer:   `{"tasks":[` + pendingTask + `],"next_cursor":"dAABd_CA5AAA"}`,
		refusals: []int{422, 503},
	},
	"get-task": {
		tag: "tasks", summary: "Look a task up",
		text: "All of its columns; empty ones are left out. A task that runs has running: since when, and on which node. " +
			"The header ETag names the state that was answered; running is no part of it.",
		answer: runningTask, refusals: []int{404, 422, 503},
	},
	"explain-task": {
		tag: "tasks", summary: "Why does a task wait?",
		text: "Where the task waits now, until when, and what holds it, in words; of a task that is done, what became of it. failed_runs has each failed run with its error, the last ones of many. " +
			"Any node answers: it asks the owner of the task, and if that does not answer, tells what it knows itself.",
		answer: `{"state":"pending","where":"queue","node":"node-1","because":["it waits for a worker: all 8 workers of order_close on node node-1 are busy, the longest for 12s; 310 tasks of its type are in memory"],` +
			`"failed_runs":[{"attempt":1,"at":"2026-01-02T15:04:05.000Z","error":"webhook answered 500"}]}`,
		refusals: []int{404, 422, 503},
	},
	"change-task": {
		tag: "tasks", summary: "Reschedule a task",
		text: "Gives a pending task another time, another attribute, another timeout, or several of them, in one step. A new time is a new promise: " +
			"due_time becomes action_time." + conditional,
		request: `{"delay":"45m"}`, answer: pendingTask,
		refusals: []int{400, 404, 409, 412, 413, 415, 422, 503},
	},
	"cancel-task": {
		tag: "tasks", summary: "Cancel a task",
		text: "A task that was answered with cancelled never fires. Otherwise outcome says why not: " +
			"already_processed, already_cancelled, dead or running." + conditional,
		answer: `{"outcome":"cancelled"}`, refusals: []int{404, 409, 412, 422, 503},
	},
	"redrive-task": {
		tag: "tasks", summary: "Redrive a dead task",
		text:   "A fresh start: pending, attempts 0, due now and promised for now." + conditional,
		answer: pendingTask, refusals: []int{404, 409, 412, 422, 503},
	},
	"get-task-by-key": {
		tag: "tasks", summary: "Look a task up by your own key",
		text:   "The task of this biz_type, biz_id and dedup_key, as GET /v1/tasks/{job_id} answers it.",
		answer: runningTask, refusals: []int{404, 422, 503},
	},
	"change-task-by-key": {
		tag: "tasks", summary: "Reschedule a task by your own key",
		text:    "As PATCH /v1/tasks/{job_id}, for the task of this biz_type, biz_id and dedup_key.",
		request: `{"delay":"45m"}`, answer: pendingTask,
		refusals: []int{400, 404, 409, 412, 413, 415, 422, 503},
	},
	"cancel-task-by-key": {
		tag: "tasks", summary: "Cancel a task by your own key",
		text:   "As POST /v1/tasks/{job_id}/cancel, for the task of this biz_type, biz_id and dedup_key.",
		answer: `{"outcome":"cancelled"}`, refusals: []int{404, 409, 412, 422, 503},
	},
	"get-forecast": {
		tag: "tasks", summary: "How many tasks are due when",
		text: "Counts the pending tasks of all tables that are due from now on, by steps of time and business type, and names the crowded seconds. " +
			"Few tasks are counted exactly; of many, some tables stand for all, and estimated says so. Overdue tasks are not in it.",
		answer: `{"as_of":"2026-01-02T15:04:05.000Z","step_seconds":60,"buckets":[{"at":"2026-01-02T15:04:00.000Z","biz_type":"order_close","due":250}],` +
			`"crowded":[{"second":"2026-01-02T15:04:30.000Z","biz_type":"order_close","due":200}]}`,
		refusals: []int{422, 503},
	},
	"list-dead": {
		tag: "dead", summary: "List dead tasks",
		text:   "Those that match, table by table, in each by job_id.",
		answer: `{"tasks":[` + deadTask + `],"next_cursor":"ZAABd_CA5AAA"}`, refusals: []int{422, 503},
	},
	"group-dead": {
		tag: "dead", summary: "Sum up dead tasks by their error",
		text: "The largest groups first, at most 1000. Numbers and ids in the error do not split a group. " +
			"Of each table 1000 dead tasks are counted, in a small layout more; partial says that there are more.",
		answer:   `{"groups":[{"biz_type":"order_close","error":"order # is locked","count":250,"oldest":"2026-01-02T15:04:05.000Z","newest":"2026-01-02T15:34:05.000Z","job_id":"413351953711104"}]}`,
		refusals: []int{422, 503},
	},
	"redrive-dead": {
		tag: "dead", summary: "Redrive many dead tasks",
		text: "Puts the dead tasks that match back to pending, attempts 0, due now. An empty object means all of them. " +
			"It may take a while; when the caller hangs up it stops where it is. " +
			"With a rate it is an operation: the answer comes at once, and a node changes so many tasks a second, those that died before; another node goes on if that one dies.",
		request: `{"biz_type":"order_close","limit":100,"dry_run":true}`,
		answer:  `{"matched":250,"redriven":0}`, refusals: []int{400, 409, 413, 415, 422, 503}, unbounded: true,
		also: map[int]string{202: "With a rate: the operation has started."},
	},
	"discard-dead": {
		tag: "dead", summary: "Discard many dead tasks",
		text: "Makes the dead tasks that match cancelled; they keep their last_error and are deleted with the other cancelled ones. " +
			"An empty object means all of them. It may take a while; when the caller hangs up it stops where it is. " +
			"With a rate it is an operation: the answer comes at once, and a node changes so many tasks a second, those that died before; another node goes on if that one dies.",
		request: `{"biz_type":"order_close","error":"is locked","until":"2026-01-02T16:00:00Z"}`,
		answer:  `{"matched":250,"discarded":250}`, refusals: []int{400, 409, 413, 415, 422, 503}, unbounded: true,
		also: map[int]string{202: "With a rate: the operation has started."},
	},
	"list-operations": {
		tag: "dead", summary: "List the operations",
		text:   "Redrives and discards that have a rate, and retries, the latest first. They are deleted with the audit, by store.audit_retention.",
		answer: `{"operations":[` + runningOperation + `]}`, refusals: []int{422, 503},
	},
	"get-operation": {
		tag: "dead", summary: "Look an operation up",
		text:   "How far it is. Its counts are written together with the tasks, so they are exact at any time.",
		answer: runningOperation, refusals: []int{404, 422, 503},
	},
	"stop-operation": {
		tag: "dead", summary: "Stop an operation",
		text:   "What it has changed stays so. One that has ended is answered as it is.",
		answer: stoppedOperation, refusals: []int{404, 422, 503},
	},
	"undo-operation": {
		tag: "dead", summary: "Take an operation back",
		text: "Stops it if it runs, and starts an operation of the kind undo: the tasks that it has redriven or discarded are dead again, with their attempts as before. " +
			"Those that have started, or that somebody has changed since, are skipped.",
		answer: undoOperation, refusals: []int{404, 409, 422, 503},
	},
	"list-audit": {
		tag: "center", summary: "Who did what",
		text:     "Every pause, resume, redrive, discard, retry, stop and undo, the latest first.",
		answer:   `{"entries":[{"at":"2026-01-02T15:04:05.000Z","actor":"api","action":"redrive","target":"order_close","count":250,"detail":"{\"error\":\"is locked\"}"}]}`,
		refusals: []int{422, 503},
	},
	"get-cluster": {
		tag: "center", summary: "Who owns what",
		text:     "The healthy nodes and the partitions that each of them owns.",
		answer:   `{"node":"node-1","partitions":4,"nodes":[{"name":"node-1","address":"10.0.0.7:8080","partitions":[0,1,2,3]}],"now":"2026-01-02T15:04:05.000Z"}`,
		refusals: []int{422, 503},
	},
	"get-pulse": {
		tag: "center", summary: "How a node is",
		text: "Between nodes, for the console of each: what this node did in the last hour, and how it finds the databases, Redis, Consul and the other clocks.",
		answer: `{"node":"node-1","ready":true,"degraded":[],"minutes":[{"at":"2026-01-02T15:04:00.000Z","submitted":250,"runs":250,"failed":2,"late":[{"under":0.005,"runs":250}]}],` +
			`"waiting":12,"running":3,"overdue":0,"biz_types":[{"biz_type":"order_close","waiting":12,"running":3,"overdue":0,"oldest_overdue_seconds":0}],` +
			`"databases":[{"up":true}],"redis":true,"clocks":[{"of":"database","name":"0","ahead_seconds":0.002}]}`,
		refusals: []int{422, 503},
	},
	"exchange": {
		tag: "center", summary: "Exchange states and limits", maxBody: 256 << 10,
		text: "Between nodes, by a node's proof and by no token: each node asks each other one once a second how it is. " +
			"A node whose tasks wait for rate_limit, max_running or catch_up asks more often, for what the other one does not use. " +
			"What is given counts against the node that gives it, so that all together stay within the limit. " +
			"A node that has given leases to another one, which is to pass them on, asks it when they end: if the answer with the leases has not arrived, " +
			"nobody has had them, and their end is no failed run.",
		request:  `{"from":"node-2 5YX3QZ","seq":7,"asks":[{"biz_type":"order_close","rate":12.5,"permits":4,"held":2,"poor":true}]}`,
		answer:   `{"node":"node-1","now":"2026-01-02T15:04:05.000Z","grants":[{"biz_type":"order_close","rate":3.25,"permits":3}],"unanswered":["12"]}`,
		refusals: []int{400, 401, 404, 413, 415, 422}, open: true,
	},
	"list-unanswered": {
		tag: "center", summary: "List questions without an answer",
		text: "Between nodes, by a node's proof and by no token: how a node of the version before asks for unanswered alone, when leases end. " +
			"Without this route it would take no lease that went through this node for a failed run.",
		answer: `{"questions":["12","31"]}`, refusals: []int{401, 404, 422}, open: true,
	},
	"wake-tasks": {
		tag: "center", summary: "Queue tasks that are due soon", maxBody: 64 << 10,
		text: "Between nodes, by a node's proof and by no token: whoever stores a task that is due soon tells the node that owns its partition, which reads the row and queues it. " +
			"Anything else is ignored: a task of another node, one that is due later, one that is not pending or not there. " +
			"Cancels, changes and redrives are decided by the owner, too; a node that hands such a request on sends its name in the header Toc-Forwarded, " +
			"and a request with that header is answered with 503 rather than handed on again.",
		request: `{"job_ids":["413351953711104","413351953711105","413351953711106"]}`,
		answer:  `{"taken":2}`, refusals: []int{400, 401, 404, 413, 415, 422, 503}, open: true,
	},
	"list-biz-types": {
		tag: "center", summary: "The business types",
		text:     "The configured business types, and what all nodes together have to do for each.",
		answer:   `{"biz_types":[{"id":"1","name":"order_close","mode":"scan","processor":"webhook","queue_depth":12,"running":3,"overdue":0,"oldest_overdue_seconds":0,"retrying":341,"oldest_retrying_seconds":500.25,"oldest_promise_seconds":500.25,"last_error":"POST http://127.0.0.1:9000/close: 503 Service Unavailable","rate_limit":0,"max_running":0,"catch_up":0}]}`,
		refusals: []int{422, 503},
	},
	"pause-biz-type": {
		tag: "biz-types", summary: "Pause a business type",
		text: "Its tasks do not start, on all nodes within two seconds and over restarts, until it is resumed or until comes. Runs under way end, and submits are taken. " +
			"Pausing a paused one replaces reason and until. The body may be left out.",
		request: `{"reason":"the shop is down"}`,
		answer:  pausedBizType, refusals: []int{400, 404, 413, 415, 422, 503},
	},
	"resume-biz-type": {
		tag: "biz-types", summary: "Resume a business type",
		text:   "Ends its pause: what has become due meanwhile starts at once. Resuming one that runs changes nothing.",
		answer: `{"id":"1","name":"order_close","mode":"scan","processor":"webhook","queue_depth":0,"running":0,"overdue":310,"oldest_overdue_seconds":612.25,"retrying":0,"oldest_retrying_seconds":0,"oldest_promise_seconds":612.25,"rate_limit":0,"max_running":0,"catch_up":0}`, refusals: []int{404, 422, 503},
	},
	"retry-biz-type": {
		tag: "biz-types", summary: "Run the failing tasks of a business type now",
		text: "Its pending tasks that have failed and would run again later run now, for example when their receiver is healed; attempts and due_time stay. It is an operation, so another node goes on if the one that runs it dies. " +
			"With a rate the answer comes at once; without it when all are retried, or after 20 s with the operation that goes on. The body may be left out.",
		request: `{}`,
		answer:  `{"matched":341,"retried":341}`, refusals: []int{400, 404, 409, 413, 415, 422, 503},
		also: map[int]string{202: "The operation goes on."},
	},
	"lease-tasks": {
		tag: "pull", summary: "Lease tasks", maxBody: 1 << 20,
		text: "Hands out tasks that are due, of all nodes, the processor of whose business type is pull. It answers at once with what is due; else it waits, and answers with an empty list in the end. " +
			"Each task is the caller's until it is settled or its lease ends; a lease that ends counts as a failed run. The body may be left out. " +
			"settle ends or extends leases in the same request, as POST /v1/leases/settle does; then it does not wait for tasks, and results says what became of them.",
		request:  `{"max":10,"wait":"30s","ttr":"1m"}`,
		answer:   `{"tasks":[{"lease":"3bw1f0sk8b4-1y0gkz9d6v3p2","expires_at":"2026-01-02T15:05:05.004Z","attempt":1,"task":` + pendingTask + `}],"paused":false}`,
		refusals: []int{400, 404, 413, 415, 422, 503}, unbounded: true,
	},
	"settle-leases": {
		tag: "pull", summary: "Settle leases", maxBody: 1 << 20,
		text:     "Ends or extends up to 1000 leases, of any business types and nodes, and answers for each, in order. A lease settles once: the second time it is lost.",
		request:  `{"settle":[{"lease":"3bw1f0sk8b4-1y0gkz9d6v3p2","do":"ack"},{"lease":"3bw1f0sk8b5-1y0gkz9d6v3p2","do":"nack","retry_after":"10s","error":"order 43 is locked"}]}`,
		answer:   `{"results":[{"lease":"3bw1f0sk8b4-1y0gkz9d6v3p2","result":"ok"},{"lease":"3bw1f0sk8b5-1y0gkz9d6v3p2","result":"lost"}]}`,
		refusals: []int{400, 413, 415, 422, 503},
	},
	"youzan": {
		tag: "pull", summary: "The commands add, pop, finish and delete",
		text: "For programs that move from the delay queue that Youzan has described. A topic is a business type with the processor pull. " +
			"Each answer is as Youzan's: status 200, with success, error, id and value; code and job_id are toc's own. Members of the body that are not known here are ignored.",
		request: `{"command":"add","topic":"order_close","id":"o-1","delay":1800,"TTR":60,"body":"{\"shop\":7}"}`,
		answer:  `{"success":true,"id":"o-1","job_id":"413351953711104","code":0}`,
	},
	"get-health": {
		tag: "center", summary: "Is the process alive?",
		text: "Says so as long as it can. Asks for no token.", answer: `{"status":"ok"}`, open: true,
	},
	"get-readiness": {
		tag: "center", summary: "Can this node serve?",
		text:   "200 while the store answers and ownership is known, 503 otherwise; lists what is degraded. Asks for no token.",
		answer: `{"ready":true,"degraded":[]}`, also: map[int]string{503: "Not ready."}, open: true,
	},
	"get-metrics": {
		tag: "center", summary: "Metrics",
		text: "In the text format of Prometheus.",
	},
}
