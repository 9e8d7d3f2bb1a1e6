package testrig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// redisd is the engine of Redis, with the append-only file on.
type redisd struct {
	binary string
	flags  []Option // appended last, so they win
	tls    *serverTLS
}

func findRedis(options ...Option) (redisd, error) {
	binary, err := findBinary("redis-server")
	onlyTLS, flags := takeTLS(options)
	return redisd{binary, flags, onlyTLS}, err
}

func (redisd) name() string { return "redis" }

func (redisd) prepare(context.Context, string) error { return nil }

func (r redisd) command(dir string, port int) *exec.Cmd {
	cmd := exec.Command(r.binary,
		"--bind", "127.0.0.1",
		"--dir", dir,
		"--appendonly", "yes",
		"--appendfsync", "everysec",
	)
	cmd.Args = append(cmd.Args, r.listen(dir, port)...)
	cmd.Args = append(cmd.Args, args(r.flags)...)
	cmd.Dir = dir
	return cmd
}

// listen are the arguments for the port.
func (r redisd) listen(dir string, port int) []string {
	if r.tls == nil {
		return []string{"--port", strconv.Itoa(port)}
	}
	demand := "no"
	if r.tls.demand {
		demand = "yes"
	}
	return []string{"--port", "0", "--tls-port", strconv.Itoa(port), "--unixsocket", socket(dir),
		"--tls-ca-cert-file", r.tls.ca, "--tls-cert-file", r.tls.cert, "--tls-key-file", r.tls.key,
		"--tls-auth-clients", demand, "--tls-replication", "yes"}
}

// way is the address at which the rig reaches the server: host:port, or the path of a socket.
func (r redisd) way(dir string, port int) string {
	if r.tls != nil {
		return socket(dir)
	}
	return loopback(port)
}

func (r redisd) ready(ctx context.Context, dir string, port, pid int) error {
	addr := r.way(dir, port)
	info, err := redisCall(ctx, addr, "INFO", "server")
	if err != nil {
		return err
	}
	if err := isProcess(info, pid); err != nil {
		return err
	}
	// It listens before it has read its file, and answers INFO meanwhile.
	_, err = redisCall(ctx, addr, "DBSIZE")
	return err
}

func isProcess(info string, pid int) error {
	if !hasLine(info, fmt.Sprintf("process_id:%d", pid)) {
		return errors.New("another server has the port")
	}
	return nil
}

func hasLine(info, line string) bool { return strings.Contains(info, "\n"+line+"\r\n") }

// pause waits a moment before the next question.
func pause(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), err)
	case <-time.After(probeEvery):
		return err
	}
}

// redisCall sends one command and returns its answer: a string, a status or a number. The rig needs few commands, which
// is no reason to choose a client library for everyone.
func redisCall(ctx context.Context, addr string, args ...string) (answer string, err error) {
	err = redisSend(ctx, addr, args, func(r *bufio.Reader) error {
		answer, err = readReply(r)
		return err
	})
	return answer, err
}

// redisList is redisCall for a command that answers a list of such.
func redisList(ctx context.Context, addr string, args ...string) (answers []string, err error) {
	err = redisSend(ctx, addr, args, func(r *bufio.Reader) error {
		answers, err = readList(r)
		return err
	})
	return answers, err
}

func redisSend(ctx context.Context, addr string, args []string, read func(*bufio.Reader) error) error {
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	var req strings.Builder
	fmt.Fprintf(&req, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&req, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, req.String()); err != nil {
		return err
	}
	return read(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (string, error) {
	kind, rest, err := readLine(r)
	if err != nil {
		return "", err
	}
	switch kind {
	case '+', ':':
		return rest, nil
	case '$':
		size, err := strconv.Atoi(rest)
		if err != nil || size < 0 {
			return "", err
		}
		body := make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(r, body)
		return string(body[:size]), err
	default:
		return "", fmt.Errorf("unexpected answer %c%s", kind, rest)
	}
}

func readList(r *bufio.Reader) ([]string, error) {
	kind, rest, err := readLine(r)
	if err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(rest)
	if err != nil || kind != '*' || size < 0 {
		return nil, fmt.Errorf("answer %c%s is no list", kind, rest)
	}
	list := make([]string, size)
	for i := range list {
		if list[i], err = readReply(r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// readLine reads an answer's first line: its kind, and what follows. An error that Redis answers is returned as one.
func readLine(r *bufio.Reader) (kind byte, rest string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	kind, rest = line[0], strings.TrimSuffix(line[1:], "\r\n")
	if kind == '-' {
		return 0, "", errors.New(rest)
	}
	return kind, rest, nil
}
