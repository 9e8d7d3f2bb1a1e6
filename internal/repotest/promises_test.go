package repotest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each sentence of README's "What you can rely on" stands in docs/promises.md with tests and rules that exist, and nothing else does.
func TestPromises(t *testing.T) {
	_, section, _ := strings.Cut(string(read(t, "README.md")), "## What you can rely on\n\n")
	section, _, _ = strings.Cut(section, "\n\n## ")
	promised := make(map[string]string) // by sentence: the promise
	sentenceEnd := regexp.MustCompile(`\.(\s+|$)`)
	for bullet := range strings.SplitSeq("\n"+section, "\n- ") {
		name, text, found := strings.Cut(strings.TrimPrefix(strings.Join(strings.Fields(bullet), " "), "**"), ".** ")
		if !found {
			require.Empty(t, strings.TrimSpace(bullet))
			continue
		}
		for text != "" {
			end := sentenceEnd.FindStringIndex(text)
			require.NotNil(t, end, text)
			promised[text[:end[0]+1]] = name
			text = text[end[1]:]
		}
	}
	require.NotEmpty(t, promised)

	tests, rules := knownTests(t), string(read(t, "internal/testrig/audit/rules.go"))+string(read(t, "internal/testrig/audit/verdict.go"))
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	for _, r := range row.FindAllStringSubmatch(string(read(t, "docs/promises.md")), -1)[1:] {
		name, sentence, holders := r[1], r[2], r[3]
		require.Equal(t, promised[sentence], name, "README does not say: %s", sentence)
		delete(promised, sentence)
		names, rule, _ := strings.Cut(holders, "; rule ")
		for one := range strings.SplitSeq(names, ", ") {
			function, _, _ := strings.Cut(one, "/")
			require.Contains(t, tests, function, "no such test")
		}
		if rule != "" {
			require.Contains(t, rules, `"`+strings.Trim(rule, "*")+`"`, "no such rule")
		}
	}
	require.Empty(t, promised, "sentences of README that nothing holds")
}

// knownTests are the names of all tests.
func knownTests(t *testing.T) map[string]bool {
	names, function := make(map[string]bool), regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range function.FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
		return err
	}))
	return names
}
