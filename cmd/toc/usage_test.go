package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrongUsageIsExitCodeTwo(t *testing.T) {
	t.Setenv("TOC_SERVER", "127.0.0.1:1") // nobody is there; exit code 1 would tell that it was asked
	const submit = "submit --biz-type order_close --biz-id 42 "
	for line, says := range map[string]string{
		"nosuch":                             `unknown command "nosuch"; see: toc --help`,
		"sumbit":                             `unknown command "sumbit"; did you mean: toc submit?`,
		"re":                                 `"re"; did you mean: toc receive, or: toc redrive, or: toc reschedule, or: toc resume?`,
		"dead lst":                           `unknown command "lst"; did you mean: toc dead list?`,
		"--nosuch":                           "unknown flag: --nosuch",
		"version 1":                          `toc version takes no argument, and "1" is one; see: toc version --help`,
		"serve toc.yaml":                     `toc serve takes no argument, and "toc.yaml" is one`,
		"list 42":                            "use: toc list --biz-id 42",
		"job-id 42":                          "use: toc job-id --biz-id 42",
		"config check toc.yaml":              "use: toc config check --config toc.yaml",
		"serve --nosuch":                     "unknown flag: --nosuch",
		"serve --log-format xml":             `--log-format "xml"`,
		"serve --log-level loud":             `--log-level "loud"`,
		"config":                             "use: toc config check",
		"config nosuch":                      "unknown command",
		"demo --tasks 0":                     "--tasks 0",
		"bench nosuch":                       `invalid argument "nosuch"`,
		"job-id":                             `"biz-id" not set`,
		"job-id --biz-id=":                   "is empty",
		"receive --listen 9000":              `--listen "9000": give host:port`,
		"receive --answer 100":               "--answer 100: give 200 to 599",
		"receive --delay -1s":                "--delay -1s: give 0s or more",
		"receive --secret=":                  "the secret is empty",
		"receive --secret whsec_!":           "secret is not base64 after whsec_",
		"receive --secret a --secret-file b": "[secret secret-file]",
		"sql":                                "accepts 1 arg(s)",
		"sql --json --csv x":                 "[csv json]",
		"sql --timeout 0s x":                 "--timeout 0s: give more than 0s",
		"sql --limit 0 x":                    "--limit 0: give 1 or more",

		"pull --biz-type a --exec true --concurrency 0": "--concurrency 0: give 1 to 1000",
		"pull --biz-type a --exec true --ttr 50ms":      "--ttr 50ms: give 100ms to 24h",

		"dead":                           "use: toc dead list, groups, redrive or discard\n\nUsage:\n  toc dead [flags]\n  toc dead [command]",
		"dead nosuch":                    "unknown command",
		"dead redrive --rate 0":          "--rate 0: give more than 0 tasks a second",
		"dead discard --rate -1":         "--rate -1: give more than 0 tasks a second",
		"dead redrive --rate NaN":        "--rate NaN: give more than 0 tasks a second",
		"dead redrive --error=":          "--error is empty",
		"dead discard --since yesterday": "write day, time and zone",
		"operations --limit 0":           "--limit 0",
		"operations stop":                "accepts 1 arg(s)",
		"operations undo x":              `"x" is not an id`,
		"get":                            "give either an ID",
		"get 1 2":                        "accepts at most 1 arg(s)",
		"get 1 --biz-type T --biz-id 1 --dedup-key k": "give either an ID",
		"get --biz-type T --biz-id 1":                 "give either an ID",
		"get --biz-type T --biz-id 1 --dedup-key=":    "--dedup-key is empty",
		"get --biz-type= --biz-id 1 --dedup-key k":    "--biz-type is empty",
		"get 1 --if-match x":                          "unknown flag: --if-match",
		"why":                                         "give either an ID",
		"cancel":                                      "give either an ID",
		"cancel 1 --if-match=":                        "--if-match is empty",
		"cancel 1 --dedup-key k":                      "give either an ID",
		"redrive 1 --if-match=":                       "--if-match is empty",
		"redrive":                                     "accepts 1 arg(s)",
		"reschedule --in 1s":                          "give either an ID",
		"reschedule 1 --in 1s --timeout 0s":           "--timeout 0s: give 1ms to 24h",
		"reschedule 1 --in 1s --if-match=":            "--if-match is empty",
		"get x":                                       `"x" is not an id`,
		"get 18446744073709551616":                    "is not an id",
		"cancel 0x10":                                 `"0x10" is not an id`,
		"redrive -- -1":                               `"-1" is not an id`,
		"reschedule 1 --at 2026-01-02T03:04:05Z --past burn": `--past "burn": give fire or refuse`,
		submit + "--in 1s --past=":                           `--past "": give fire or refuse`,
		"get 007":                                            `"007" is not an id`,
		"reschedule 1":                                       "give either --in",
		"reschedule 1 --attribute x --in 1h --at 2030-01-02T03:04:05Z": "give either --in",
		"reschedule x --in 1s":                                  `"x" is not an id`,
		"submit --biz-id 42 --in 1s":                            `"biz-type" not set`,
		"submit --biz-type order_close --in 1s":                 `"biz-id" not set`,
		submit:                                                  "give either --in",
		submit + "--in 1s --at 2026-01-02T15:04:05Z":            "give either --in",
		submit + "--in 30":                                      `invalid argument "30" for "--in" flag: write 30m or 30s`,
		submit + "--in soon":                                    `write a duration like 90s, 30m or 1h30m`,
		submit + "--in 30d":                                     "a day is 24h",
		submit + "--in -5m":                                     "--in -5m0s: give 0s or more",
		submit + "--at tomorrow":                                `invalid argument "tomorrow" for "--at" flag: write day, time and zone`,
		submit + "--at 2026-01-02":                              `write day, time and zone (RFC 3339), like 2026-01-02T15:04:05Z or 2026-01-02T16:04:05+01:00`,
		submit + "--at 0001-01-01T00:00:00Z":                    "long past",
		"submit --biz-type= --biz-id 42 --in 1s":                "--biz-type is empty",
		"submit --biz-type T --biz-id= --in 1s":                 "is empty",
		submit + "--in 1s --timeout 25h":                        "--timeout 25h0m0s: give 1ms to 24h",
		submit + "--in 1s --on-duplicate move":                  "needs a --dedup-key",
		submit + "--in 1s --on-duplicate= --dedup-key k":        "give keep, move or again",
		submit + "--in 1s --on-duplicate replace --dedup-key k": "give keep, move or again",
		"list --biz-id 42 --from 2026-01-02T15:04:05Z":          "do not go together with --biz-id",
		"list --biz-id 42 --status done":                        `"done" is unknown`,
		"list --biz-id 42 --status=":                            "is unknown",
		"list --biz-id 42 --limit 0":                            "--limit 0: give 1 to 1000",
		"list --biz-id 42 --limit 1001":                         "--limit 1001: give 1 to 1000",
		"dead list --limit x":                                   `invalid argument "x"`,
		"dead list --biz-type=":                                 "--biz-type is empty",
		"dead redrive --biz-type=":                              "--biz-type is empty",
		"dead redrive --limit 0":                                "leave it out for all",
		"cluster --server ftp://host":                           "--server: give a URL",
		"cluster --server http://":                              "--server: give a URL",
		"cluster --server http://u:p@host":                      "--server: give a URL",
		"cluster --token x":                                     "unknown flag: --token",
	} {
		t.Run(line, func(t *testing.T) {
			r := toc(strings.Fields(line)...)
			require.Equal(t, 2, r.code, r.err)
			require.Empty(t, r.out)
			require.True(t, strings.HasPrefix(r.err, "toc: "), r.err)
			require.Contains(t, r.err, says)
		})
	}
}

func TestServerFromTheEnvironmentMustBeAURL(t *testing.T) {
	t.Setenv("TOC_SERVER", "http://[::1")
	r := toc("cluster")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "TOC_SERVER: give a URL like http://127.0.0.1:8080")
}

func TestHelpListsEveryCommand(t *testing.T) {
	golden(t, "help/toc", ok(t))
	for _, cmd := range rootCommand(nil).Commands() {
		if cmd.GroupID == "client" && cmd.HasFlags() {
			golden(t, "help/"+cmd.Name(), ok(t, cmd.Name(), "--help"))
		}
	}
	golden(t, "help/receive", ok(t, "receive", "--help"))
	golden(t, "help/dead-redrive", ok(t, "dead", "redrive", "--help"))
}

func TestVersion(t *testing.T) {
	require.Equal(t, "toc dev\n", ok(t, "version"))
	require.Equal(t, "toc dev\n", ok(t, "--version"))
}
