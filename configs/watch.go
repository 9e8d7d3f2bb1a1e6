package configs

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/timeoutcenter/toc/internal/wait"
)

// settle is how long a changed file must stay the same before it is believed:
// an editor may empty it first, write it in pieces, or put another in its place.
const settle = 50 * time.Millisecond

// Watcher reports each new content of a configuration file. It reads the file
// again and again instead of asking the kernel for events, because those stay
// out when a symlink on the way to the file is turned (Kubernetes) or the file
// lies on a network.
type Watcher struct {
	path     string
	environ  []string
	interval time.Duration
	onChange func(Config, error)
	poked    wait.Signal

	current Config      // in force
	seen    snapshot    // the content that was last looked into
	bad     string      // why that was refused; "": it was not
	secrets secretFiles // that it names
}

// snapshot is the content of the file and of the files that it names, at one look.
type snapshot struct{ data, secrets, err string }

// NewWatcher watches the file at path, and the files of secrets that it and the
// environment name; current is the Config that Load gave for it at the start, so
// that a change made since then is reported too. It looks every interval (0 is one
// second). A path of "" is no file.
//
// onChange runs in the goroutine of Run, one call at a time. It gets each new
// Config that is valid and differs from the last, or else the error of Load:
// once for each bad content. When a bad file is good again, and after a Poke, it is
// called even though the Config may be the one in force.
func NewWatcher(path string, environ []string, current Config, interval time.Duration, onChange func(Config, error)) *Watcher {
	if interval <= 0 {
		interval = time.Second
	}
	return &Watcher{
		path:     path,
		environ:  environ,
		interval: interval,
		onChange: onChange,
		poked:    wait.NewSignal(),
		current:  current,
		seen:     snapshot{err: "not looked yet"},
	}
}

// Poke makes Run look at once (SIGHUP). It never blocks.
func (w *Watcher) Poke() { w.poked.Set() }

// Run looks until ctx ends; then it returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	if w.path == "" {
		if _, secrets, _ := parse("", nil, w.environ); len(secrets) == 0 { // there is nothing to look at
			<-ctx.Done()
			return nil
		}
	}
	for asked := false; ctx.Err() == nil; {
		w.runOnce(ctx, asked)
		pause, roused := wait.Slowed(ctx, w.interval)
		asked = false
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-roused:
		case <-w.poked:
			asked = true
		}
	}
	return nil
}

// runOnce looks once, and reports the content if it is new or asked for. It waits until
// the content settles.
func (w *Watcher) runOnce(ctx context.Context, asked bool) {
	found := w.look()
	for again := found; found != w.seen; found = again {
		if wait.For(ctx, settle) != nil {
			return
		}
		if again = w.look(); again == found {
			break
		}
	}
	if found == w.seen && !asked {
		return
	}
	w.tell(found, asked)
	select {
	case <-w.poked: // that was the answer
	default:
	}
}

func (w *Watcher) look() snapshot {
	var data []byte
	if w.path != "" {
		var err error
		if data, err = readFile(w.path); err != nil {
			return snapshot{err: "read configuration: " + err.Error()}
		}
	}
	return snapshot{data: string(data), secrets: w.secrets.contents()}
}

// Parses a content and calls onChange if the result is new or asked for.
func (w *Watcher) tell(found snapshot, asked bool) {
	w.seen = found
	var c Config
	err := errors.New(found.err)
	if found.err == "" {
		c, w.secrets, err = parse(w.path, []byte(found.data), w.environ)
	}
	wasBad := w.bad
	if w.bad = ""; err != nil {
		w.bad = err.Error()
	}
	// The same error again means that a file of secrets has come to light with it.
	if asked || w.bad != wasBad || err == nil && !reflect.DeepEqual(c, w.current) {
		if err == nil {
			w.current = c
		}
		w.onChange(c, err)
	}
}
