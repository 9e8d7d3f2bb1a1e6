package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/wait"
	"github.com/timeoutcenter/toc/server/rest"
)

// receiver takes webhooks.
type receiver struct {
	status   int                       // of the answers
	delay    time.Duration             // before they are given
	verifier *standardwebhooks.Webhook // nil: signatures are not checked
	asJSON   bool
	now      func() time.Time

	mu         sync.Mutex // one line at a time
	out        io.Writer
	complaints io.Writer // about what is no webhook
}

// received is a webhook as it came.
type received struct {
	JobID      client.ID    `json:"job_id"`
	BizType    string       `json:"biz_type"`
	BizID      client.BizID `json:"biz_id"`
	Attempt    int          `json:"attempt"`
	LatenessMS int64        `json:"lateness_ms"`
	Signature  string       `json:"signature"`
	Attribute  string       `json:"attribute,omitempty"`
}

// serve takes webhooks until ctx ends.
func (r *receiver) serve(ctx context.Context, listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := rest.Server("", r, slog.New(slog.DiscardHandler))
	server.WriteTimeout += r.delay
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintf(r.complaints, "Listening on %s. A biz_type with this calls it:\n\n    webhook: {url: http://%[1]s/}\n\nCtrl-C ends it.\n",
		listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shownAttribute is how much of an attribute is shown, in characters.
const shownAttribute = 60

// maxCall is how long a body may be, in bytes: a task takes 32 KiB at most, and a batch has 256 of them.
const maxCall = 9 << 20

// tasksOf reads the body of a call: a task, or an array of them.
func tasksOf(body []byte) (list []client.Task, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte{'['}) {
		err = json.Unmarshal(body, &list)
	} else {
		list = make([]client.Task, 1)
		err = json.Unmarshal(body, &list[0])
	}
	for i := range list {
		if err == nil && (list[i].JobID == 0 || list[i].ActionTime.IsZero()) {
			err = errors.New("it has no job_id or no action_time")
		}
	}
	return list, err
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	came := r.now()
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "toc sends a POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxCall))
	var list []client.Task
	if err == nil {
		list, err = tasksOf(body)
	}
	if err != nil {
		r.print(r.complaints, fmt.Sprintf("the body is not a task: %v\n", err))
		http.Error(w, "the body is not a task: "+err.Error(), http.StatusBadRequest)
		return
	}
	signature := r.signature(req, body)
	for _, t := range list {
		r.print(r.out, r.line(received{
			JobID: t.JobID, BizType: t.BizType, BizID: t.BizID, Attempt: t.Attempts + 1,
			LatenessMS: came.Sub(t.ActionTime.Time()).Milliseconds(), Signature: signature, Attribute: t.Attribute,
		}))
	}
	if wait.For(req.Context(), r.delay) != nil {
		return
	}
	status := r.status
	if r.verifier != nil && signature != "ok" {
		status = http.StatusUnauthorized
	}
	w.WriteHeader(status)
}

// signature says what became of a call's signature.
func (r *receiver) signature(req *http.Request, body []byte) string {
	switch {
	case req.Header.Get(standardwebhooks.HeaderWebhookSignature) == "":
		return "none"
	case r.verifier == nil:
		return "not checked"
	case r.verifier.Verify(body, req.Header) != nil:
		return "wrong"
	}
	return "ok"
}

// line is a webhook in one line.
func (r *receiver) line(got received) string {
	if r.asJSON {
		text, _ := json.Marshal(got)
		return string(text) + "\n"
	}
	attribute := []rune(got.Attribute)
	if len(attribute) > shownAttribute {
		attribute = append(attribute[:shownAttribute], '…')
	}
	return strings.TrimSpace(fmt.Sprintf("%s  %s %s  attempt %d  %d ms late  signature %s  %s", got.JobID, oneLine(got.BizType),
		oneLine(got.BizID.String()),
		got.Attempt, got.LatenessMS, got.Signature, oneLine(string(attribute)))) + "\n"
}

func (r *receiver) print(out io.Writer, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.WriteString(out, line)
}
