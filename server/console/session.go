package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// sessionLasts is how long a login lasts.
const sessionLasts = 12 * time.Hour

// cookieName has the prefix by which a browser keeps the cookie to this host, to https, and away from others who could set it. Browsers
// take a loopback address for as safe as https.
const cookieName = "__Host-toc"

// session makes the value of the cookie: the time of its end, and a MAC of that time. The key of the MAC is made of a token, so
// each node that has the token can check the cookie. The session ends when the token is taken away. The cookie does not reveal
// the token.
func session(token string, ends int64) string {
	key := sha256.Sum256([]byte("toc console session\x00" + token))
	mac := hmac.New(sha256.New, key[:])
	text := strconv.FormatInt(ends, 10)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// isKnown compares with each token, so that the time that it takes reveals nothing.
func (c *Console) isKnown(given string, ends int64) bool {
	known := false
	for _, token := range c.cfg.Tokens() {
		if hmac.Equal([]byte(session(token, ends)), []byte(given)) {
			known = true
		}
	}
	return known
}

// guarded reports whether a login is needed.
func (c *Console) guarded() bool { return len(c.cfg.Tokens()) > 0 }

// loggedIn reports whether a request may see and do everything.
func (c *Console) loggedIn(r *http.Request) bool {
	if !c.guarded() {
		return true
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	text, _, _ := strings.Cut(cookie.Value, ".")
	ends, err := strconv.ParseInt(text, 10, 64)
	now := c.cfg.Now()
	return err == nil && now.Unix() < ends && ends <= now.Add(sessionLasts+time.Minute).Unix() && c.isKnown(cookie.Value, ends)
}

type loginBody struct {
	Next    string
	Wrong   bool // the token is not known
	NotKept bool // the browser did not send the cookie back
}

// loginPage shows the form. After a login it goes on to where somebody wanted to go.
func (c *Console) loginPage(r *http.Request) (*page, error) {
	next := safeNext(r.URL.Query().Get("next"))
	if c.loggedIn(r) {
		return see(next), nil
	}
	return &page{Name: "login", Title: "Log in", Status: http.StatusOK, Body: loginBody{Next: next, NotKept: r.URL.Query().Has("kept")}}, nil
}

func (c *Console) login(r *http.Request) (*page, error) {
	next, ends := safeNext(r.PostFormValue("next")), c.cfg.Now().Add(sessionLasts).Unix()
	given := session(r.PostFormValue("token"), ends)
	if c.guarded() && !c.isKnown(given, ends) {
		return &page{Name: "login", Title: "Log in", Status: http.StatusUnauthorized, Body: loginBody{Next: next, Wrong: true}}, nil
	}
	answer := see("/console/login?" + url.Values{"next": {next}, "kept": {"no"}}.Encode()) // which goes on to next if the cookie comes back
	answer.Cookie = &http.Cookie{Name: cookieName, Value: given, Path: "/", MaxAge: int(sessionLasts.Seconds()), Secure: true,
		HttpOnly: true, SameSite: http.SameSiteStrictMode}
	return answer, nil
}

func (c *Console) logout(*http.Request) (*page, error) {
	answer := see("/console/login")
	answer.Cookie = &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	return answer, nil
}

// safeNext is the address to go to after a login: always a page of the console.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Path != cleanPath(u.Path) || !strings.HasPrefix(u.Path, "/console/") ||
		strings.HasPrefix(u.Path, "/console/log") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/console/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

func cleanPath(p string) string {
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
