package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/cluster/peerproof"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// isAmongNodes are the routes that take no token, but a node's proof.
var isAmongNodes = map[string]bool{"/v1/cluster/wake": true, "/v1/cluster/limits": true, "/v1/cluster/unanswered": true}

// checkPeers refuses who says to be a node and does not prove it.
func (a *handlers) checkPeers(next http.Handler) http.Handler {
	refused := func(w http.ResponseWriter, err error) {
		writeProblem(w, newProblem(http.StatusUnauthorized, err.Error()))
	}
	return a.cfg.Peers.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, forwarded := r.Header[api.HeaderForwarded]
		switch among := isAmongNodes[r.URL.Path]; {
		case among && a.cfg.Alone:
			writeProblem(w, newProblem(http.StatusNotFound, "there are no other nodes: cluster.provider is single"))
			return
		case (among || forwarded) && a.cfg.Peers.Proves() && !peerproof.Proved(r.Context()):
			refused(w, errors.New("this is for other nodes of the cluster, which prove that they know cluster.secret"))
			return
		}
		next.ServeHTTP(w, r)
	}), refused)
}

// fromPeer marks the context of a forwarded request for the center.
func fromPeer(ctx huma.Context) huma.Context {
	r, _ := humago.Unwrap(ctx)
	if _, forwarded := r.Header[api.HeaderForwarded]; !forwarded {
		return ctx
	}
	question, _ := strconv.ParseUint(r.Header.Get(api.HeaderQuestion), 10, 64)
	return huma.WithContext(ctx, intake.Forwarded(ctx.Context(), r.Header.Get(api.HeaderForwarded), question))
}

type unansweredInput struct {
	Node string `header:"Toc-Forwarded" doc:"The node that asks."`
}

func (a *handlers) unanswered(_ context.Context, in *unansweredInput) (api.Unanswered, error) {
	node, err := url.PathUnescape(in.Node)
	if err != nil {
		return api.Unanswered{}, &task.FieldError{Field: api.HeaderForwarded, Message: "is not the escaped name of a node"}
	}
	said := api.Unanswered{Questions: []api.ID{}}
	for _, q := range a.cfg.Unanswered(node) {
		said.Questions = append(said.Questions, api.ID(q))
	}
	return said, nil
}

func (a *handlers) wake(ctx context.Context, in *body[api.WakeRequest]) (api.Woken, error) {
	jobIDs := make([]uint64, len(in.sent.JobIDs))
	for i, id := range in.sent.JobIDs {
		jobIDs[i] = uint64(id)
	}
	return api.Woken{Taken: a.center.Wake(ctx, jobIDs)}, nil
}
