package testrig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates for tests.
type Authority struct {
	File string // its own certificate, in PEM form
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair are the paths of a certificate and of its key, in PEM form.
type Pair struct{ Cert, Key string }

// NewAuthority makes an authority with this name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), File: filepath.Join(t.TempDir(), "ca.pem")}
	template := certificate(name, time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = a.sign(template, template, a.key, a.File)
	return a
}

// Issue makes a certificate for 127.0.0.1, ::1, localhost and these names. It serves servers and clients.
func (a *Authority) Issue(names ...string) Pair { return a.issue(time.Hour, names) }

// IssueExpired is Issue for a certificate whose time was over an hour ago.
func (a *Authority) IssueExpired(names ...string) Pair { return a.issue(-time.Hour, names) }

// IssueFor makes a certificate for these names only.
func (a *Authority) IssueFor(names ...string) Pair {
	template := certificate(names[0], time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	template.DNSNames = names
	return a.pair(template)
}

func (a *Authority) issue(lasts time.Duration, names []string) Pair {
	template := certificate("toc test", time.Now().Add(-2*time.Hour), time.Now().Add(lasts))
	template.DNSNames = append([]string{"localhost"}, names...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return a.pair(template)
}

func (a *Authority) pair(template *x509.Certificate) Pair {
	a.t.Helper()
	dir, key := a.t.TempDir(), newKey(a.t)
	p := Pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	a.sign(template, a.cert, key, p.Cert)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, p.Key, "PRIVATE KEY", der)
	return p
}

func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, file string) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, file, "CERTIFICATE", der)
	return cert
}

func certificate(name string, from, to time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
