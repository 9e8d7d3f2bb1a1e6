// Package tlsclient connects to servers by TLS or in plain text: MySQL, Redis, Consul, Kafka.
//
// The certificates come from PEM files, named by settings. A connect looks whether a file has changed and then
// reads it, so a new connection uses new certificates without a restart. Files that cannot be used leave the
// certificates in force that were read before. Errors name the setting and the file.
package tlsclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// System is the Files.CA that stands for the certificates that the machine trusts.
const System = "system"

// Files are the paths of PEM files.
type Files struct {
	CA         string // the trusted certificates, or System; "": no TLS
	Cert       string // the client's certificate; "": none
	Key        string // the key of that certificate
	ServerName string // the name in the servers' certificates; "": the host of their address
}

// Problem is a mistake in a setting.
type Problem struct {
	Key  string // ca, cert or key; "": the section
	Text string // what is wrong, and what would be right
}

func (p *Problem) Error() string { return strings.TrimPrefix(p.Key+": ", ": ") + p.Text }

// CheckShape finds mistakes that show without a look at the files.
func (f Files) CheckShape() error {
	switch {
	case f.CA == "" && (f.Cert != "" || f.Key != "" || f.ServerName != ""):
		return &Problem{"ca", "is empty, so there is no TLS; write system, or the path of a PEM file"}
	case f.Cert != "" && f.Key == "":
		return &Problem{"key", "is empty, and there is a cert; write the path of the certificate's key"}
	case f.Cert == "" && f.Key != "":
		return &Problem{"cert", "is empty, and there is a key; write the path of the key's certificate"}
	}
	return nil
}

// Check finds mistakes in the settings and in the files. The error is a join of all Problems.
func (f Files) Check() error {
	_, err := f.read(time.Now())
	return err
}

// certificates are the content of the files.
type certificates struct {
	roots *x509.CertPool   // nil: the machine's
	pair  *tls.Certificate // nil: none
}

func (f Files) read(now time.Time) (c certificates, err error) {
	if err := f.CheckShape(); err != nil || f.CA == "" {
		return c, err
	}
	var caErr, pairErr error
	if f.CA != System {
		c.roots, caErr = readRoots(f.CA, now)
	}
	if f.Cert != "" {
		c.pair, pairErr = readPair(f.Cert, f.Key, now)
	}
	return c, errors.Join(caErr, pairErr)
}

func readRoots(path string, now time.Time) (*x509.CertPool, error) {
	list, problem := readCertificates(path)
	if problem != "" {
		return nil, &Problem{"ca", problem}
	}
	pool, latest := x509.NewCertPool(), list[0]
	for _, cert := range list {
		pool.AddCert(cert)
		if cert.NotAfter.After(latest.NotAfter) {
			latest = cert
		}
	}
	// A bundle may keep authorities whose time is over.
	if now.After(latest.NotAfter) {
		return nil, &Problem{"ca", fmt.Sprintf("%q has only certificates that have expired, the last at %s; write the file of the new authority", path, moment(latest.NotAfter))}
	}
	return pool, nil
}

func readPair(certPath, keyPath string, now time.Time) (*tls.Certificate, error) {
	list, certProblem := readCertificates(certPath)
	keyText, keyProblem := readFile(keyPath)
	if keyProblem == "" && !bytes.Contains(keyText, []byte("PRIVATE KEY-----")) {
		keyProblem = fmt.Sprintf("%q has no private key in PEM form", keyPath)
	}
	var errs []error
	if certProblem != "" {
		errs = append(errs, &Problem{"cert", certProblem})
	}
	if keyProblem != "" {
		errs = append(errs, &Problem{"key", keyProblem})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var chain []byte
	for _, cert := range list {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	pair, err := tls.X509KeyPair(chain, keyText)
	switch leaf := list[0]; {
	case err != nil && strings.Contains(err.Error(), "does not match"):
		return nil, &Problem{"key", fmt.Sprintf("%q is not the key of the certificate in %q; write the two files of one pair", keyPath, certPath)}
	case err != nil: // it does not show the key
		return nil, &Problem{"key", fmt.Sprintf("%q cannot be used: %v; write the path of an unencrypted key in PEM form", keyPath, err)}
	case now.After(leaf.NotAfter):
		return nil, &Problem{"cert", fmt.Sprintf("%q has expired at %s; write the file of a new certificate", certPath, moment(leaf.NotAfter))}
	case now.Before(leaf.NotBefore):
		return nil, &Problem{"cert", fmt.Sprintf("%q is not valid before %s by this machine's clock", certPath, moment(leaf.NotBefore))}
	}
	return &pair, nil
}

// readCertificates returns at least one certificate, or the problem.
func readCertificates(path string) (list []*x509.Certificate, problem string) {
	text, problem := readFile(path)
	if problem != "" {
		return nil, problem
	}
	var bad error
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err != nil {
			bad = err // a bundle may have certificates that Go does not take
		} else {
			list = append(list, cert)
		}
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN ")):
		return nil, fmt.Sprintf("%q ends within a certificate; write the whole file", path)
	case len(list) == 0 && bad != nil:
		return nil, fmt.Sprintf("%q has no certificate that can be read: %v", path, bad)
	case len(list) == 0:
		return nil, fmt.Sprintf("%q has no certificate in PEM form", path)
	}
	return list, ""
}

// maxFile is the size in bytes above which a file surely has no certificates.
const maxFile = 4 << 20

// readFile reads a regular file: a pipe would be waited for.
func readFile(path string) (text []byte, problem string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, "cannot be read: " + err.Error()
	case !info.Mode().IsRegular():
		return nil, fmt.Sprintf("cannot be read: %q is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Sprintf("cannot be read: %q is larger than %d bytes", path, maxFile)
	}
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		text, err = io.ReadAll(io.LimitReader(file, maxFile))
	}
	if err != nil {
		return nil, "cannot be read: " + err.Error()
	}
	return text, ""
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
