package testrig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// consuld is the engine of Consul: a cluster of one server, that keeps keys, sessions and checks over a restart. Needs
// Consul 1.8.
type consuld struct {
	binary string
	flags  []Option // appended last, so they win
	tls    *serverTLS
}

// ConsulMaster is the token that may do everything on a server with ConsulACL. Others ignore it.
const ConsulMaster = "0a57e200-0000-4000-8000-000000000000"

// ConsulACL makes a Consul deny all that a token does not allow.
const ConsulACL Option = `-hcl=acl { enabled = true, default_policy = "deny", tokens { master = "` + ConsulMaster + `", agent = "` + ConsulMaster + `" } }`

func findConsul(options ...Option) (consuld, error) {
	binary, err := findBinary("consul")
	onlyTLS, flags := takeTLS(options)
	return consuld{binary, flags, onlyTLS}, err
}

func (consuld) name() string { return "consul" }

func (consuld) prepare(context.Context, string) error { return nil }

func (c consuld) command(dir string, port int) *exec.Cmd {
	rpc, serf := consulPorts(port)
	cmd := exec.Command(c.binary, "agent", "-server", "-bootstrap-expect=1",
		"-node="+consulNode(dir),
		"-data-dir="+filepath.Join(dir, "data"),
		"-bind=127.0.0.1",
		"-client=127.0.0.1",
		"-http-port="+strconv.Itoa(port),
		"-server-port="+strconv.Itoa(rpc),
		"-serf-lan-port="+strconv.Itoa(serf),
		"-serf-wan-port=-1",
		"-grpc-port=-1",
		"-dns-port=-1",
		"-log-level=warn",
		"-hcl=performance { raft_multiplier = 1, leave_drain_time = \"10ms\" }",
		"-hcl=limits { http_max_conns_per_client = 10000 }", // all of a test run's come from one address
		"-hcl=disable_update_check = true",
	)
	if c.tls != nil {
		cmd.Args = append(cmd.Args, "-http-port=1", "-https-port="+strconv.Itoa(port), fmt.Sprintf("-hcl=addresses { http = %q }", "unix://"+socket(dir)),
			fmt.Sprintf("-hcl=ca_file = %q\ncert_file = %q\nkey_file = %q\nverify_incoming = %t", c.tls.ca, c.tls.cert, c.tls.key, c.tls.demand))
	}
	cmd.Args = append(cmd.Args, args(c.flags)...)
	cmd.Dir = dir
	return cmd
}

// ready waits until the node's own health is on record: before that nobody can open a session. A consistent read is
// answered only by a leader that has taken up its work.
func (c consuld) ready(ctx context.Context, dir string, port, _ int) error {
	node, addr := consulNode(dir), loopback(port)
	if c.tls != nil {
		addr = socket(dir)
	}
	var self struct {
		Config struct{ NodeName string }
	}
	if err := getJSON(ctx, addr, "/v1/agent/self?token="+ConsulMaster, &self); err != nil {
		return err
	}
	if self.Config.NodeName != node {
		return errors.New("another server has the port")
	}
	var checks []struct{ CheckID, Status string }
	if err := getJSON(ctx, addr, "/v1/health/node/"+node+"?consistent&token="+ConsulMaster, &checks); err != nil {
		return err
	}
	for _, check := range checks {
		if check.CheckID == "serfHealth" && check.Status == "passing" {
			return nil
		}
	}
	return fmt.Errorf("node %s is not healthy yet", node)
}

// consulNode is a name that no other server has: its directory's.
func consulNode(dir string) string { return filepath.Base(dir) }

// consulPorts are where a server with this HTTP port talks to its like: the port's neighbours, which are reserved with it. Where a
// stranger has one the server does not start, and launch tries other ports.
func consulPorts(http int) (rpc, serf int) { return http ^ 1, http ^ 2 }
