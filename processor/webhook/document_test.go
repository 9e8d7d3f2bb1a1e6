package webhook_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig/await"
	"github.com/timeoutcenter/toc/processor/webhook"
)

// issued is the secret of the document's examples.
const issued = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// blocks gives the code of docs/webhooks.md by what stands behind its opening fence.
func blocks(t *testing.T) map[string]string {
	text, err := os.ReadFile("../../docs/webhooks.md")
	require.NoError(t, err)
	code := map[string]string{}
	for _, block := range regexp.MustCompile("(?ms)^```(\\S[^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		code[block[1]] += block[2]
	}
	return code
}

// The call that the document shows has the headers of a real one, and is signed right.
func TestDocumentedCall(t *testing.T) {
	head, body, ok := strings.Cut(blocks(t)["http"], "\n\n")
	require.True(t, ok)
	shown, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\n\n" + strings.TrimSpace(body))))
	require.NoError(t, err)
	sent, err := io.ReadAll(shown.Body)
	require.NoError(t, err)
	verifier, err := webhook.NewSigner(issued)
	require.NoError(t, err)
	require.NoError(t, verifier.VerifyIgnoringTimestamp(sent, shown.Header))

	r, calls := record(t)
	require.NoError(t, open(t, webhook.Config{URL: r.URL, Secret: issued}).Process(t.Context(), order()))
	sentCall := <-calls
	require.ElementsMatch(t, names(sentCall.Header), names(shown.Header))
}

func names(h http.Header) (list []string) {
	for name := range h {
		list = append(list, name)
	}
	return list
}

// Each receiver of the document takes what toc has signed, and nothing else. Go's is always run, the others where their
// language is installed.
func TestDocumentedReceivers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test keeps the machine busy for long")
	}
	code := blocks(t)
	for _, c := range []struct{ block, needs, run string }{
		{"go receiver.go", "go", "./receiver"},
		{"python receiver.py", "python3", "python3 receiver.py"},
		{"js receiver.js", "node", "node receiver.js"},
		{"java Receiver.java", "java", "java Receiver.java"},
		{"php receiver.php", "php", "php -S 127.0.0.1:9000 receiver.php"},
	} {
		t.Run(c.block, func(t *testing.T) {
			require.NotEmpty(t, code[c.block])
			if _, err := exec.LookPath(c.needs); err != nil && c.needs != "go" {
				t.Skipf("%s is not installed: this receiver was not run", c.needs)
			}
			for _, secret := range []string{issued, "a plain phrase of some length"} {
				dir, port := t.TempDir(), freePort(t)
				path := filepath.Join(dir, strings.Fields(c.block)[1])
				require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(code[c.block], "9000", port)), 0o600))
				if c.needs == "go" { // with the libraries of this module
					said, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "receiver"), path).CombinedOutput()
					require.NoError(t, err, string(said))
				}
				run(t, dir, strings.ReplaceAll(c.run, "9000", port), secret, "127.0.0.1:"+port)
				checkReceiver(t, "http://127.0.0.1:"+port+"/fire", secret)
			}
		})
	}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// run starts a program in dir, waits until it listens on addr, and ends it with the test.
func run(t *testing.T, dir, line, secret, addr string) {
	t.Helper()
	words := strings.Fields(line)
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	if strings.HasPrefix(words[0], "./") {
		cmd.Path = filepath.Join(dir, words[0])
	}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "WEBHOOK_SECRET="+secret)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Logf("%s said:\n%s", line, said.String())
	})
	await.That(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, "%s listens", line)
}

// checkReceiver makes right and wrong calls.
func checkReceiver(t *testing.T, url, secret string) {
	o := order()
	o.Attribute = `{"name":"naïve 注文"}`
	for _, cfg := range []webhook.Config{{URL: url, Secret: secret}, {URL: url, Secret: "a new secret", PreviousSecret: secret}} {
		require.NoError(t, open(t, cfg).Process(t.Context(), o))
	}
	for _, cfg := range []webhook.Config{{URL: url}, {URL: url, Secret: "another secret"}} {
		require.ErrorContains(t, open(t, cfg).Process(t.Context(), o), "401")
	}

	signer, err := webhook.NewSigner(secret)
	require.NoError(t, err)
	const body = `{"job_id":"1","biz_id":"42"}`
	for what, c := range map[string]struct {
		age      time.Duration
		id, body string
		want     int
	}{
		"right":            {0, "1", body, 204},
		"four minutes old": {4 * time.Minute, "1", body, 204},
		"six minutes old":  {6 * time.Minute, "1", body, 401},
		"in six minutes":   {-6 * time.Minute, "1", body, 401},
		"another id":       {0, "2", body, 401},
		"another body":     {0, "1", body + " ", 401},
	} {
		at := time.Now().Add(-c.age)
		signature, err := signer.Sign("1", at, []byte(body))
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(c.body))
		require.NoError(t, err)
		req.Header.Set("webhook-id", c.id)
		req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		req.Header.Set("webhook-signature", signature)
		req.Close = true
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.want, answer.StatusCode, what)
	}
}
