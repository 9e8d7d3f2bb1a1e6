package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
)

//go:embed assets
var assetFiles embed.FS

type assetFile struct {
	body []byte
	kind string
	etag string
}

// assets are by name.
var assets = func() map[string]assetFile {
	all := make(map[string]assetFile)
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		body, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		all[e.Name()] = assetFile{body, mime.TypeByExtension(path.Ext(e.Name())), hex.EncodeToString(sum[:8])}
	}
	return all
}()

// assetURL is the address of an asset: another one for other contents, so that browsers may keep it.
func assetURL(name string) string { return "/console/assets/" + name + "?v=" + assets[name].etag }

func asset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("ETag", `"`+a.etag+`"`)
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.etag {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == `"`+a.etag+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, r, http.StatusOK, a.body)
}
