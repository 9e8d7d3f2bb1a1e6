package configs

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told is what a Watcher said.
type told struct {
	capacity int // queue.capacity of the new Config
	err      error
}

// watched is a running Watcher on a file of its own. It lives in a synctest
// bubble: time passes at once, and stands still while someone is at work.
type watched struct {
	t    *testing.T
	path string
	*Watcher
	mu   sync.Mutex // guards said
	said []told
	stop func()
}

func capacity(n int) string { return "queue: {capacity: " + strconv.Itoa(n) + "}\n" }

func watch(t *testing.T, content string) *watched {
	w := &watched{t: t, path: write(t, content)}
	current, err := Load(w.path, nil)
	require.NoError(t, err)
	w.Watcher = NewWatcher(w.path, nil, current, time.Second, func(c Config, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.said = append(w.said, told{c.Queue.Capacity, err})
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	synctest.Wait()
	return w
}

// put replaces the file's content the way that a careful writer does it.
func (w *watched) put(content string) {
	next := w.path + ".next"
	require.NoError(w.t, os.WriteFile(next, []byte(content), 0o600))
	require.NoError(w.t, os.Rename(next, w.path))
}

// after lets time pass and takes what was said meanwhile.
func (w *watched) after(d time.Duration) []told {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// look is long enough for the next look at the file and for it to settle.
const look = time.Second + 2*settle

func TestWatchTellsANewConfigOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, capacity(1))
		require.Empty(t, w.after(time.Minute), "nothing changed")

		w.put(capacity(2))
		require.Equal(t, []told{{capacity: 2}}, w.after(look))
		require.Empty(t, w.after(time.Minute))

		w.put("# words only\n" + capacity(2))
		require.Empty(t, w.after(look), "it means the same")
		w.stop()
	})
}

func TestWatchTellsABadFileOncePerContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, capacity(1))

		w.put(capacity(0))
		said := w.after(look)
		require.Len(t, said, 1)
		require.ErrorContains(t, said[0].err, "queue.capacity: 0 is too little")
		require.Empty(t, w.after(time.Minute))

		w.put("")
		said = w.after(look)
		require.Len(t, said, 1)
		require.ErrorContains(t, said[0].err, "holds no settings")

		require.NoError(t, os.Remove(w.path))
		said = w.after(look)
		require.Len(t, said, 1)
		require.ErrorContains(t, said[0].err, "no such file")
		require.Empty(t, w.after(time.Minute))

		w.put(capacity(1))
		require.Equal(t, []told{{capacity: 1}}, w.after(look), "good again, though nothing is new")
		w.stop()
	})
}

func TestWatchTellsWhatChangedBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, capacity(2))
		w := NewWatcher(path, nil, Default(), time.Second, func(c Config, err error) {
			require.NoError(t, err)
			require.Equal(t, 2, c.Queue.Capacity)
		})
		w.runOnce(t.Context(), false)
		require.Equal(t, 2, w.current.Queue.Capacity)
	})
}

func TestWatchTellsAFileThatWasEmptiedBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []error
		w := NewWatcher(write(t, ""), nil, Default(), 0, func(_ Config, err error) { said = append(said, err) })
		w.runOnce(t.Context(), false)
		require.Len(t, said, 1)
		require.ErrorContains(t, said[0], "holds no settings")
	})
}

func TestPokeLooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, capacity(1))
		w.after(time.Second + time.Millisecond)
		w.put(capacity(2))
		w.Poke()
		require.Equal(t, []told{{capacity: 2}}, w.after(2*settle), "long before the next look")
		w.Poke()
		require.Equal(t, []told{{capacity: 2}}, w.after(2*settle), "who asks is answered, though nothing is new")
		require.Empty(t, w.after(time.Minute))
		w.stop()
	})
}

// An editor that empties the file and then writes it in pieces, each of which
// would be a valid file, must not be believed before it is through.
func TestWatchWaitsUntilTheFileSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, capacity(1))
		w.after(time.Second)
		for _, piece := range []string{"", capacity(2), capacity(2) + "shutdown: {drain: 1s}\n", capacity(3)} {
			require.NoError(t, os.WriteFile(w.path, []byte(piece), 0o600))
			w.Poke()
			require.Empty(t, w.after(settle-time.Millisecond))
		}
		require.Equal(t, []told{{capacity: 3}}, w.after(look))
		w.stop()
	})
}

// Kubernetes turns a symlink to a directory; the file's own path stays.
func TestWatchSeesASymlinkTurned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for name, content := range map[string]string{"a": capacity(1), "b": capacity(2)} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name, "toc.yaml"), []byte(content), 0o600))
		}
		require.NoError(t, os.Symlink("a", filepath.Join(dir, "data")))
		path := filepath.Join(dir, "data", "toc.yaml")

		current, err := Load(path, nil)
		require.NoError(t, err)
		var said []told
		w := NewWatcher(path, nil, current, time.Second, func(c Config, err error) { said = append(said, told{c.Queue.Capacity, err}) })
		w.runOnce(t.Context(), false)
		require.Empty(t, said)

		require.NoError(t, os.Symlink("b", filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "data")))
		w.runOnce(t.Context(), false)
		require.Equal(t, []told{{capacity: 2}}, said)
	})
}

func TestWatchReadsTheEnvironmentOverTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, environ := write(t, capacity(1)), []string{"TOC_QUEUE_CAPACITY=9"}
		current, err := Load(path, environ)
		require.NoError(t, err)
		w := NewWatcher(path, environ, current, 0, func(Config, error) { t.Error("nothing changed") })
		require.NoError(t, os.WriteFile(path, []byte(capacity(2)), 0o600))
		w.runOnce(t.Context(), false)
	})
}

func TestWatchWithoutAFileWaitsForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofCode := Default()
		ofCode.Queue.Capacity = 7
		w := NewWatcher("", nil, ofCode, time.Second, func(Config, error) { t.Error("nothing to watch") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.Poke()
		require.NoError(t, w.Run(ctx))
		require.Error(t, ctx.Err())
	})
}
