package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/server/console"
	"github.com/timeoutcenter/toc/task"
)

func (f *fake) login(t *testing.T, token, next string) (cookie *http.Cookie, a answer) {
	t.Helper()
	f.cookie = ""
	a = f.ask(t, "POST", "/console/login", fields("token", token, "next", next))
	for _, c := range a.Result().Cookies() {
		cookie = c
	}
	return cookie, a
}

// A token opens the console; the cookie after it is no token, and ends.
func TestLogin(t *testing.T) {
	f := newFake(t)
	f.cookie = ""
	a := f.ask(t, "GET", "/console/types?q=a", nil)
	require.Equal(t, 303, a.Code)
	require.Equal(t, "/console/login?next=%2Fconsole%2Ftypes%3Fq%3Da", a.Header().Get("Location"))
	text := f.get(t, a.Header().Get("Location"))
	require.Contains(t, text, `<input type="hidden" name="next" value="/console/types?q=a">`)
	require.Contains(t, text, `name="token" type="password"`)

	cookie, a := f.login(t, token, "/console/types?q=a")
	require.Equal(t, 303, a.Code)
	require.NotContains(t, a.Header().Get("Location"), token)
	require.Equal(t, "__Host-toc", cookie.Name)
	require.True(t, cookie.Secure && cookie.HttpOnly && cookie.SameSite == http.SameSiteStrictMode)
	require.Equal(t, "/", cookie.Path)
	require.Empty(t, cookie.Domain)
	require.NotContains(t, cookie.Value, token)
	f.cookie = cookie.Value
	a = f.ask(t, "GET", a.Header().Get("Location"), nil)
	require.Equal(t, 303, a.Code)
	require.Equal(t, "/console/types?q=a", a.Header().Get("Location"))
	require.Contains(t, f.get(t, "/console/types?q=a"), "Log out")

	a = f.ask(t, "POST", "/console/logout", nil)
	require.Equal(t, 303, a.Code)
	require.Negative(t, a.Result().Cookies()[0].MaxAge)
}

// A browser that does not keep the cookie is told so, instead of being asked again and again.
func TestACookieThatIsNotKept(t *testing.T) {
	f := newFake(t)
	_, a := f.login(t, token, "")
	text := f.get(t, a.Header().Get("Location"))
	require.Contains(t, text, "did not keep the session")
}

func TestWrongTokens(t *testing.T) {
	f := newFake(t)
	for _, wrong := range []string{"", "x", token + "x", strings.ToUpper(token), token + "\x00"} {
		cookie, a := f.login(t, wrong, "")
		require.Nil(t, cookie)
		require.Equal(t, 401, a.Code)
		require.Contains(t, a.text, "No token of this center")
	}
}

// Only what a known token has signed, for a time that is not over, opens anything.
func TestSessions(t *testing.T) {
	f := newFake(t)
	now := time.Now()
	good := console.SessionOf(token, now.Add(time.Hour))
	text, mac, _ := strings.Cut(good, ".")
	got := f.submitted(t, 1)
	for name, cookie := range map[string]string{
		"none": "", "the token": token, "another token": console.SessionOf("nobody-knows-this1", now.Add(time.Hour)), "over": console.SessionOf(token, now.Add(-time.Second)),
		"too long": console.SessionOf(token, now.Add(console.SessionLasts+time.Hour)), "moved": text + "9." + mac, "cut": text, "no MAC": text + ".", "not a number": "x." + mac,
	} {
		f.cookie = cookie
		for _, p := range []string{"/console/", "/console/tasks", at(got.JobID), "/console/audit"} {
			require.Equal(t, 303, f.ask(t, "GET", p, nil).Code, name)
		}
		require.Equal(t, 401, f.ask(t, "POST", at(got.JobID)+"/cancel", nil).Code, name)
		require.Equal(t, 401, f.ask(t, "GET", "/console/live?topic=overview", nil).Code, name)
	}
	require.Equal(t, task.Pending, f.read(t, got.JobID).Status)
	f.cookie = good
	f.get(t, "/console/")
	f.mu.Lock()
	f.tokens = f.tokens[:1]
	f.mu.Unlock()
	require.Equal(t, 303, f.ask(t, "GET", "/console/", nil).Code, "its token is not in force any more")
}

// After a login somebody is on a page of the console, wherever a link wanted to take them.
func TestNoOpenRedirect(t *testing.T) {
	f := newFake(t)
	for next, to := range map[string]string{
		"": "/console/", "/console/dead?error=a%26b": "/console/dead?error=a%26b", "/console/tasks/1": "/console/tasks/1",
		"https://evil.example/console/": "/console/", "//evil.example/console/": "/console/", "/\\evil.example": "/console/", "/console/../v1/tasks": "/console/",
		"/v1/cluster": "/console/", "server/console/": "/console/", "javascript:alert(1)": "/console/", "/console/login": "/console/", "/console/logout": "/console/",
		"/console//evil.example": "/console/", "/console/\r\nSet-Cookie: a=b": "/console/", "http:/console/": "/console/", "/console/%2e%2e/docs": "/console/", "///console/": "/console/",
	} {
		_, a := f.login(t, token, next)
		require.Equal(t, 303, a.Code, next)
		u, err := url.Parse(a.Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "/console/login", u.Path)
		require.Equal(t, to, u.Query().Get("next"), next)
		f.cookie = console.SessionOf(token, time.Now().Add(time.Hour))
		a = f.ask(t, "GET", "/console/login?next="+url.QueryEscape(next), nil)
		require.Equal(t, to, a.Header().Get("Location"), next)
	}
}

// Without tokens the console is open, as the API is.
func TestWithoutTokens(t *testing.T) {
	f := newFake(t)
	f.mu.Lock()
	f.tokens = nil
	f.mu.Unlock()
	f.cookie = ""
	require.NotContains(t, f.get(t, "/console/"), "Log out")
	require.Equal(t, 303, f.ask(t, "GET", "/console/login", nil).Code, "nobody needs to log in")
}
