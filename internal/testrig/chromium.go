package testrig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Chromium gives the test a headless browser and answers the address of its DevTools, such as
// "http://127.0.0.1:15842". One browser serves all tests of this process, and ends with it: a test opens a context of
// its own in it, with its own cookies, and closes that. The test fails when there is no browser to be had.
func Chromium(t testing.TB) string {
	t.Helper()
	needsServer(t)
	addr, err := ofThisProcess.chromium.addr(t.Context())
	if err != nil {
		t.Fatalf("testrig: this test needs a browser: %v", err)
	}
	return "http://" + addr
}

// chromium is the engine of a headless Chromium or Chrome. Its port is that of its DevTools.
type chromium struct{ binary string }

// chromiumNames are the names that distributions give to the program.
var chromiumNames = []string{"chromium", "chromium-browser", "google-chrome"}

func findChromium() (chromium, error) {
	for _, name := range chromiumNames {
		if binary, err := findBinary(name); err == nil {
			return chromium{binary}, nil
		}
	}
	return chromium{}, fmt.Errorf("%s %w", chromiumNames[0], ErrNotInstalled)
}

func (chromium) name() string { return "chromium" }

func (chromium) prepare(context.Context, string) error { return nil }

// command keeps the browser from asking anybody on the network for anything. Its sandbox is off: root cannot have it, nor
// can many containers, and tests show it only their own pages.
func (c chromium) command(dir string, port int) *exec.Cmd {
	cmd := exec.Command(c.binary,
		"--headless",
		"--no-sandbox",
		"--disable-gpu",
		"--disable-dev-shm-usage",
		"--disable-quic",
		"--disable-breakpad",
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-default-apps",
		"--disable-extensions",
		"--disable-sync",
		"--disable-features=Translate,MediaRouter,OptimizationHints",
		"--no-first-run",
		"--no-default-browser-check",
		"--password-store=basic",
		"--hide-scrollbars",
		"--font-render-hinting=none",
		"--lang=en-US",
		// It has a mouse, which can hover and is fine, though nobody moves it.
		"--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
		// Tabs that a test does not look at keep their pace.
		"--disable-background-timer-throttling",
		"--disable-backgrounding-occluded-windows",
		"--disable-renderer-backgrounding",
		"--user-data-dir="+filepath.Join(dir, "profile"),
		"--remote-debugging-address=127.0.0.1",
		"--remote-debugging-port="+strconv.Itoa(port),
		"about:blank",
	)
	cmd.Dir = dir
	// HOME: what it keeps outside of its profile (crash reports, certificates) goes with the directory too.
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	return cmd
}

// listening is what it logs, once, when it is there for others.
const listening = "DevTools listening on "

// ready compares the address with the browser's id that answers with the one that ours has logged.
func (chromium) ready(ctx context.Context, dir string, port, _ int) error {
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	_, ours, _ := strings.Cut(string(log), listening)
	ours, _, complete := strings.Cut(ours, "\n")
	if !complete {
		return errors.New("it does not listen yet")
	}
	var version struct{ WebSocketDebuggerURL string }
	if err := getJSON(ctx, loopback(port), "/json/version", &version); err != nil {
		return err
	}
	if version.WebSocketDebuggerURL != ours {
		return errors.New("another browser has the port")
	}
	return nil
}
