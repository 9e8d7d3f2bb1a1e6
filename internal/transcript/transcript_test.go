// Package transcript shows toc's protocols step by step. Each file of testdata is a transcript: what is done to a center in
// virtual time, and below each step what it changed. It reads like documentation, and it is a test: the same steps must
// change the same things again.
//
//	# a comment
//	submit order-1 in=5s
//	    row      order-1: pending, due 12:00:05
//
// A line that is neither indented nor a comment is a step: a verb (verbs_test.go) and its arguments. The indented lines below it
// are its output (state_test.go): what happened, and what is different from before. After a change on purpose
//
//	go test ./internal/transcript -rewrite
//
// writes all output anew: read the difference like prose.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the output of all steps into the transcripts")

const indent = "    "

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var got string
			for try := 0; try < plays && got != string(text); try++ {
				synctest.Test(t, func(t *testing.T) { got = play(newStage(t), string(text)) })
				if *rewrite {
					require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
					return
				}
			}
			require.Equal(t, string(text), got, "go test ./internal/transcript -rewrite, and read the difference")
		})
	}
}

// plays is how often a page is played at most: of two things that happen at one instant either may come first, and a page shows one
// order.
const plays = 3

// play does the steps of a transcript, and returns it with their output.
func play(s *stage, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		step := strings.TrimSpace(line)
		if strings.HasPrefix(line, indent) {
			continue // the output of another run
		}
		out.WriteString(line)
		if step == "" || step[0] == '#' {
			continue
		}
		for _, l := range s.do(step) {
			out.WriteString(indent + l + "\n")
		}
	}
	return out.String()
}
