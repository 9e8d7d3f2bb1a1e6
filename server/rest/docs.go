package rest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// The documentation page is one file without any reference to elsewhere: it
// works offline, and saved with curl.
var (
	//go:embed docs/page.html
	docsHTML string
	//go:embed docs/style.css
	docsCSS string
	//go:embed docs/page.js
	docsJS string
)

// serveDocs serves the OpenAPI document and the page that shows it. They are made when somebody first asks for one of them:
// that takes longer than all else in the start of a center.
func (a *handlers) serveDocs() {
	doc := a.huma.OpenAPI()
	a.documentTypes()
	a.documentWebhook()
	delete(doc.Components.Schemas.Map(), "ErrorModel") // huma's; problem is ours
	for _, s := range doc.Components.Schemas.Map() {
		if s.AdditionalProperties == true { // true is the default, and some generators send further fields if they see it
			s.AdditionalProperties = nil
		}
	}
	a.constant("GET /openapi.json", func() ([]byte, error) { return json.Marshal(doc) },
		http.Header{"Content-Type": {"application/openapi+json"}})
	a.constant("GET /openapi.yaml", doc.YAML, http.Header{"Content-Type": {"application/openapi+yaml"}})
	a.constant("GET /docs", func() ([]byte, error) { return renderDocs(doc, a.documented) }, http.Header{
		"Content-Type": {"text/html; charset=utf-8"},
		"Content-Security-Policy": {"default-src 'none'; style-src " + hashOf(docsCSS) + "; script-src " + hashOf(docsJS) +
			"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
		"Referrer-Policy": {"no-referrer"},
	})
}

func renderDocs(doc *huma.OpenAPI, ops []*huma.Operation) ([]byte, error) {
	page, err := template.New("page").Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Doc": doc, "Groups": docsGroups(doc, ops), "CSS": template.CSS(docsCSS), "JS": template.JS(docsJS),
	})
	return out.Bytes(), err
}

// hashOf is how a Content-Security-Policy names an inline style or script.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// constant serves an answer that never changes.
func (a *handlers) constant(pattern string, render func() ([]byte, error), headers http.Header) {
	content := sync.OnceValue(func() []byte {
		made, err := render()
		if err != nil { // a fault of the program, which the tests find
			panic(fmt.Sprintf("%s: %v", pattern, err))
		}
		return made
	})
	a.router.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		made := content()
		for name, values := range headers {
			w.Header()[name] = values
		}
		_, _ = w.Write(made)
	})
}
