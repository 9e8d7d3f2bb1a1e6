package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/timeoutcenter/toc/internal/logqueue"
	"github.com/timeoutcenter/toc/processor/webhook"
)

func receiveCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Stand in for your service: print the webhooks that come",
		Long: `Stand in for your service: take webhooks on any path, print a line for each, and
answer all with one status. With a secret, a call whose signature is wrong or missing
is answered with 401.`,
		Example: `  toc receive
  toc receive --secret-file webhook.secret --answer 503 --delay 2s`,
		Args: noArguments,
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:9000", "`host:port` to listen on")
	secret := cmd.Flags().String("secret", "", "verify signatures with this; other users of this machine can see it")
	file := cmd.Flags().String("secret-file", "", "verify signatures with the secret in this `file`")
	cmd.MarkFlagsMutuallyExclusive("secret", "secret-file")
	r := &receiver{now: now}
	cmd.Flags().IntVar(&r.status, "answer", http.StatusOK, "`status` of the answers, 200 to 599")
	checkRange(cmd, "answer", &r.status, 200, 599)
	cmd.Flags().DurationVar(&r.delay, "delay", 0, "wait so long before answering")
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print an object a line, with the whole attribute")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if _, _, err := net.SplitHostPort(*listen); err != nil {
			return usage("--listen %q: give host:port, like 127.0.0.1:9000", *listen)
		}
		if r.delay < 0 {
			return usage("--delay %s: give 0s or more", r.delay)
		}
		if cmd.Flags().Changed("secret") || cmd.Flags().Changed("secret-file") {
			if r.verifier, err = readSecret(*secret, *file); err != nil {
				return err
			}
		}
		complaints := logqueue.NewWriter(cmd.ErrOrStderr(), nil)
		defer complaints.Flush(flushTimeout)
		r.out, r.complaints = cmd.OutOrStdout(), complaints
		return r.serve(cmd.Context(), *listen)
	}
	return cmd
}

// readSecret reads the secret, or the file that has it.
func readSecret(secret, file string) (*standardwebhooks.Webhook, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--secret-file: %w", err)
		}
		secret = strings.TrimRight(string(text), "\r\n")
	}
	if secret == "" {
		return nil, usage("the secret is empty; give that of webhook.secret, or leave the flag out")
	}
	verifier, err := webhook.NewSigner(secret)
	if err != nil {
		return nil, usageError{err}
	}
	return verifier, nil
}
