// Package api declares every JSON body of the HTTP API once: the requests, the answers and
// the task in them. The HTTP API, the Go client, the command line and the webhook share it, so
// that a task looks the same wherever it is met:
//
//	{
//	  "job_id": "413351953711104", "biz_type": "order_close", "biz_id": "42",
//	  "status": "pending", "action_time": "2026-01-02T15:04:05.000Z",
//	  "due_time": "2026-01-02T15:04:05.000Z", "timeout": "1.5s",
//	  "attribute": "…", "attempts": 0, "last_error": "…", "dedup_key": "…",
//	  "gmt_create": "…", "gmt_modified": "…", "running": {"node": "…", "since": "…"}
//	}
//
// It imports package task only. It does not know who asks, how the bytes travel and which
// business types there are. The tags doc, example, enum and the like make the OpenAPI document; missing is what to give if the field must
// be given and is not.
//
//	center.go     what callers ask of a center, in Go
//	requests.go   the bodies of requests
//	answers.go    the bodies of answers; errors.go says what their refusals stand for
//	task.go       a task, and a fast way to write it; read.go is the way back
//	values.go cursor.go etag.go   the values in them, and beside them
package api
