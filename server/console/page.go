package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/timeoutcenter/toc/api"
	"github.com/timeoutcenter/toc/intake"
	"github.com/timeoutcenter/toc/task"
)

// page is an answer.
type page struct {
	Name   string // of its template
	Title  string
	Status int
	Body   any

	To     string // go there instead
	Cookie *http.Cookie
	Topic  string // of its live parts; empty: it has none
	Did    string // what was done, in words
	Wrong  string // what went wrong, in words

	// set by render
	Nav     []link
	Node    string
	Guarded bool // somebody is logged in
	At      time.Time
}

type link struct {
	Path, Text string
	Here       bool
}

// see sends a browser on by a GET.
func see(to string) *page { return &page{Status: http.StatusSeeOther, To: to} }

// handleFor is how long a page may take to make.
const handleFor = 20 * time.Second

// maxForm bounds what a form may send, in bytes.
const maxForm = 64 << 10

// handler makes a page. One with an error shows what went wrong.
type handler func(r *http.Request) (*page, error)

// handle registers a handler; the spaces of its pattern are for the reader.
func (c *Console) handle(pattern string, h http.Handler) {
	c.mux.Handle(strings.Join(strings.Fields(pattern), " "), h)
}

// open registers a page for everybody.
func (c *Console) open(pattern string, h handler) {
	c.handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		ctx, cancel := context.WithTimeout(intake.WithActor(r.Context(), intake.ByConsole), handleFor)
		defer cancel()
		var p *page
		var err error
		if r.Method == http.MethodPost {
			err = readForm(r)
		}
		if err == nil {
			p, err = h(r.WithContext(ctx))
		}
		switch {
		case err != nil && p == nil:
			p = c.failure(r, err)
		case err != nil:
			p.Status, p.Wrong = c.explain(r, err)
		}
		c.render(w, r, p)
	}))
}

// page registers a page for those who are logged in. Others are asked to; an act is then lost.
func (c *Console) page(pattern string, h handler) {
	c.open(pattern, func(r *http.Request) (*page, error) {
		switch {
		case c.loggedIn(r):
			return h(r)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			return see("/console/login?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()), nil
		default:
			return &page{Name: "login", Title: "Log in", Status: http.StatusUnauthorized, Body: loginBody{Next: "/console/"}}, nil
		}
	})
}

// errNoPage is answered with 404.
var errNoPage = errors.New("there is no such page")

// failure is the page about an error.
func (c *Console) failure(r *http.Request, err error) *page {
	status, text := c.explain(r, err)
	title := "This did not work"
	switch status {
	case http.StatusNotFound:
		title, text = "Not found", text+" You asked for "+cutText(200, r.URL.Path)+"."
	case http.StatusUnprocessableEntity:
		title = "This was not understood"
	}
	return &page{Name: "failure", Title: title, Status: status, Wrong: text}
}

// explain turns an error into a status and a sentence.
func (c *Console) explain(r *http.Request, err error) (status int, text string) {
	var field *task.FieldError
	var conflict *task.ConflictError
	var changed *task.ChangedError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &field):
		return http.StatusUnprocessableEntity, field.Error()
	case errors.As(err, &changed):
		return http.StatusPreconditionFailed, "The task has changed since the page was made. Nothing was done. This is how it stands now."
	case errors.As(err, &conflict):
		return http.StatusConflict, sentence(conflict.Error())
	case errors.Is(err, intake.ErrTooManyOperations):
		return http.StatusConflict, sentence(err.Error())
	case errors.Is(err, task.ErrNotFound):
		return http.StatusNotFound, "What you look for is not here, or not any more."
	case errors.Is(err, errNoPage):
		return http.StatusNotFound, "There is no such page."
	case errors.Is(err, errNotForm):
		return http.StatusUnsupportedMediaType, sentence(err.Error())
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, "The form is too large."
	case api.IsUnavailable(err), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, sentence(api.Undecided(err, api.DetailUnavailable))
	}
	c.cfg.Logger.Error("page failed", "method", r.Method, "path", r.URL.Path, "error", err)
	return http.StatusInternalServerError, "The center failed; its log says why."
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimRight(text[1:], ".") + "."
}

// protect sets the headers of every answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
}

//go:embed templates
var templateFiles embed.FS

// templates are the pages by name, each with what all have.
var templates = func() map[string]*template.Template {
	base := template.Must(template.New("").Funcs(words).ParseFS(templateFiles, "templates/base.html", "templates/parts.html"))
	all := make(map[string]*template.Template)
	entries, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".html"); name != "base" && name != "parts" {
			all[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, "templates/"+e.Name()))
		}
	}
	return all
}()

var navigation = []link{
	{"/console/", "Overview", false}, {"/console/forecast", "Forecast", false}, {"/console/types", "Types", false},
	{"/console/tasks", "Tasks", false},
	{"/console/dead", "Dead letters", false}, {"/console/operations", "Operations", false}, {"/console/cluster", "Cluster", false},
	{"/console/audit", "Audit", false},
}

// render writes a page.
func (c *Console) render(w http.ResponseWriter, r *http.Request, p *page) {
	if p.Cookie != nil {
		http.SetCookie(w, p.Cookie)
	}
	if p.To != "" {
		w.Header().Set("Location", p.To)
		w.WriteHeader(p.Status)
		return
	}
	if p.Status == 0 {
		p.Status = http.StatusOK
	}
	p.Node, p.Guarded, p.At = c.cfg.Node, c.guarded() && c.loggedIn(r), c.cfg.Now()
	if c.loggedIn(r) {
		for _, l := range navigation {
			l.Here = r.URL.Path == l.Path || l.Path != "/console/" && strings.HasPrefix(r.URL.Path, l.Path+"/")
			p.Nav = append(p.Nav, l)
		}
	}
	var out bytes.Buffer
	if err := templates[p.Name].ExecuteTemplate(&out, "page", p); err != nil {
		c.cfg.Logger.Error("page not made", "page", p.Name, "error", err)
		http.Error(w, "the page could not be made; the log of the center says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	write(w, r, p.Status, out.Bytes())
}

// gzips are at rest. A small answer is not worth one.
var gzips = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

const worthGzip = 1024

// write writes an answer, compressed if the browser takes that. A page holds no secret whose length could be guessed from its size.
func write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Vary", "Accept-Encoding")
	if len(body) < worthGzip || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzips.Get().(*gzip.Writer)
	defer gzips.Put(z)
	z.Reset(w)
	_, _ = z.Write(body)
	_ = z.Close()
}
