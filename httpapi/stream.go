package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// The bounds of a stream.
const (
	maxCredit      = 10_000
	defaultCredit  = intake.MaxLease
	streamBeat     = 15 * time.Second // between two comments while nothing falls due
	streamPatience = 10 * time.Second // for the client to take what is sent
)

// streamInput is the path and the query of a stream, as streamOf reads them.
type streamInput struct {
	NamedBizType
	Credit int           `query:"credit" minimum:"1" maximum:"10000" default:"256" doc:"How many tasks are sent at most: 1 to 10000, 256 if left out." example:"1000"`
	TTR    durationParam `query:"ttr" doc:"How long the caller has the tasks (time to run) that have no timeout of their own: a Go duration of 100ms to 24h. Left out: pull.ttr of the business type." example:"1m"`
}

// stream leases tasks and sends each as a server-sent event, until the credit is used up.
func (a *api) stream(pattern, name string) {
	op := a.operation(pattern, name)
	handler[streamInput, string](a, pattern, name, typeEvents, func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			writeProblem(w, newProblem(http.StatusForbidden, "a page of another site must not lease tasks")) // by a GET, which sameOrigin lets pass
			return
		}
		if strings.HasPrefix(r.UserAgent(), "Mozilla/") && !strings.Contains(r.Header.Get("Accept"), typeEvents) {
			// So asks a picture or a script of any page, whose browser need not say where it comes from.
			writeProblem(w, newProblem(http.StatusNotAcceptable, "a browser asks for this stream by an EventSource, which accepts text/event-stream"))
			return
		}
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Type", typeEvents)
			return
		}
		ask, credit, err := streamOf(r)
		if err != nil {
			writeProblem(w, a.problem(op, err).(*problem))
			return
		}
		conn := http.NewResponseController(w)
		_ = conn.SetReadDeadline(time.Time{})
		var text []byte
		for begun := false; credit > 0; begun = true {
			asked := time.Now()
			ask.Max = min(credit, intake.MaxLease)
			got, err := a.desk.Lease(r.Context(), ask)
			switch {
			case r.Context().Err() != nil:
				a.desk.GiveBack(r.Context(), got.Tasks)
				return
			case err != nil && !begun:
				writeProblem(w, a.problem(op, err).(*problem))
				return
			case !begun:
				w.Header().Set("Content-Type", typeEvents)
				w.Header().Set("Cache-Control", "no-store")
			}
			text = text[:0]
			for _, t := range got.Tasks {
				text = append(t.AppendJSON(append(text, "event: task\ndata: "...)), "\n\n"...)
			}
			credit -= len(got.Tasks)
			over := credit == 0 || err != nil || begun && len(got.Tasks) == 0 && time.Since(asked) < streamBeat/2 // this node stops
			switch {
			case over:
				text = append(text, "event: end\ndata: {}\n\n"...)
			case len(got.Tasks) == 0:
				text = append(text, ": nothing is due\n\n"...)
			}
			_ = conn.SetWriteDeadline(time.Now().Add(streamPatience))
			_, err = w.Write(text)
			if err == nil {
				err = conn.Flush()
			}
			if err != nil {
				a.desk.GiveBack(r.Context(), got.Tasks)
			}
			if err != nil || over {
				return
			}
			ask.Wait = streamBeat // the first answer comes at once
		}
	})
}

// streamOf reads the path and the query of a stream.
func streamOf(r *http.Request) (ask intake.Lease, credit int, err error) {
	ask.BizType, ask.Max, credit = r.PathValue("name"), 1, defaultCredit
	for name, values := range r.URL.Query() {
		switch value := values[0]; name {
		case "credit":
			if credit, err = strconv.Atoi(value); err != nil || credit < 1 || credit > maxCredit {
				return ask, 0, &task.FieldError{Field: "credit", Message: fmt.Sprintf("is %.64q; give 1 to %d", value, maxCredit)}
			}
		case "ttr":
			if ask.TTR, err = time.ParseDuration(value); err != nil || ask.TTR < intake.MinTTR || ask.TTR > intake.MaxTTR {
				return ask, 0, &task.FieldError{Field: "ttr", Message: fmt.Sprintf("is %.64q; give a Go duration of %v to %v", value, intake.MinTTR, intake.MaxTTR)}
			}
		default:
			return ask, 0, &task.FieldError{Field: clip(name), Message: "is no parameter of this call; there are credit and ttr"}
		}
	}
	return ask, credit, nil
}
