package testrig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// redisd is the engine of Redis, with the append-only file on.
type redisd struct {
	binary string
	flags  []Option // appended last, so they win
}

func findRedis(flags ...Option) (redisd, error) {
	binary, err := findBinary("redis-server")
	return redisd{binary: binary, flags: flags}, err
}

func (redisd) name() string { return "redis" }

func (redisd) prepare(context.Context, string) error { return nil }

func (r redisd) command(dir string, port int) *exec.Cmd {
	cmd := exec.Command(r.binary,
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(port),
		"--dir", dir,
		"--appendonly", "yes",
		"--appendfsync", "everysec",
	)
	cmd.Args = append(cmd.Args, args(r.flags)...)
	cmd.Dir = dir
	return cmd
}

func (redisd) ready(ctx context.Context, _ string, port, pid int) error {
	info, err := redisCall(ctx, loopback(port), "INFO", "server")
	if err != nil {
		return err
	}
	if !strings.Contains(info, fmt.Sprintf("\nprocess_id:%d\r\n", pid)) {
		return errors.New("another server has the port")
	}
	// It listens before it has read its file, and answers INFO meanwhile.
	_, err = redisCall(ctx, loopback(port), "DBSIZE")
	return err
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
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
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
