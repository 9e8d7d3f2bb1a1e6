package rest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
)

// idParam is a 64-bit id in a path: to huma a api.ID is a number.
type idParam struct{ api.ID }

// Schema describes the parameter to huma.
func (idParam) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: "^(0|[1-9][0-9]{0,19})$"}
}

// durationText describes a Go duration to huma, for which a api.Duration is any text.
type durationText struct{}

// Schema describes a duration of 0s or more.
func (durationText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: `^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$`}
}

// deadCursor says where a page begins: after a job_id.
type deadCursor struct{ after uint64 }

// UnmarshalText reads a next_cursor.
func (c *deadCursor) UnmarshalText(text []byte) (err error) {
	c.after, _, err = api.ParseCursor(api.CursorDead, text)
	return err
}

// prepare stands before every operation.
//
// It takes the Accept header away: answers are JSON in any case, and some values
// of the header make huma panic. And it rejects a query that can be read in two
// ways, or that is no text. Huma would take the first of two values, and drop
// a value that it cannot unescape.
func (a *handlers) prepare(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	delete(r.Header, "Accept")
	if r.URL.RawQuery != "" {
		if err := ambiguous(r.URL.RawQuery); err != nil {
			_ = huma.WriteErr(a.huma, ctx, http.StatusUnprocessableEntity, "validation failed", err)
			return
		}
	}
	a.budget.withShare(fromPeer(ctx), next)
}

// ambiguous says what is wrong with a query; nil if nothing is.
func ambiguous(rawQuery string) error {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return located("query", "", err.Error())
	}
	if len(values) > maxFaults {
		return located("query", "", fmt.Sprintf("has %d parameters; no route takes more than %d", len(values), maxFaults))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if n := len(values[name]); n > 1 {
			return located("query", clip(name), fmt.Sprintf("is given %d times", n))
		}
		if !utf8.ValidString(name) || !utf8.ValidString(values[name][0]) {
			return located("query", clip(name), "is not valid UTF-8")
		}
	}
	return nil
}
