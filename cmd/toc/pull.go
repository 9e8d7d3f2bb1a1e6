package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/processor"
)

// rejectStatus is the exit status of a command that rejects a task.
const rejectStatus = 99

func pullCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull --biz-type NAME --exec COMMAND",
		Short: "Lease tasks and run a command for each",
		Long: `Lease the tasks of a business type whose processor is pull, and run a shell
command for each. It gets the task as JSON on its standard input, and TOC_JOB_ID,
TOC_BIZ_ID, TOC_BIZ_TYPE, TOC_ATTEMPT and TOC_ATTRIBUTE in its environment. It cannot
ask for anything on the terminal. What it leaves in the background must write to a file.

  status 0      the task is processed (ack)
  status ` + strconv.Itoa(rejectStatus) + `     nobody wants it any more: it is cancelled (reject)
  any other     the run has failed, with the last line of its standard error: the task
                is tried again, or dead after max_retries (nack)

The lease of a command that takes longer than --ttr is extended, until --max-run; that
of a task with a timeout of its own is not. A command that still runs when its lease
ends is killed with the programs it has started, and the task is handed out again.
Ctrl-C leases nothing more and waits for the commands that run. A second Ctrl-C does
not wait: it leaves them to themselves, and their tasks are handed out again.`,
		Example: `  toc pull --biz-type order_close --exec './close-order.sh'
  toc pull --biz-type order_close --ttr 5m --concurrency 4 --exec 'jq -r .biz_id'`,
		Args: noArguments,
	}
	r := remoteFlags(cmd, now)
	cmd.Flags().Lookup("json").Hidden = true
	w := client.Worker{}
	command := cmd.Flags().String("exec", "", "shell `command` to run for each task")
	cmd.Flags().StringVar(&w.BizType, "biz-type", "", "`name` of the business type")
	cmd.Flags().IntVar(&w.Concurrency, "concurrency", 16, "commands at once, 1 to 1000")
	checkRange(cmd, "concurrency", &w.Concurrency, 1, 1000)
	cmd.Flags().DurationVar(&w.TTR, "ttr", 0,
		"how long a lease is if the task has no timeout of its own; it is extended while its command runs (default: pull.ttr of the business type)")
	cmd.Flags().DurationVar(&w.MaxRun, "max-run", time.Hour, "how long the lease of a command is extended; 0: not at all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case w.BizType == "":
			return usage("--biz-type is missing: give the name of a business type whose processor is pull")
		case *command == "":
			return usage("--exec is missing: give the shell command to run for each task")
		case w.MaxRun < 0:
			return usage("--max-run %v: give a duration, or 0 to extend no lease", w.MaxRun)
		case w.TTR != 0 && (w.TTR < 100*time.Millisecond || w.TTR > 24*time.Hour):
			return usage("--ttr %v: give 100ms to 24h", w.TTR)
		}
		if w.MaxRun == 0 {
			w.MaxRun = -1
		}
		server, err := r.address()
		if err != nil {
			return err
		}
		w.Client = client.New(server, client.WithToken(os.Getenv("TOC_TOKEN")))
		var complaints *logqueue.Writer
		if w.Logger, complaints, err = newLogger(cmd.ErrOrStderr(), "text", "info"); err != nil {
			return err
		}
		defer complaints.Flush(flushTimeout)
		defer withoutSIGPIPE()()
		w.Process = func(ctx context.Context, t client.LeasedTask) error {
			return runCommand(ctx, *command, t, cmd.OutOrStdout(), complaints)
		}
		if err := w.Run(cmd.Context()); err != nil {
			return explain(server, err)
		}
		return nil
	}
	return cmd
}

// runCommand runs a shell command for a task. The command has its own process group: the end of ctx also kills the processes
// that the shell has started, and Ctrl-C does not reach them.
func runCommand(ctx context.Context, command string, t client.LeasedTask, out, complaints io.Writer) error {
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		if err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
	c.WaitDelay = time.Second // for children that keep the output open
	var said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(append(t.Task.AppendJSON(nil), '\n')), out, io.MultiWriter(complaints, &said)
	c.Env = append(os.Environ(), "TOC_JOB_ID="+strconv.FormatUint(uint64(t.Task.JobID), 10), "TOC_BIZ_ID="+t.Task.BizID.String(),
		"TOC_BIZ_TYPE="+t.Task.BizType, "TOC_ATTEMPT="+strconv.Itoa(t.Attempt), "TOC_ATTRIBUTE="+t.Task.Attribute)
	err := c.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // the command ended well, and has left something in the background
		return nil
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if last := lines[len(lines)-1]; last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == rejectStatus {
		return processor.Discard(err)
	}
	return err
}
