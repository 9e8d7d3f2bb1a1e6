package repotest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/timeoutcenter/toc/"

// layers are those that the comment of this package lists, by package: the highest is 0.
func layers(t *testing.T) map[string]int {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(text), "// The layers,")
	require.True(t, ok)
	layer := make(map[string]int)
	for n, line := range regexp.MustCompile(`(?m)^//\t(.+)$`).FindAllStringSubmatch(list, -1) {
		for name := range strings.SplitSeq(line[1], ", ") {
			layer[name] = n
		}
	}
	return layer
}

// Arrows point down: a package imports only packages of the layers below its own.
func TestImportsPointDown(t *testing.T) {
	layer := layers(t)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	require.NoError(t, err)
	found := 0
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(line)
		name := strings.TrimPrefix(paths[0], module)
		if paths[0] == strings.TrimSuffix(module, "/") || strings.HasPrefix(name, "internal/testrig") || strings.HasPrefix(name, "internal/soak") || name == "internal/repotest" || strings.HasPrefix(name, "internal/sim") || strings.HasPrefix(name, "internal/transcript") || strings.HasPrefix(name, "internal/fakeconsul") ||
			name == "internal/virtual" || name == "toctest" {
			continue // tests
		}
		found++
		above, ok := layer[name]
		require.True(t, ok, "%s is in no layer of doc.go", name)
		for _, path := range paths[1:] {
			if below, ours := strings.CutPrefix(path, module); ours {
				require.Greater(t, layer[below], above, "%s imports %s", name, below)
			}
		}
	}
	require.Len(t, layer, found, "a layer of doc.go names a package that is not there")
}
