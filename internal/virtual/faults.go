package virtual

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/configs"
)

// Cut holds all that two hosts send each other until Mend; new connections wait. A host is a node's name, redis, consul, or
// database-0, database-1 …
func (w *World) Cut(a, b string) { w.net.Cut(a, b) }

// Mend ends a Cut.
func (w *World) Mend(a, b string) { w.net.Mend(a, b) }

// Delay makes each packet between two hosts take a time; 0 ends that.
func (w *World) Delay(a, b string, d time.Duration) { w.net.Delay(a, b, d) }

// FlushRedis loses all that Redis has.
func (w *World) FlushRedis() {
	w.rest.stir(recovers)
	w.redis.FlushAll()
}

// SilenceRedis makes Redis answer nothing until MendRedis. New connections to it are refused: the client connects under a
// mutex that other goroutines of it wait for, and in a bubble time would stand still.
func (w *World) SilenceRedis() { w.net.Stop(redisHost) }

// MendRedis ends SilenceRedis.
func (w *World) MendRedis() { w.net.Resume(redisHost) }

// HangDatabase makes a database answer nothing until MendDatabase. A statement that was given up meanwhile is not done later.
func (w *World) HangDatabase(d int) { w.net.Stop(databaseHost(d)) }

// StopDatabase ends the process of a database until MendDatabase: nobody can connect, and what is under way gets no answer.
func (w *World) StopDatabase(d int) {
	db := w.database(d)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.down = true
}

// SlowDatabase makes each statement of a database take a time more.
func (w *World) SlowDatabase(d int, by time.Duration) {
	w.rest.stir(recovers)
	db := w.database(d)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.slow = by
}

// LockDatabase begins a transaction that keeps all others from writing to a database.
func (w *World) LockDatabase(d int) {
	w.rest.stir(recovers)
	if err := w.database(d).lock(); err != nil {
		w.t.Errorf("lock of database %d: %v", d, err)
	}
}

// FillDatabase makes the disk of a database full: it can be read.
func (w *World) FillDatabase(d int) {
	w.rest.stir(recovers)
	db := w.database(d)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.full = true
}

// MendDatabase ends all faults of a database.
func (w *World) MendDatabase(d int) {
	db := w.database(d)
	db.unlock()
	db.mu.Lock()
	db.slow, db.full, db.down = 0, false, false
	db.mu.Unlock()
	w.net.Resume(databaseHost(d))
}

// MendAll ends all faults but those of clocks.
func (w *World) MendAll() {
	w.net.MendAll()
	w.mu.Lock()
	numbers := make([]int, 0, len(w.databases))
	for d := range w.databases {
		numbers = append(numbers, d)
	}
	w.mu.Unlock()
	for _, d := range numbers {
		w.MendDatabase(d)
	}
}

// EndSession ends the session of a node in Consul, as Consul does when it has lost sight of the node. It reports whether there
// was one.
func (w *World) EndSession(node string) bool {
	return w.consul.EndSession(w.Config(node).Cluster.Consul.Prefix+"/nodes/"+node) > 0
}

// StopConsul ends Consul's process; StartConsul starts it again, with all that it had.
func (w *World) StopConsul() { w.consul.Stop() }

// StartConsul ends StopConsul.
func (w *World) StartConsul() { w.consul.Start() }

// Reload puts business types in force on all nodes, also on nodes that start later. It does not wait. The World must have
// Reloads.
func (w *World) Reload(types []configs.BizType) {
	w.rest.stir(recovers)
	w.mu.Lock()
	w.types = types
	w.mu.Unlock()
	for _, n := range w.Nodes() {
		w.writeConfig(n.Name)
		n.App.Reload()
	}
}

// SwitchEngine is Reload with another mode for a business type.
func (w *World) SwitchEngine(bizType, mode string) {
	types := w.Config("any").BizTypes
	changed := make([]configs.BizType, len(types))
	for i, b := range types {
		if b.Name == bizType {
			b.Mode = mode
		}
		changed[i] = b
	}
	w.Reload(changed)
}

// writeConfig writes the configuration file of a node, as an editor does that puts a new file in the place of the old one.
func (w *World) writeConfig(node string) {
	w.files.Lock()
	defer w.files.Unlock()
	c := w.Config(node)
	c.Cluster.Provider = configs.ProviderSingle // a file may not name a cluster on SQLite; of a changed file only the business types count
	text, err := yaml.Marshal(c)
	path := w.configFile(node)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		w.t.Errorf("configuration file %s: %v", filepath.Base(path), err)
	}
}

var errNoNode = errors.New("no node is up")

// Pause keeps the tasks of a business type from starting, by any node. The error is that of app.App.Pause.
func (w *World) Pause(ctx context.Context, bizType string) error {
	err := errNoNode
	for _, n := range w.Nodes() {
		if _, err = n.App.Pause(ctx, bizType, client.Pause{Reason: "a test"}); err == nil {
			return nil
		}
	}
	return err
}

// Unpause ends a Pause.
func (w *World) Unpause(ctx context.Context, bizType string) error {
	err := errNoNode
	for _, n := range w.Nodes() {
		if _, err = n.App.Resume(ctx, bizType); err == nil {
			return nil
		}
	}
	return err
}
