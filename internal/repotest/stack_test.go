package repotest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Each local stack has secrets of its own: with a token that stands in the repository, a page whose name leads to 127.0.0.1 could ask the
// center.
func TestTheStackDrawsItsSecrets(t *testing.T) {
	t.Parallel()
	draw := func(dir string) string {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "scripts"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "scripts", "stack.sh"), read(t, "scripts/stack.sh"), 0o700))
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts", "stack.sh"), "secrets").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, out)
		info, err := os.Stat(filepath.Join(dir, ".env"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		drawn, err := os.ReadFile(filepath.Join(dir, ".env"))
		require.NoError(t, err)
		return string(drawn)
	}
	one, another := t.TempDir(), t.TempDir()
	first := draw(one)
	require.Regexp(t, `^TOC_TOKEN=[0-9a-f]{32}\nGRAFANA_PASSWORD=[0-9a-f]{32}\n$`, first)
	require.Equal(t, first, draw(one), "once")
	require.NotEqual(t, first, draw(another))

	// And compose has no other.
	var compose struct {
		Toc      struct{ Environment map[string]string } `yaml:"x-toc"`
		Services map[string]struct{ Environment map[string]string }
	}
	require.NoError(t, yaml.Unmarshal(read(t, "docker-compose.yml"), &compose))
	for _, value := range []string{compose.Toc.Environment["TOC_HTTP_TOKENS"], compose.Toc.Environment["TOC_TOKEN"],
		compose.Services["prometheus"].Environment["TOC_TOKEN"], compose.Services["grafana"].Environment["GF_SECURITY_ADMIN_PASSWORD"]} {
		require.Regexp(t, `^\$\{(TOC_TOKEN|GRAFANA_PASSWORD):\?[^}]+\}$`, value)
	}
}
