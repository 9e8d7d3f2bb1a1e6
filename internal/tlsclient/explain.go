package tlsclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Error is a failed connection, with the setting to look at.
type Error struct {
	Key  string // redis.tls.ca
	Text string // what is wrong, and what would be right
	Err  error  // nil: Text says all
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Key + ": " + e.Text
	}
	return fmt.Sprintf("%s: %s (%v)", e.Key, e.Text, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// named puts the section before each Problem.
func (c *Client) named(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range list.Unwrap() {
			all = append(all, c.named(one))
		}
		return errors.Join(all...)
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return &Error{Key: c.key(p.Key), Text: p.Text}
	}
	return err
}

func (c *Client) key(name string) string { return strings.TrimSuffix(c.section+"."+name, ".") }

// wrong returns err with the setting to look at: ca, cert, key, server_name or "" for the section.
func (c *Client) wrong(name string, err error, format string, args ...any) error {
	return &Error{Key: c.key(name), Text: fmt.Sprintf(format, args...), Err: err}
}

// explain adds the setting to look at to the error of a handshake with the server at addr, or of a connection by
// TLS that the server has ended. Other errors stay as they are.
func (c *Client) explain(addr string, err error) error {
	if err == nil || !c.IsOn() {
		return err
	}
	if _, done := errors.AsType[*Error](err); done {
		return err
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		by := ""
		if unknown.Cert != nil {
			by = ", issued by " + quoteName(unknown.Cert.Issuer.String(), unknown.Cert.Issuer.CommonName)
		}
		if c.files.CA == System {
			return c.wrong("ca", err, "this machine does not trust the certificate of %s%s, and ca is system; write the path of a PEM file with its authority", addr, by)
		}
		return c.wrong("ca", err, "%q lacks the authority of the certificate of %s%s; write the PEM file that the operator of the server gives",
			c.files.CA, addr, by)
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		if names := name.Certificate; len(names.DNSNames)+len(names.IPAddresses) == 0 {
			return c.wrong("", err, "the certificate of %s has no subjectAltName, so nothing shows whose it is; renew it on the server, with the name or the address there", addr)
		}
		return c.wrong("server_name", err, "the certificate of %s has %s; write one of them, or connect to the server by it", addr,
			namesOf(name.Certificate))
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		return c.wrong("", err, "the certificate of %s, %s, is valid from %s to %s, and this machine's clock says %s; renew it on the server",
			addr, quoteName(invalid.Cert.Subject.String(), invalid.Cert.Subject.CommonName),
			moment(invalid.Cert.NotBefore), moment(invalid.Cert.NotAfter), moment(time.Now()))
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return c.wrong("", err, "the certificate of %s is not valid; renew it on the server", addr)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return c.wrong("ca", err, "%s does not speak TLS; write the address of the port that does, or leave ca empty for plain text", addr)
	}
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		return c.explainAlert(addr, err)
	}
	if isEnd(err) {
		return c.wrong("", err, "%s ended the connection during the handshake; it may not speak TLS at this port", addr)
	}
	return err
}

// explainAlert explains the refusal of a server. Its kind is known by text only.
func (c *Client) explainAlert(addr string, err error) error {
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
	certificate := says("certificate required", "bad certificate", "unknown certificate", "expired certificate", "revoked certificate",
		"unsupported certificate", "handshake failure", "access denied", "decrypt error")
	switch {
	case says("protocol version"):
		return c.wrong("", err, "%s speaks neither TLS 1.2 nor TLS 1.3", addr)
	case certificate && c.files.Cert == "":
		return c.wrong("cert", err, "%s demands a client certificate; write cert and key, or let the server do without", addr)
	case certificate:
		return c.wrong("cert", err, "%s refuses the certificate in %q; write one that an authority of the server has issued", addr, c.files.Cert)
	}
	return c.wrong("", err, "%s refuses the connection", addr)
}

// isEnd reports whether the server has ended a connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func namesOf(cert *x509.Certificate) string {
	const most = 5
	names := append([]string(nil), cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) > most:
		names = append(names[:most], "…")
	}
	return "the names " + strings.Join(names, ", ")
}

func quoteName(full, common string) string {
	if common != "" {
		return fmt.Sprintf("%q", common)
	}
	return fmt.Sprintf("%q", full)
}

// isAlert reports whether a server has answered plain text by an alert of TLS, or as an HTTPS server of Go does.
func isAlert(got []byte) bool {
	return len(got) >= 2 && got[0] == 21 && got[1] == 3 || bytes.Contains(got, []byte("Client sent an HTTP request to an HTTPS server"))
}

// plainConn is a connection in plain text. It explains the end of a connection that has not been answered yet.
type plainConn struct {
	*net.TCPConn
	client   *Client
	addr     string
	answered bool
	refused  error // of the first Read, and then of all
}

func (c *plainConn) Read(p []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	n, err := c.TCPConn.Read(p)
	switch {
	case c.answered || len(p) == 0:
		return n, err
	case isAlert(p[:n]):
		c.refused = c.client.wrongAtRead("ca", io.EOF, "%s speaks TLS only; write system, or the path of a PEM file with its authority", c.addr)
		return 0, c.refused
	case n == 0 && isEnd(err):
		c.refused = c.client.wrongAtRead("ca", err,
			"%s ended the connection before it answered; if it speaks TLS only, write system, or the path of a PEM file with its authority", c.addr)
		return 0, c.refused
	}
	c.answered = c.answered || n > 0
	return n, err
}

// tlsConn is a connection by TLS. Since TLS 1.3 a server refuses the client's certificate after the handshake.
type tlsConn struct {
	*tls.Conn
	client *Client
	addr   string
}

func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if remote, ok := errors.AsType[*net.OpError](err); ok && remote.Op == "remote error" {
		err = shell{c.client.explain(c.addr, err)}
	}
	return n, err
}

// shell is an error around an Error: go-redis drops the outermost layer of an error that a new connection reads.
type shell struct{ error }

func (s shell) Unwrap() error { return s.error }

func (c *Client) wrongAtRead(name string, err error, format string, args ...any) error {
	return shell{c.wrong(name, err, format, args...)}
}

// Cause returns the Error in err, or else err: the Kafka client hides the Error behind its own guess.
func Cause(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return err
}
