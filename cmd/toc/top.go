package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/timeoutcenter/toc/internal/wait"
)

// topEvery is the time between two readings.
const topEvery = time.Second

func topCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live what the center does, faults first",
		Long: `Show live what the center does: the faults that /readyz reports, then business
types, nodes and databases. It asks --server for the nodes, and each of them for
its metrics, once a second. Rates and lateness are those of the last second.
q or Ctrl-C ends it. Without a terminal it prints once.`,
		Args: noArguments,
	}
	r := remoteFlags(cmd, now)
	cmd.Flags().Lookup("json").Usage = "print once, as JSON"
	once := cmd.Flags().Bool("once", false, "print once, after a second")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server, err := r.address()
		if err != nil {
			return err
		}
		ctx, reader := cmd.Context(), newTopReader(server, now)
		before, err := reader.read(ctx)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if screen, is := out.(*os.File); is && !*once && !r.asJSON && isTerminal(out) {
			return reader.live(ctx, screen, before)
		}
		if err := wait.For(ctx, topEvery); err != nil {
			return err
		}
		after, err := reader.read(ctx)
		if err != nil {
			return err
		}
		t := newTop(before, after)
		if r.asJSON {
			return json.NewEncoder(out).Encode(t)
		}
		return t.write(out, server)
	}
	return cmd
}

// Sequences of a terminal.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	endLine     = "\x1b[K\r\n"
	clearBelow  = "\x1b[J"
)

// live draws the picture each second until ctx ends or a key asks for the end.
func (t *topReader) live(ctx context.Context, screen *os.File, before reading) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		if state, err := term.MakeRaw(in); err == nil {
			defer func() { _ = term.Restore(in, state) }()
			go awaitQuit(os.Stdin, stop)
		}
	}
	fmt.Fprint(screen, enterScreen)
	defer fmt.Fprint(screen, leaveScreen)
	now := before
	for {
		var text bytes.Buffer
		picture := newTop(before, now)
		if err := picture.write(&text, t.server); err != nil {
			return err
		}
		draw(screen, text.String())
		if wait.For(ctx, topEvery) != nil {
			return nil // asked for
		}
		next, err := t.read(ctx)
		for err != nil && ctx.Err() == nil {
			draw(screen, fmt.Sprintf("! %v\n\n%s", err, text.String()))
			_ = wait.For(ctx, topEvery)
			next, err = t.read(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		before, now = now, next
	}
}

// draw replaces what the screen shows.
func draw(screen *os.File, text string) {
	width, height, err := term.GetSize(int(screen.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	var frame strings.Builder
	frame.WriteString(toTop)
	for i, line := range fit(text, width, height) {
		if i > 0 {
			frame.WriteString(endLine)
		}
		frame.WriteString(line)
	}
	frame.WriteString("\x1b[K" + clearBelow)
	_, _ = io.WriteString(screen, frame.String())
}

// awaitQuit calls quit at q or Ctrl-C.
func awaitQuit(keys io.Reader, quit func()) {
	const ctrlC = 3
	key := make([]byte, 1)
	for {
		if _, err := keys.Read(key); err != nil || key[0] == 'q' || key[0] == ctrlC {
			quit()
			return
		}
	}
}
