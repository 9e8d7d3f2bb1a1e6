package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
)

// clientCommands are the commands that speak HTTP. now is the clock that "in
// 29m59s" goes by.
func clientCommands(now func() time.Time) []*cobra.Command {
	return []*cobra.Command{
		submitCommand(now), getCommand(now), whyCommand(now), listCommand(now), forecastCommand(now), cancelCommand(now), rescheduleCommand(now),
		redriveCommand(now), deadCommand(now), operationsCommand(now), auditCommand(now), bizTypesCommand(now), pauseCommand(now),
		resumeCommand(now), retryCommand(now), clusterCommand(now), topCommand(now), pullCommand(now),
	}
}

const (
	defaultServer = "http://127.0.0.1:8080"

	// answerWithin is how long an answer may take. The server itself gives up
	// on a request after 30 s.
	answerWithin = 40 * time.Second
)

// remote is the server that a command speaks to, and how its answer is shown.
type remote struct {
	server  string
	asJSON  bool
	patient bool // waits for the answer as long as it takes
	now     func() time.Time

	duplicate bool // the task of the answer was there before
}

// remoteFlags adds --server and --json. A token comes from the environment only:
// the flags of a process can be read by everybody on its machine.
func remoteFlags(cmd *cobra.Command, now func() time.Time) *remote {
	r := &remote{now: now}
	cmd.Flags().StringVar(&r.server, "server", "", "`URL` of the server (default: TOC_SERVER, or "+defaultServer+"); its token: TOC_TOKEN")
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print the server's JSON, also that of a refusal; a task has its etag in it")
	return r
}

// asking makes a command that only asks the server and shows its answer.
func asking[T any](cmd *cobra.Command, r *remote, ask func(context.Context, *client.Client) (T, error),
	show func(io.Writer, T) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return call(cmd, r, ask, show) }
	return cmd
}

// call asks the server and shows its answer on the command's output.
func call[T any](cmd *cobra.Command, r *remote, ask func(context.Context, *client.Client) (T, error), show func(io.Writer, T) error) error {
	server, err := r.address()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if !r.patient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerWithin)
		defer cancel()
	}
	wire := newRecorder()
	answer, err := ask(ctx, client.New(server, client.WithToken(os.Getenv("TOC_TOKEN")), client.WithHTTPClient(&http.Client{Transport: wire})))
	if r.asJSON && json.Valid(wire.body.Bytes()) {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", wire.text(r.duplicate)); err != nil {
			return err
		}
	}
	if err != nil {
		return explain(server, err)
	}
	if r.asJSON {
		return nil
	}
	return show(cmd.OutOrStdout(), answer)
}

// address is the base URL of the server.
func (r *remote) address() (string, error) {
	from, server := "--server", r.server
	if server == "" {
		from, server = "TOC_SERVER", os.Getenv("TOC_SERVER")
	}
	if server == "" {
		return defaultServer, nil
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return "", usage("%s: give a URL like %s", from, defaultServer)
	}
	return strings.TrimRight(server, "/"), nil
}

// explain says of an error what can be done about it.
func explain(server string, err error) error {
	var refused *client.Error
	var noAnswer *url.Error
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w; set TOC_TOKEN to one of its http.tokens", server, err)
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w", server, err)
	case errors.As(err, &noAnswer) && noAnswer.Timeout():
		return fmt.Errorf("%s does not answer: %w", server, noAnswer.Err)
	case errors.As(err, &noAnswer):
		return fmt.Errorf("%s cannot be asked: %w\nStart a server with: toc serve, or name another one by --server or TOC_SERVER", server,
			noAnswer.Err)
	default:
		return fmt.Errorf("%s: %w", server, err)
	}
}

// recorder keeps the body of the last answer as it came, and its ETag.
type recorder struct {
	http.RoundTripper
	body bytes.Buffer
	etag string
}

// text is the body, valid JSON; a task gets its tag as one more member, and "duplicate" if it is one.
func (r *recorder) text(duplicate bool) string {
	text := string(bytes.TrimSpace(r.body.Bytes()))
	object, ok := strings.CutSuffix(text, "}")
	if !ok || r.etag == "" {
		return text
	}
	tag, _ := json.Marshal(strings.Trim(r.etag, `"`))
	object += `,"etag":` + string(tag)
	if duplicate {
		object += `,"duplicate":true`
	}
	return object + "}"
}

func newRecorder() *recorder {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true // there is one request
	return &recorder{RoundTripper: t}
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	r.etag = answer.Header.Get("ETag")
	r.body.Reset()
	if _, err := r.body.ReadFrom(answer.Body); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(r.body.Bytes()))
	return answer, nil
}
