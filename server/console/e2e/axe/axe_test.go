package axe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/testrig"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

func TestMain(m *testing.M) { testrig.Main(m) }

// What is committed is the published version, with its licence and its notice.
func TestTheManifest(t *testing.T) {
	text, err := os.ReadFile("manifest.json")
	require.NoError(t, err)
	var manifest struct {
		Package, Version, License string
		SHA256                    map[string]string
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Equal(t, "axe-core", manifest.Package)
	require.True(t, strings.HasPrefix(script, "/*! axe v"+manifest.Version+"\n"))
	notice, _, _ := strings.Cut(script, "*/")
	require.Contains(t, notice, "Mozilla Public")
	require.Equal(t, "MPL-2.0", manifest.License)
	for _, name := range []string{"axe.min.js", "LICENSE"} {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		sum := sha256.Sum256(file)
		require.Equal(t, manifest.SHA256[name], hex.EncodeToString(sum[:]), name)
	}
}

// It finds what is wrong in dark colours only, and nothing where nothing is wrong.
func TestCheck(t *testing.T) {
	page := `<!doctype html><html lang="en"><title>Page</title><meta name="viewport" content="width=device-width">
		<style>body{background:#fff;color:#000} @media (prefers-color-scheme: dark){ body{background:#000;color:#222} }</style>
		<main><h1>Heading</h1><p>Text that is read</p></main>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// The policy of the pages that it is for.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; require-trusted-types-for 'script'")
		_, _ = w.Write([]byte(page))
	}))
	defer server.Close()

	light := browser.Open(t, server.URL, browser.View{})
	light.Go("/")
	require.Empty(t, Check(light))

	dark := browser.Open(t, server.URL, browser.View{Dark: true})
	dark.Go("/")
	found := Blocking(Check(dark))
	require.Len(t, found, 1)
	require.Equal(t, "color-contrast", found[0].ID)
	require.Contains(t, found[0].String(), "Text that is read")
}
