package app_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/app"
	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/internal/testrig/await"
)

// consulRules are the rights of a node: the policy of docs/operating.md.
func consulRules(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```hcl\n")
	require.True(t, found)
	rules, _, _ := strings.Cut(rest, "```")
	return rules
}

// tokenFile is a file with an ACL token in a Consul that denies all else.
type tokenFile struct {
	t      *testing.T
	consul *api.Client
	path   string
	token  *api.ACLToken
}

func newTokenFile(t *testing.T, consul *api.Client) *tokenFile {
	return &tokenFile{t: t, consul: consul, path: filepath.Join(t.TempDir(), "token")}
}

// put writes a new token into the file.
func (f *tokenFile) put() {
	f.t.Helper()
	var err error
	f.token, _, err = f.consul.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{Name: "toc"}}}, nil)
	require.NoError(f.t, err)
	require.NoError(f.t, os.WriteFile(f.path, []byte(f.token.SecretID+"\n"), 0o600))
}

// drop deletes the token in Consul.
func (f *tokenFile) drop() {
	f.t.Helper()
	_, err := f.consul.ACL().TokenDelete(f.token.AccessorID, nil)
	require.NoError(f.t, err)
}

// A token is replaced while the nodes run; then it is deleted for good, and nodes with new names take their place. Before,
// the dead ones owned all partitions for ever, and the new ones were ready and reported nothing.
func TestTokensOfConsul(t *testing.T) {
	t.Parallel()
	whole := os.Getenv("TOC_TEST_RUN") == "all"
	options := []testrig.Option{testrig.ConsulACL}
	if !whole { // the sessions of the dead outlast the test
		options = append(options, `-hcl=session_ttl_min = "5m"`)
	}
	server := testrig.StartConsul(t, options...)
	consul, err := api.NewClient(&api.Config{Address: server.Addr(), Token: testrig.ConsulMaster, Transport: &http.Transport{DisableKeepAlives: true}})
	require.NoError(t, err)
	_, _, err = consul.ACL().PolicyCreate(&api.ACLPolicy{Name: "toc", Rules: consulRules(t)}, nil)
	require.NoError(t, err)
	file := newTokenFile(t, consul)
	file.put()
	cfg := inCluster(t, server.Addr(), "toc")
	cfg.Cluster.Consul.TokenFile, cfg.HTTP.Tokens = file.path, nil // /metrics asks for none
	fired := newLedger()
	nodes := runNodes(t, cfg, 2, app.WithProcessor("ledger", fired))

	file.drop()
	for _, n := range nodes {
		awaitTrouble(t, n, "consul refuses this node's heartbeats since ")
		_, list := readiness(t, n)
		require.Contains(t, list, "ACL not found")
		require.Contains(t, list, "cluster.consul.token_file")
		require.NotContains(t, list, file.token.SecretID)
	}
	file.put()
	awaitShares(t, nodes)
	awaitNoTrouble(t, nodes[0], "consul")
	due := submitSpread(t, nodes[0], 20, 0, time.Second)
	fired.awaitAll(t, due)

	file.drop()
	deleted := time.Now()
	for _, n := range nodes {
		awaitTrouble(t, n, "consul refuses this node's heartbeats since ")
		require.NoError(t, n.stop())
	}
	next := newTokenFile(t, consul)
	next.put()
	cfg.Cluster.Consul.TokenFile = next.path
	successors := make([]*center, 2)
	for i := range successors {
		cfg.Node.Name = fmt.Sprintf("next-%d", i)
		successors[i] = run(t, cfg, app.WithProcessor("ledger", fired))
	}
	if !whole { // else they end by themselves
		var told client.Cluster
		await.Success(t, func() (err error) {
			if told, err = askHTTP(successors[0]).Cluster(t.Context()); err == nil && len(told.Unworked) != 2 {
				err = fmt.Errorf("%+v", told)
			}
			return err
		}, "both dead nodes are named")
		awaitTrouble(t, successors[0], "this node owns none of 4 partitions for ")
		await.That(t, func() bool {
			return strings.Contains(scrape(t, successors[0]), `toc_degraded{database="",reason="no_partitions"} 3`)
		}, "it is counted with the two dead nodes")
		_, list := readiness(t, successors[0])
		for _, u := range told.Unworked {
			require.Contains(t, list, fmt.Sprintf("2 partitions: node %s (%s) holds them and has not answered this node since ", u.Node, u.Address))
			require.Contains(t, list, "PUT /v1/session/destroy/"+u.Session+" at Consul")
			_, err := consul.Session().Destroy(u.Session, nil)
			require.NoError(t, err)
		}
	}
	awaitShares(t, successors)
	t.Logf("all partitions are worked again %s after the token was deleted", time.Since(deleted).Round(100*time.Millisecond))
	for _, n := range successors {
		awaitNoTrouble(t, n, "partitions")
	}
	due = submitSpread(t, successors[0], 20, 0, time.Second)
	fired.awaitAll(t, due)
}
