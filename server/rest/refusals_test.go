package rest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// refusal is a request that must be refused, and what its answer must name.
type refusal struct {
	name      string
	method    string
	target    string
	body      string
	status    int
	locations []string // of the problem's errors; none: not checked
}

// bad is a submit that is right but for the members given.
func bad(members string) string {
	return `{"biz_type":"order_close","biz_id":"42","delay":"1h",` + members + `}`
}

// badID is a submit with this biz_id.
func badID(value string) string {
	return `{"biz_type":"order_close","biz_id":` + value + `,"delay":"1h"}`
}

// badTime is a submit with this time.
func badTime(member string) string {
	return `{"biz_type":"order_close","biz_id":"42",` + member + `}`
}

func at(t time.Time) string {
	return badTime(`"action_time":"` + t.UTC().Format(time.RFC3339Nano) + `"`)
}

func submitRefusals() []refusal {
	now := time.Now()
	is := func(name, body string, status int, locations ...string) refusal {
		return refusal{name, "POST", "/v1/tasks", body, status, locations}
	}
	return []refusal{
		// No JSON at all.
		is("empty body", "", 400, "body"),
		is("blank body", " \n\t ", 400, "body"),
		is("no JSON", "hello", 400, "body"),
		is("cut off", `{"biz_type":"order_close"`, 400, "body"),
		is("trailing garbage", bad(`"attribute":""`)+"x", 400, "body"),
		is("two values", bad(`"attribute":""`)+bad(`"attribute":""`), 400, "body"),
		is("trailing comma", `{"biz_type":"order_close",}`, 400, "body"),
		is("single quotes", `{'biz_type':'order_close'}`, 400, "body"),
		is("comment", `{/* */"biz_type":"order_close"}`, 400, "body"),
		is("NaN", badID("NaN"), 400, "body"),
		is("byte order mark", "\ufeff"+bad(`"attribute":""`), 400, "body"),
		is("raw control character in a string", bad("\"attribute\":\"a\nb\""), 400, "body"),
		is("NUL byte", "\x00", 400, "body"),
		is("very deep", strings.Repeat("[", 30_000), 400, "body"),
		is("very deep, closed", `{"a":`+strings.Repeat("[", 10_001)+strings.Repeat("]", 10_001)+"}", 400, "body"),

		// JSON, but no object.
		is("null", "null", 422, "body"),
		is("array", "[]", 422, "body"),
		is("array of tasks", "["+bad(`"attribute":""`)+"]", 422, "body"),
		is("string", `"{}"`, 422, "body"),
		is("number", "42", 422, "body"),
		is("boolean", "true", 422, "body"),

		// Fields.
		is("empty object", "{}", 422, "body.biz_type", "body.biz_id", "body.action_time"),
		is("unknown field", bad(`"priority":1`), 422, "body.priority"),
		is("field in capitals", `{"biz_type":"order_close","BIZ_ID":"42","delay":"1h"}`, 422, "body.BIZ_ID", "body.biz_id"),
		is("server's field", bad(`"job_id":"1"`), 422, "body.job_id"),
		is("unknown field, no UTF-8", bad("\"a\xff\":1"), 422, "body.a\ufffd"),
		is("field twice", bad(`"biz_id":"43"`), 422, "body.biz_id"),
		is("field twice, escaped", bad(`"biz\u005fid":"43"`), 422, "body.biz_id"),
		is("field twice, the same", bad(`"delay":"1h"`), 422, "body.delay"),
		is("several faults", `{"biz_type":1,"biz_id":[],"x":0,"delay":"1h"}`, 422, "body.biz_type", "body.biz_id", "body.x"),

		// biz_type.
		is("biz_type missing", `{"biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type empty", `{"biz_type":"","biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type unknown", `{"biz_type":"nope","biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type number", `{"biz_type":1,"biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type null", `{"biz_type":null,"biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type in capitals", `{"biz_type":"ORDER_CLOSE","biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type with a blank", `{"biz_type":"order_close ","biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),
		is("biz_type no UTF-8", "{\"biz_type\":\"\xff\",\"biz_id\":\"42\",\"delay\":\"1h\"}", 422, "body.biz_type"),
		is("biz_type huge", `{"biz_type":"`+strings.Repeat("x", 30_000)+`","biz_id":"42","delay":"1h"}`, 422, "body.biz_type"),

		// biz_id.
		is("biz_id missing", `{"biz_type":"order_close","delay":"1h"}`, 422, "body.biz_id"),
		is("biz_id fraction", badID(`1.5`), 422, "body.biz_id"),
		is("biz_id whole fraction", badID(`1.0`), 422, "body.biz_id"),
		is("biz_id exponent", badID(`1e3`), 422, "body.biz_id"),
		is("biz_id negative", badID(`-1`), 422, "body.biz_id"),
		is("biz_id negative zero", badID(`-0`), 422, "body.biz_id"),
		is("biz_id empty", badID(`""`), 422, "body.biz_id"),
		is("biz_id null", badID(`null`), 422, "body.biz_id"),
		is("biz_id boolean", badID(`true`), 422, "body.biz_id"),
		is("biz_id object", badID(`{}`), 422, "body.biz_id"),
		is("biz_id array", badID(`["42"]`), 422, "body.biz_id"),
		is("biz_id over 64 bits", badID(`18446744073709551616`), 422, "body.biz_id"),
		is("biz_id text over 128 bytes", badID(`"`+strings.Repeat("é", 64)+`x"`), 422, "body.biz_id"),
		is("biz_id text no UTF-8", badID("\"a\xff\""), 422, "body.biz_id"),
		is("biz_id text half a surrogate pair", badID(`"\ud83d"`), 422, "body.biz_id"),
		is("biz_id of a thousand digits", badID(strings.Repeat("9", 1000)), 422, "body.biz_id"),

		// action_time and delay.
		is("no time", `{"biz_type":"order_close","biz_id":"42"}`, 422, "body.action_time"),
		is("both times", bad(`"action_time":"2030-01-01T00:00:00Z"`), 422, "body.action_time", "body.delay"),
		is("time in the past", at(now.Add(-6*time.Second)), 422, "body.action_time"),
		is("time long ago", at(time.Unix(0, 0)), 422, "body.action_time"),
		is("time in the year 0", badTime(`"action_time":"0000-01-01T00:00:00Z"`), 422, "body.action_time"),
		is("time over 10 years ahead", at(now.AddDate(10, 0, 3)), 422, "body.action_time"),
		is("time in the year 9999", badTime(`"action_time":"9999-12-31T23:59:59Z"`), 422, "body.action_time"),
		is("seconds taken for milliseconds", at(time.Unix(now.UnixMilli(), 0)), 422, "body.action_time"),
		is("time is a number", badTime(fmt.Sprintf(`"action_time":%d`, now.Unix())), 422, "body.action_time"),
		is("time is null", badTime(`"action_time":null`), 422, "body.action_time"),
		is("time is empty", badTime(`"action_time":""`), 422, "body.action_time"),
		is("time is a day", badTime(`"action_time":"2030-01-01"`), 422, "body.action_time"),
		is("time has no zone", badTime(`"action_time":"2030-01-01T00:00:00"`), 422, "body.action_time"),
		is("time has a blank", badTime(`"action_time":"2030-01-01 00:00:00Z"`), 422, "body.action_time"),
		is("time has a comma", badTime(`"action_time":"2030-01-01T00:00:00,5Z"`), 422, "body.action_time"),
		is("time has one digit", badTime(`"action_time":"2030-01-01T1:00:00Z"`), 422, "body.action_time"),
		is("time that is none", badTime(`"action_time":"2030-02-30T00:00:00Z"`), 422, "body.action_time"),
		is("zone that is none", badTime(`"action_time":"2030-01-01T00:00:00+25:00"`), 422, "body.action_time"),
		is("delay is a number", badTime(`"delay":1800`), 422, "body.delay"),
		is("delay is null", badTime(`"delay":null`), 422, "body.delay"),
		is("delay is empty", badTime(`"delay":""`), 422, "body.delay"),
		is("delay has no unit", badTime(`"delay":"30"`), 422, "body.delay"),
		is("delay has an unknown unit", badTime(`"delay":"1d"`), 422, "body.delay"),
		is("delay in ISO 8601", badTime(`"delay":"PT30M"`), 422, "body.delay"),
		is("delay negative", badTime(`"delay":"-1s"`), 422, "body.delay"),
		is("delay over 10 years", badTime(`"delay":"87601h"`), 422, "body.delay"),
		is("delay over what a duration holds", badTime(`"delay":"9999999h"`), 422, "body.delay"),

		// attribute and dedup_key.
		is("attribute over 4096 bytes", bad(`"attribute":"`+strings.Repeat("x", 4097)+`"`), 422, "body.attribute"),
		is("attribute over 4096 bytes, not characters", bad(`"attribute":"`+strings.Repeat("é", 2049)+`"`), 422, "body.attribute"),
		is("attribute object", bad(`"attribute":{"a":1}`), 422, "body.attribute"),
		is("attribute null", bad(`"attribute":null`), 422, "body.attribute"),
		is("attribute no UTF-8", bad("\"attribute\":\"a\xc3\x28\""), 422, "body.attribute"),
		is("attribute half a surrogate pair", bad(`"attribute":"\ud83d"`), 422, "body.attribute"),
		is("attribute halves in the wrong order", bad(`"attribute":"\ude00\ud83d"`), 422, "body.attribute"),
		is("attribute half, then an escape", bad(`"attribute":"\ud83d\n"`), 422, "body.attribute"),
		is("attribute half, then text", bad(`"attribute":"\ud83dude00"`), 422, "body.attribute"),
		is("dedup_key over 64 bytes", bad(`"dedup_key":"`+strings.Repeat("x", 65)+`"`), 422, "body.dedup_key"),
		is("dedup_key over 64 bytes, not characters", bad(`"dedup_key":"`+strings.Repeat("é", 33)+`"`), 422, "body.dedup_key"),
		is("dedup_key number", bad(`"dedup_key":1`), 422, "body.dedup_key"),
		is("dedup_key null", bad(`"dedup_key":null`), 422, "body.dedup_key"),
		is("dedup_key no UTF-8", bad("\"dedup_key\":\"\xff\""), 422, "body.dedup_key"),

		// timeout and on_duplicate.
		is("timeout 0", bad(`"timeout":"0s"`), 422, "body.timeout"),
		is("timeout under 1ms", bad(`"timeout":"999us"`), 422, "body.timeout"),
		is("timeout over 24h", bad(`"timeout":"24h0m0.001s"`), 422, "body.timeout"),
		is("timeout negative", bad(`"timeout":"-1s"`), 422, "body.timeout"),
		is("timeout number", bad(`"timeout":30`), 422, "body.timeout"),
		is("timeout null", bad(`"timeout":null`), 422, "body.timeout"),
		is("timeout that is none", bad(`"timeout":"long"`), 422, "body.timeout"),
		is("on_duplicate without a dedup_key", bad(`"on_duplicate":"keep"`), 422, "body.on_duplicate"),
		is("on_duplicate with an empty dedup_key", bad(`"on_duplicate":"move","dedup_key":""`), 422, "body.on_duplicate"),
		is("on_duplicate unknown", bad(`"on_duplicate":"Move","dedup_key":"k"`), 422, "body.on_duplicate"),
		is("on_duplicate empty", bad(`"on_duplicate":"","dedup_key":"k"`), 422, "body.on_duplicate"),
		is("on_duplicate null", bad(`"on_duplicate":null,"dedup_key":"k"`), 422, "body.on_duplicate"),

		{"query on a submit", "POST", "/v1/tasks?biz_id=42", bad(`"attribute":""`), 422, []string{"query.biz_id"}},
	}
}

func otherRefusals(jobID string) []refusal {
	one := "/v1/tasks/" + jobID
	many := `{"tasks":[` + strings.Repeat(`{},`, 10_000) + `{}]}`
	list := []refusal{
		{"batch without a body", "POST", "/v1/tasks/batch", "", 400, []string{"body"}},
		{"batch cut off", "POST", "/v1/tasks/batch", `{"tasks":[{}`, 400, []string{"body"}},
		{"batch null", "POST", "/v1/tasks/batch", `null`, 422, []string{"body"}},
		{"batch array", "POST", "/v1/tasks/batch", `[]`, 422, []string{"body"}},
		{"batch without tasks", "POST", "/v1/tasks/batch", `{}`, 422, []string{"body.tasks"}},
		{"batch of none", "POST", "/v1/tasks/batch", `{"tasks":[]}`, 422, []string{"body.tasks"}},
		{"batch of null", "POST", "/v1/tasks/batch", `{"tasks":null}`, 422, []string{"body.tasks"}},
		{"batch of an object", "POST", "/v1/tasks/batch", `{"tasks":{}}`, 422, []string{"body.tasks"}},
		{"batch of 10001", "POST", "/v1/tasks/batch", many, 422, []string{"body.tasks"}},
		{"batch with an unknown field", "POST", "/v1/tasks/batch", `{"tasks":[{}],"atomic":true}`, 422, []string{"body.atomic"}},
		{"batch with tasks twice", "POST", "/v1/tasks/batch", `{"tasks":[{}],"tasks":[{}]}`, 422, []string{"body.tasks"}},

		{"list all with a cursor of a biz_id", "GET", "/v1/tasks?cursor=dAABd_CA5AAA", "", 422, []string{"query.cursor"}},
		{"list all with a wrong time", "GET", "/v1/tasks?from=today", "", 422, []string{"query.from"}},
		{"list of a biz_id with a time", "GET", "/v1/tasks?biz_id=1&to=2026-01-02T15:00:00Z", "", 422, []string{"query.from"}},
		{"list with an empty biz_id", "GET", "/v1/tasks?biz_id=", "", 422, []string{"query.biz_id"}},
		{"list with a long biz_id", "GET", "/v1/tasks?biz_id=" + strings.Repeat("x", 129), "", 422, []string{"query.biz_id"}},
		{"list with a biz_id that is no text", "GET", "/v1/tasks?biz_id=%ff", "", 422, []string{"query.biz_id"}},
		{"list with two biz_ids", "GET", "/v1/tasks?biz_id=1&biz_id=2", "", 422, []string{"query.biz_id"}},
		{"list with an unknown biz_type", "GET", "/v1/tasks?biz_id=42&biz_type=nope", "", 422, []string{"query.biz_type"}},
		{"list with an unknown status", "GET", "/v1/tasks?biz_id=42&status=done", "", 422, []string{"query.status"}},
		{"list with a status number", "GET", "/v1/tasks?biz_id=42&status=0", "", 422, []string{"query.status"}},
		{"list with limit 0", "GET", "/v1/tasks?biz_id=42&limit=0", "", 422, []string{"query.limit"}},
		{"list with limit -1", "GET", "/v1/tasks?biz_id=42&limit=-1", "", 422, []string{"query.limit"}},
		{"list with limit 1001", "GET", "/v1/tasks?biz_id=42&limit=1001", "", 422, []string{"query.limit"}},
		{"list with limit x", "GET", "/v1/tasks?biz_id=42&limit=x", "", 422, []string{"query.limit"}},
		{"list with a huge limit", "GET", "/v1/tasks?biz_id=42&limit=99999999999999999999", "", 422, []string{"query.limit"}},
		{"list with an unknown parameter", "GET", "/v1/tasks?biz_id=42&biztype=order_close", "", 422, []string{"query.biztype"}},
		{"list with a broken query", "GET", "/v1/tasks?biz_id=42&status=%zz", "", 422, []string{"query"}},
		{"list with a semicolon", "GET", "/v1/tasks?biz_id=42;limit=1", "", 422, []string{"query"}},
		{"list with no cursor", "GET", "/v1/tasks?biz_id=42&cursor=abc", "", 422, []string{"query.cursor"}},
		{"list with a job_id for a cursor", "GET", "/v1/tasks?biz_id=42&cursor=" + jobID, "", 422, []string{"query.cursor"}},
		{"list with a cursor of the dead", "GET", "/v1/tasks?biz_id=42&cursor=ZAABd_CA5AAA", "", 422, []string{"query.cursor"}},
		{"list with a padded cursor", "GET", "/v1/tasks?biz_id=42&cursor=dAABd_CA5AAA%3D", "", 422, []string{"query.cursor"}},

		{"dead with an unknown biz_type", "GET", "/v1/dead?biz_type=nope", "", 422, []string{"query.biz_type"}},
		{"dead with limit 0", "GET", "/v1/dead?limit=0", "", 422, []string{"query.limit"}},
		{"dead with limit 1001", "GET", "/v1/dead?limit=1001", "", 422, []string{"query.limit"}},
		{"dead with no cursor", "GET", "/v1/dead?cursor=%00", "", 422, []string{"query.cursor"}},
		{"dead with a cursor of tasks", "GET", "/v1/dead?cursor=dAABd_CA5AAA", "", 422, []string{"query.cursor"}},
		{"dead with biz_id", "GET", "/v1/dead?biz_id=42", "", 422, []string{"query.biz_id"}},

		{"a retry of an unknown type", "POST", "/v1/biz-types/nope/retry", "", 404, nil},
		{"a retry at no rate", "POST", "/v1/biz-types/order_close/retry", `{"rate":0}`, 422, []string{"body.rate"}},
		{"a retry at a word", "POST", "/v1/biz-types/order_close/retry", `{"rate":"fast"}`, 422, []string{"body.rate"}},
		{"redrive of all without a body", "POST", "/v1/dead/redrive", "", 400, []string{"body"}},
		{"redrive of an unknown biz_type", "POST", "/v1/dead/redrive", `{"biz_type":"nope"}`, 422, []string{"body.biz_type"}},
		{"redrive of an empty biz_type", "POST", "/v1/dead/redrive", `{"biz_type":""}`, 422, []string{"body.biz_type"}},
		{"redrive of 0", "POST", "/v1/dead/redrive", `{"limit":0}`, 422, []string{"body.limit"}},
		{"redrive of -1", "POST", "/v1/dead/redrive", `{"limit":-1}`, 422, []string{"body.limit"}},
		{"redrive of 1.5", "POST", "/v1/dead/redrive", `{"limit":1.5}`, 422, []string{"body.limit"}},
		{"redrive of a string", "POST", "/v1/dead/redrive", `{"limit":"10"}`, 422, []string{"body.limit"}},
		{"redrive of too many", "POST", "/v1/dead/redrive", `{"limit":99999999999999999999}`, 422, []string{"body.limit"}},
		{"redrive with dry_run 1", "POST", "/v1/dead/redrive", `{"dry_run":1}`, 422, []string{"body.dry_run"}},
		{"redrive with dry_run as text", "POST", "/v1/dead/redrive", `{"dry_run":"true"}`, 422, []string{"body.dry_run"}},
		{"redrive with an unknown field", "POST", "/v1/dead/redrive", `{"dryRun":true}`, 422, []string{"body.dryRun"}},

		{"forecast with a wrong step", "GET", "/v1/forecast?step=minute", "", 422, []string{"query.step"}},
		{"forecast with a negative span", "GET", "/v1/forecast?span=-1h", "", 422, []string{"query.span"}},
		{"forecast of an unknown biz_type", "GET", "/v1/forecast?biz_type=nope", "", 422, []string{"query.biz_type"}},
		{"forecast with too many steps", "GET", "/v1/forecast?step=1s&span=1h", "", 422, []string{"query.step"}},
		{"forecast of parts of seconds", "GET", "/v1/forecast?step=1500ms", "", 422, []string{"query.step"}},
		{"forecast of 32 days", "GET", "/v1/forecast?step=1h&span=768h", "", 422, []string{"query.span"}},
		{"limits without a body", "POST", "/v1/cluster/limits", "", 400, []string{"body"}},
		{"limits of nobody", "POST", "/v1/cluster/limits", `{"seq":1,"asks":[{"biz_type":"x"}]}`, 422, []string{"body.from"}},
		{"limits without a seq", "POST", "/v1/cluster/limits", `{"from":"n2 X","asks":[{"biz_type":"x"}]}`, 422, []string{"body.seq"}},
		{"limits of seq 0", "POST", "/v1/cluster/limits", `{"from":"n2 X","seq":0,"asks":[{"biz_type":"x"}]}`, 422, []string{"body.seq"}},
		{"limits of a text", "POST", "/v1/cluster/limits", `{"from":"n2 X","seq":1,"asks":["x"]}`, 422, []string{"body.asks[0]"}},
		{"limits with an unknown member", "POST", "/v1/cluster/limits", `{"from":"n2 X","seq":1,"asks":[{"biz_type":"x","all":true}]}`, 422, []string{"body.asks[0].all"}},
		{"settlement with a member twice", "POST", "/v1/leases/settle", `{"settle":[{"lease":"1-1","do":"ack","do":"nack"}]}`, 422, []string{"body.settle[0].do"}},
		{"settlement with half an emoji", "POST", "/v1/leases/settle", `{"settle":[{"lease":"1-1","do":"nack","error":"\ud83d"}]}`, 422, []string{"body.settle[0].error"}},
		{"settlement that is Latin-1", "POST", "/v1/leases/settle", "{\"settle\":[{\"lease\":\"1-1\",\"do\":\"nack\",\"error\":\"caf\xe9\"}]}", 422, []string{"body.settle[0].error"}},
		{"lease with a leading zero", "GET", "/v1/tasks/007", "", 422, []string{"path.job_id"}},
		{"query that is Latin-1", "GET", "/v1/dead?error=caf%e9", "", 422, []string{"query.error"}},
		{"key that is Latin-1", "GET", "/v1/tasks/by-key?biz_type=order_close&biz_id=%e9&dedup_key=k", "", 422, []string{"query.biz_id"}},
		{"wake without a body", "POST", "/v1/cluster/wake", "", 400, []string{"body"}},
		{"wake cut off", "POST", "/v1/cluster/wake", `{"job_ids":["1"`, 400, []string{"body"}},
		{"wake null", "POST", "/v1/cluster/wake", `null`, 422, []string{"body"}},
		{"wake array", "POST", "/v1/cluster/wake", `["1"]`, 422, []string{"body"}},
		{"settle without a lease", "POST", "/v1/leases/settle", `{"settle":[{"lease":"1-1","do":"ack"},{"do":"ack"}]}`, 422, []string{"body.settle[1].lease"}},
		{"settle of an unknown kind", "POST", "/v1/leases/settle", `{"settle":[{"lease":"1-1","do":"eat"}]}`, 422, []string{"body.settle[0].do"}},
		{"settle with a short ttr", "POST", "/v1/leases/settle", `{"settle":[{"lease":"1-1","do":"extend","ttr":"1ns"}]}`, 422, []string{"body.settle[0].ttr"}},
		{"settle of a number", "POST", "/v1/leases/settle", `{"settle":[7]}`, 422, []string{"body.settle[0]"}},
		{"settle in a lease with a short ttr", "POST", "/v1/biz-types/order_close/lease", `{"settle":[{"lease":"1-1","do":"extend","ttr":"0s"}]}`, 422, []string{"body.settle[0].ttr"}},
		{"settle of none in a lease", "POST", "/v1/biz-types/order_close/lease", `{"settle":[]}`, 422, []string{"body.settle"}},
		{"settle of none", "POST", "/v1/leases/settle", `{"settle":[]}`, 422, []string{"body.settle"}},

		{"wake without job_ids", "POST", "/v1/cluster/wake", `{}`, 422, []string{"body.job_ids"}},
		{"wake of none", "POST", "/v1/cluster/wake", `{"job_ids":[]}`, 422, []string{"body.job_ids"}},
		{"wake of null", "POST", "/v1/cluster/wake", `{"job_ids":null}`, 422, []string{"body.job_ids"}},
		{"wake of one id", "POST", "/v1/cluster/wake", `{"job_ids":"1"}`, 422, []string{"body.job_ids"}},
		{"wake of 1001", "POST", "/v1/cluster/wake", `{"job_ids":[` + strings.Repeat(`1,`, 1000) + `1]}`, 422, []string{"body.job_ids"}},
		{"wake of a wrong id", "POST", "/v1/cluster/wake", `{"job_ids":["1","x"]}`, 422, []string{"body.job_ids[1]"}},
		{"wake of a null id", "POST", "/v1/cluster/wake", `{"job_ids":[null]}`, 422, []string{"body.job_ids[0]"}},
		{"wake of a fraction", "POST", "/v1/cluster/wake", `{"job_ids":[1.5]}`, 422, []string{"body.job_ids[0]"}},
		{"wake of a negative id", "POST", "/v1/cluster/wake", `{"job_ids":[-1]}`, 422, []string{"body.job_ids[0]"}},
		{"wake of a huge id", "POST", "/v1/cluster/wake", `{"job_ids":["` + strings.Repeat("9", 1000) + `"]}`, 422, []string{"body.job_ids[0]"}},
		{"wake of ids in ids", "POST", "/v1/cluster/wake", `{"job_ids":[["1"]]}`, 422, []string{"body.job_ids[0]"}},
		{"wake with job_ids twice", "POST", "/v1/cluster/wake", `{"job_ids":[1],"job_ids":[1]}`, 422, []string{"body.job_ids"}},
		{"wake with an unknown field", "POST", "/v1/cluster/wake", `{"job_ids":[1],"now":true}`, 422, []string{"body.now"}},

		{"change without a body", "PATCH", one, "", 400, []string{"body"}},
		{"change of nothing", "PATCH", one, "{}", 422, []string{"body.action_time"}},
		{"change to both times", "PATCH", one, `{"delay":"1h","action_time":"2030-01-01T00:00:00Z"}`, 422, []string{"body.action_time", "body.delay"}},
		{"change to the past", "PATCH", one, `{"action_time":"2001-01-01T00:00:00Z"}`, 422, []string{"body.action_time"}},
		{"change to a wrong delay", "PATCH", one, `{"delay":"soon"}`, 422, []string{"body.delay"}},
		{"change to a large attribute", "PATCH", one, `{"attribute":"` + strings.Repeat("x", 4097) + `"}`, 422, []string{"body.attribute"}},
		{"change of the status", "PATCH", one, `{"status":"cancelled"}`, 422, []string{"body.status", "body.action_time"}},
		{"change of the biz_id", "PATCH", one, `{"biz_id":"1","delay":"1h"}`, 422, []string{"body.biz_id"}},
		{"change to a timeout of 0", "PATCH", one, `{"timeout":"0s"}`, 422, []string{"body.timeout"}},
		{"change to a long timeout", "PATCH", one, `{"timeout":"25h"}`, 422, []string{"body.timeout"}},
		{"change of the dedup_key", "PATCH", one, `{"delay":"1h","on_duplicate":"move"}`, 422, []string{"body.on_duplicate"}},
		{"change of null", "PATCH", one, `null`, 422, []string{"body"}},
		{"wrong job_id and body", "PATCH", "/v1/tasks/abc", `{"delay":1}`, 422, []string{"path.job_id", "body.delay"}},
	}
	for _, r := range []refusal{{method: "GET"}, {method: "PATCH", body: `{"delay":"1h"}`}, {method: "POST", target: "/cancel"}} {
		key := "/v1/tasks/by-key" + r.target
		is := func(name, query string, status int, locations ...string) {
			list = append(list, refusal{"key " + name, r.method, key + query, r.body, status, locations})
		}
		is("missing", "", 422, "query.biz_type", "query.biz_id", "query.dedup_key")
		is("empty", "?biz_type=&biz_id=&dedup_key=", 422, "query.biz_type", "query.biz_id", "query.dedup_key")
		is("without dedup_key", "?biz_type=order_close&biz_id=7", 422, "query.dedup_key")
		is("without biz_type", "?biz_id=7&dedup_key=k", 422, "query.biz_type")
		is("with an unknown biz_type", "?biz_type=nope&biz_id=7&dedup_key=k", 422, "query.biz_type")
		is("with a long dedup_key", "?biz_type=order_close&biz_id=7&dedup_key="+strings.Repeat("x", 65), 422, "query.dedup_key")
		is("with a long biz_id", "?biz_type=order_close&dedup_key=k&biz_id="+strings.Repeat("x", 129), 422, "query.biz_id")
		is("with a job_id", "?biz_type=order_close&biz_id=7&dedup_key=k&job_id=1", 422, "query.job_id")
		is("that is no task's", "?biz_type=order_close&biz_id=7&dedup_key=k", 404)
		is("that is a text's", "?biz_type=order_close&biz_id=seven&dedup_key=k", 404)
	}
	list = append(list, refusal{"key and body", "PATCH", "/v1/tasks/by-key?biz_type=order_close&biz_id=7", `{"delay":1}`, 422,
		[]string{"query.dedup_key", "body.delay"}})
	for _, action := range []refusal{{method: "GET"}, {method: "PATCH", body: `{"delay":"1h"}`}, {method: "POST", target: "/cancel"}, {method: "POST", target: "/redrive"}} {
		for _, id := range []string{"abc", "-1", "1.5", "1e3", "0x10", "18446744073709551616", "%20", "a%2f1", "1%00", "٤"} {
			list = append(list, refusal{"job_id " + id, action.method, "/v1/tasks/" + id + action.target, action.body, 422, []string{"path.job_id"}})
		}
		for _, id := range []string{"0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"} {
			list = append(list, refusal{"no such task " + id, action.method, "/v1/tasks/" + id + action.target, action.body, 404, nil})
		}
	}
	return append(list,
		refusal{"no such route", "GET", "/v1/nope", "", 404, nil},
		refusal{"root", "GET", "/", "", 404, nil},
		refusal{"trailing slash", "GET", "/v1/tasks/", "", 404, nil},
		refusal{"doubled slash", "POST", "/v1//tasks", bad(`"attribute":""`), 404, nil},
		refusal{"dots", "POST", "/v1/x/../tasks", bad(`"attribute":""`), 404, nil},
		refusal{"encoded dots", "GET", "/v1/tasks/..%2f1", "", 404, nil},
		refusal{"capitals", "GET", "/V1/tasks?biz_id=42", "", 404, nil},
		refusal{"too deep", "GET", one + "/cancel/now", "", 404, nil},
		refusal{"no metrics here", "GET", "/metrics", "", 404, nil},
		refusal{"PUT of a task", "PUT", one, "{}", 405, nil},
		refusal{"DELETE of a task", "DELETE", one, "", 405, nil},
		refusal{"DELETE of all", "DELETE", "/v1/tasks", "", 405, nil},
		refusal{"GET of a wake", "GET", "/v1/cluster/wake", "", 405, nil},
		refusal{"GET of a cancel", "GET", one + "/cancel", "", 405, nil},
		refusal{"POST of a task", "POST", one, "{}", 405, nil},
		refusal{"OPTIONS", "OPTIONS", "/v1/tasks", "", 405, nil},
		refusal{"POST of the documentation", "POST", "/docs", "", 405, nil},
		refusal{"invented method", "BREW", "/v1/tasks", "", 405, nil},
	)
}

// Every refusal names the field, is a 4xx, and changes nothing.
func TestRefusals(t *testing.T) {
	c := newCenter(t)
	jobID := c.submitted(t, 7)
	before := call(c, "GET", "/v1/tasks/"+jobID, "").Body.String()
	rows := c.rows(t)

	names := map[string]bool{}
	for _, r := range append(submitRefusals(), otherRefusals(jobID)...) {
		name := r.method + " " + r.name
		if r.target != "/v1/tasks" {
			name += " " + r.target
		}
		require.False(t, names[name], "%s is there twice", name)
		names[name] = true
		t.Run(name, func(t *testing.T) {
			p := call(c, r.method, r.target, r.body).problem(t, r.status)
			require.Equal(t, r.locations, p.locations())
			if len(p.Errors) > 0 {
				require.Contains(t, p.Detail, p.Errors[0].Location+": "+p.Errors[0].Message, "many clients show nothing else")
			}
			for _, e := range p.Errors {
				require.NotEmpty(t, e.Message)
				require.Less(t, len(e.Message), 300, "what is shown of the input is short")
			}
			require.Equal(t, before, call(c, "GET", "/v1/tasks/"+jobID, "").Body.String())
		})
	}
	require.Equal(t, rows, c.rows(t), "a refused request stores nothing")
	require.Empty(t, c.log.String(), "a refused request is no error of ours")
}

// A refusal says what would be right, not only what is wrong.
func TestRefusalsSayWhatIsRight(t *testing.T) {
	c := newCenter(t)
	for _, r := range []struct{ method, target, body, message string }{
		{"POST", "/v1/tasks", `{"biz_type":"","biz_id":"42","delay":"1h"}`, "body.biz_type: is missing; there are: order_close, "},
		{"POST", "/v1/tasks", badTime(`"action_time":1796000000`), `must be a string like "2026-01-02T15:04:05Z", not a number`},
		{"POST", "/v1/tasks", badTime(`"action_time":"2030-01-01T00:00:00"`), "write day, time and zone, like 2026-01-02T15:04:05Z or 2026-01-02T16:04:05+01:00"},
		{"POST", "/v1/tasks", badTime(`"delay":30`), `must be a string like "30m", not a number`},
		{"POST", "/v1/tasks", badTime(`"delay":"1d"`), "write it like 90s, 30m or 1h30m; a day is 24h"},
		{"POST", "/v1/tasks", bad(`"timeout":30`), `must be a string like "30m", not a number`},
		{"POST", "/v1/tasks", bad(`"atribute":""`), "is no field of this body; there are: biz_type, biz_id, action_time, delay, attribute, "},
		{"POST", "/v1/biz-types/order_close/pause", `{"until":5}`, `must be a string like "2026-01-02T15:04:05Z", not a number`},
		{"GET", "/v1/tasks?from=2030-01-01T00:00:00+01:00", "", "write %2B for it in a query"},
		{"DELETE", "/v1/tasks/1", "", "does not know DELETE, only GET, HEAD, PATCH"},
	} {
		p := call(c, r.method, r.target, r.body)
		require.Contains(t, p.problem(t, p.Code).Detail, r.message)
	}
}

// What a submit is refused for, an item of a batch is refused for too, and its
// neighbours are stored.
func TestRefusalsInABatch(t *testing.T) {
	c := newCenter(t)
	good := `{"biz_type":"order_close","biz_id":"42","delay":"1h"}`
	var items []string
	var want []string
	for _, r := range submitRefusals() {
		if r.status == 422 && r.target == "/v1/tasks" && len(r.body) < 10_000 {
			items = append(items, r.body)
			field := strings.TrimPrefix(strings.TrimPrefix(r.locations[0], "body"), ".")
			want = append(want, field)
		}
	}
	rows := c.rows(t)
	v := call(c, "POST", "/v1/tasks/batch", `{"tasks":[`+good+","+strings.Join(items, ","+good+",")+"]}").read(t, 200)
	results := v["results"].([]any)
	require.Len(t, results, 2*len(items))
	stored := 0
	for i, r := range results {
		if i%2 == 0 {
			require.Contains(t, r, "job_id")
			require.NotContains(t, r, "error")
			stored++
			continue
		}
		require.NotContains(t, r, "job_id")
		e := r.(map[string]any)["error"].(map[string]any)
		require.Equal(t, want[i/2], e["field"], "%s: %v", items[i/2], e)
		require.NotEmpty(t, e["message"])
	}
	require.Equal(t, rows+stored, c.rows(t))
}

func TestMethodsThatAreAllowed(t *testing.T) {
	c := newCenter(t)
	for target, allow := range map[string]string{
		"/v1/tasks":           "GET, HEAD, POST",
		"/v1/tasks/batch":     "GET, HEAD, PATCH, POST", // GET and PATCH mean a task
		"/v1/tasks/42":        "GET, HEAD, PATCH",
		"/v1/tasks/42/cancel": "POST",
		"/v1/tasks/by-key":    "GET, HEAD, PATCH",
		"/v1/dead":            "GET, HEAD",
		"/docs":               "GET, HEAD",
	} {
		a := call(c, "DELETE", target, "")
		a.problem(t, 405)
		require.Equal(t, allow, a.Header().Get("Allow"), target)
	}
}

// Whatever is wrong with a request, its answer is small. Before, 8 MB of unknown keys were answered with 95 MB.
func TestRefusalsAreSmall(t *testing.T) {
	t.Parallel()
	var keys, nested, query strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&keys, `,"k%d":1`, i)
		fmt.Fprintf(&query, "&k%d=%d", i, i)
	}
	for range 500 {
		nested.WriteString(`,{"biz_type":1` + keys.String()[:strings.LastIndex(keys.String()[:1000], ",")] + `}`)
	}
	h := newFake(newFakeCenter(t))
	for _, r := range []struct{ method, target, body string }{
		{"POST", "/v1/tasks", submitBody[:len(submitBody)-1] + keys.String()[:15_000] + `"}`},
		{"POST", "/v1/tasks", submitBody[:len(submitBody)-1] + keys.String()[:strings.LastIndex(keys.String()[:15_000], ",")] + `}`},
		{"PATCH", "/v1/tasks/1", `{"x":1` + keys.String()[:strings.LastIndex(keys.String()[:15_000], ",")] + `}`},
		{"POST", "/v1/tasks/batch", `{"x":1` + keys.String() + `}`},
		{"POST", "/v1/tasks/batch", `{"tasks":[{}` + nested.String() + `]}`},
		{"POST", "/v1/dead/redrive", `{"x":1` + keys.String()[:strings.LastIndex(keys.String()[:15_000], ",")] + `}`},
		{"GET", "/v1/tasks?biz_id=1" + query.String(), ""},
		{"GET", "/v1/dead?x=1" + query.String(), ""},
		{"GET", "/healthz?x=1" + query.String(), ""},
	} {
		a := call(h, r.method, r.target, r.body, "Content-Type", "application/json")
		require.NotContains(t, []int{201, 500, 503}, a.Code, r.target)
		require.Less(t, a.Body.Len(), 64<<10+400*501, r.target)
		if !strings.Contains(r.body, "tasks") {
			require.Less(t, a.Body.Len(), 16<<10, "%s: %s", r.target, a.Body)
		}
	}
}
