package rest_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// To JSON Schema 162.0 is an integer, and a pattern of digits matches more than 64 bits hold. Both are refused by name, and no id that the
// pattern of a path matches is.
func TestNumbersAreDigits(t *testing.T) {
	t.Parallel()
	h := newFake(newFakeCenter(t))
	const ids = " is not an id; write a whole number from 0 to 18446744073709551615, in digits only and without leading zeros"
	for _, r := range []struct{ method, target, body, detail string }{
		{"GET", "/v1/tasks?biz_id=1&limit=162.0", "", `query.limit: "162.0" is not a whole number in digits only`},
		{"GET", "/v1/dead?limit=1e2", "", `query.limit: "1e2" is not a whole number in digits only`},
		{"POST", "/v1/dead/redrive", `{"limit":162.0}`, "body.limit: 162.0 is not a whole number in digits only, 1 or more"},
		{"POST", "/v1/dead/discard", `{"limit":1e2}`, "body.limit: 1e2 is not a whole number in digits only, 1 or more"},
		{"POST", "/v1/biz-types/order_close/lease", `{"max":10.0}`, "body.max: 10.0 is not a whole number in digits only, 1 or more"},
		{"GET", "/v1/tasks/18446744073709551616", "", `path.job_id: invalid value: "18446744073709551616"` + ids},
		{"PATCH", "/v1/tasks/99999999999999999999", `{"delay":"1h"}`, `path.job_id: invalid value: "99999999999999999999"` + ids},
		{"GET", "/v1/operations/18446744073709551616", "", `path.id: invalid value: "18446744073709551616"` + ids},
	} {
		require.Equal(t, r.detail, call(h, r.method, r.target, r.body).problem(t, 422).Detail, r.target+r.body)
	}

	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   struct{ Pattern string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(call(h, "GET", "/openapi.json", "").Body.Bytes(), &doc))
	ofTasks := 0
	for path, operations := range doc.Paths {
		for _, o := range operations {
			for _, p := range o.Parameters {
				if p.In != "path" || p.Name != "job_id" && p.Name != "id" {
					continue
				}
				ofTasks++
				pattern := regexp.MustCompile(p.Schema.Pattern)
				for _, id := range []string{"0", "413351953711104", "9223372036854775807", "9999999999999999999"} {
					require.True(t, pattern.MatchString(id), path)
				}
				for _, none := range []string{"", "007", "-1", "1.0", "18446744073709551616"} {
					require.False(t, pattern.MatchString(none), path)
				}
			}
		}
	}
	require.Greater(t, ofTasks, 5)
	require.Equal(t, 200, call(h, "GET", "/v1/tasks/9999999999999999999", "").Code)
}
