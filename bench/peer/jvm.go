package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/timeoutcenter/toc/bench/server"
)

// jvmPeer is a system of the JVM: a server, and a process with its client, driven by bench/jvm/src.
type jvmPeer struct {
	lines
	info    Info
	class   string // of bench/jvm/src
	library string // whose jar names the version
	system  string // how people write it
	licence string
	// server is what it works on: of another kind, or (own) the class itself in a second JVM.
	server server.Kind
	own    []string // arguments after the directory and the port; nil: it is server
}

const apache = "Apache-2.0"

// jvmHeap is what each JVM gets.
var jvmHeap = []string{"-Xms1g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g"}

func rocketMQ(precisionMs int) *jvmPeer {
	return &jvmPeer{
		class: "RocketMQ", system: "RocketMQ", licence: apache, library: "rocketmq-broker", own: []string{strconv.Itoa(precisionMs)},
		info: Info{
			Name: fmt.Sprintf("rocketmq/%dms", precisionMs), Parts: everything | Restarts,
			Settings: fmt.Sprintf("SYNC_FLUSH, timerPrecisionMs %d, timerMaxDelaySec 31 days, no fast failure, 16 threads for sends; name server and broker in one JVM; 64 consuming threads; batches: asynchronous sends, 1,000 in flight", precisionMs),
			Durable:  "commit log, an fsync each group: nothing is lost; a consumer's progress is on disk each 5 s",
			Precise:  fmt.Sprintf("slots of %d ms, rounded up", precisionMs),
		},
	}
}

func artemis() *jvmPeer {
	return &jvmPeer{
		class: "Artemis", system: "Artemis", licence: apache, library: "artemis-server", own: []string{},
		info: Info{
			Name: "artemis", Parts: everything | Restarts,
			Settings: "journal NIO, datasync; 16 consumers, ackBatchSize 0; batches: a transaction",
			Durable:  "journal, an fsync each group: nothing is lost; an acknowledgement is not waited for",
			Precise:  "milliseconds",
		},
	}
}

func redisson() *jvmPeer {
	return &jvmPeer{
		class: "Redisson", system: "Redisson", licence: apache, library: "redisson", server: server.Redis,
		info: Info{
			Name: "redisson", Parts: everything | Restarts,
			Settings: "RDelayedQueue; 32 threads in take(), 128 connections; batches by offerAsync",
			Durable:  "Redis AOF everysec: up to a second is lost; take() removes a task before it is processed",
			Precise:  "milliseconds",
		},
	}
}

func quartz() *jvmPeer {
	return &jvmPeer{
		class: "Quartz", system: "Quartz", licence: apache, library: "quartz", server: server.MariaDB,
		info: Info{
			Name: "quartz", Parts: everything | Restarts,
			Settings: "JDBC, clustered; a trigger a task, one durable job; 64 threads, 500 triggers at once, 100 connections; batches by scheduleJobs",
			Durable:  "MariaDB, durable commits: nothing is lost",
			Precise:  "milliseconds",
		},
	}
}

func dbScheduler() *jvmPeer {
	return &jvmPeer{
		class: "DbScheduler", system: "db-scheduler", licence: apache, library: "db-scheduler", server: server.MariaDB,
		info: Info{
			Name: "db-scheduler", Parts: everything | Restarts,
			Settings: "64 threads, fetch-and-lock-on-execute, polls each 100 ms, 100 connections; batches by scheduleBatch",
			Durable:  "MariaDB, durable commits: nothing is lost",
			Precise:  "microseconds",
		},
	}
}

func jobRunr() *jvmPeer {
	return &jvmPeer{
		class: "JobRunr", system: "JobRunr", licence: "LGPL-3.0", library: "jobrunr", server: server.MariaDB,
		info: Info{
			Name: "jobrunr", Parts: everything&^Batches | Restarts,
			Settings: "64 workers, polls each 5 s, the least that it accepts; 100 connections",
			Durable:  "MariaDB, durable commits: nothing is lost",
			Precise:  "microseconds",
		},
	}
}

func (p *jvmPeer) Info() Info { return p.info }

// dir has the libraries and, after bench/jvm/fetch.sh, the classes.
func (p *jvmPeer) dir(env Env) (string, error) {
	dir := filepath.Join(env.Repo, "bench/jvm/target", strings.ToLower(p.class))
	if _, err := os.Stat(filepath.Join(dir, "classes", p.class+".class")); err != nil {
		return "", errors.Join(ErrMissing, fmt.Errorf("%s is not there: run bench/jvm/fetch.sh: %w", p.system, err))
	}
	return dir, nil
}

// command is a JVM with this system's class.
func (p *jvmPeer) command(dir, home string, args ...string) []string {
	list := append([]string{}, jvmHeap...)
	return append(append(list, "-Duser.home="+home, "-cp", filepath.Join(dir, "*")+":"+filepath.Join(dir, "classes"), p.class), args...)
}

var jarVersion = regexp.MustCompile(`-(\d+(\.\d+)+)\.jar$`)

func (p *jvmPeer) Version(ctx context.Context, env Env) (string, error) {
	dir, err := p.dir(env)
	if err != nil {
		return "", err
	}
	jars, _ := filepath.Glob(filepath.Join(dir, p.library+"-[0-9]*.jar"))
	if len(jars) != 1 {
		return "", fmt.Errorf("%d jars of %s in %s, and not one", len(jars), p.library, dir)
	}
	name := p.system + " " + jarVersion.FindStringSubmatch(jars[0])[1]
	java, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return "", errors.Join(ErrMissing, err)
	}
	name += ", " + p.licence + ", Java " + string(regexp.MustCompile(`\d+[.\d]*`).Find(java))
	if p.own != nil {
		return name, nil
	}
	on, err := p.server.Version(ctx)
	return name + "; " + on, err
}

func (p *jvmPeer) Up(ctx context.Context, env Env) error {
	dir, err := p.dir(env)
	if err != nil {
		return err
	}
	kind := p.server
	if p.own != nil {
		kind = server.Own(strings.ToLower(p.class), "java", func(data, port string) []string {
			return p.command(dir, data, append([]string{"server", data, port}, p.own...)...)
		})
	}
	s, err := p.start(ctx, kind, env)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	return p.run(ctx, exec.Command("java", p.command(dir, env.Scratch, "client", port)...))
}
