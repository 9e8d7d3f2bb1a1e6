package configs

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// secret is what the tag secret says of a setting: that it is never shown, and may be
// given by a file. Of a key, which nobody but us chooses, length is asked for.
type secret string

const (
	noSecret       secret = ""
	secretPassword secret = "password" // somebody else's choice
	secretKey      secret = "key"
)

// Endings of the names of keys and variables whose value is the path of a file that
// holds the secret: http.tokens_file, TOC_HTTP_TOKENS_FILE.
const (
	fileSuffix    = "_file"
	envFileSuffix = "_FILE"
)

// secretFiles are the files that secrets were read from.
type secretFiles []string

// read sets a secret from a file: a text without the end of its line, or a list with one
// word in each line.
func (s *secretFiles) read(path string, v reflect.Value) error {
	*s = append(*s, path)
	data, err := readFile(path)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if v.Kind() != reflect.Slice {
		v.SetString(strings.TrimRight(string(data), "\r\n"))
		if v.Len() == 0 {
			return errors.New("is empty; write the secret into it, or leave the key out")
		}
		return nil
	}
	words := []string{}
	for line := range strings.Lines(string(data)) {
		if word := strings.TrimSpace(line); word != "" {
			words = append(words, word)
		}
	}
	v.Set(reflect.ValueOf(words))
	if len(words) == 0 {
		return errors.New("is empty; write one in each line, or leave the key out")
	}
	return nil
}

// use sets a secret to its file. One that is read again for each use keeps the path.
func (s *secretFiles) use(path string, of setting) error {
	if !of.file.IsValid() {
		return s.read(path, of.value)
	}
	*s = append(*s, path)
	of.value.SetZero()
	of.file.SetString(path)
	return nil // checked with the Config
}

// ReadToken returns the ACL token: that of TokenFile, if it is set. The error says what is wrong with the file.
func (c Consul) ReadToken() (string, error) {
	if c.TokenFile == "" {
		return c.Token, nil
	}
	var files secretFiles
	var token string
	if err := files.read(c.TokenFile, reflect.ValueOf(&token).Elem()); err != nil {
		return "", err
	}
	if !visible.MatchString(token) {
		return "", errors.New("holds no token; write visible ASCII characters in one line, no spaces")
	}
	return token, nil
}

// contents is what is in the files now, to be compared.
func (s secretFiles) contents() string {
	var all strings.Builder
	for _, path := range s {
		data, err := readFile(path)
		fmt.Fprintf(&all, "%q %q %v\n", path, data, err)
	}
	return all.String()
}

// minKey is how many characters a key has at least: with 62 different ones, chosen by
// chance, that is 95 bits.
const minKey = 16

// checkSecrets finds keys that are too short.
func (c Config) checkSecrets(ps *problems) {
	c.eachSecret(func(s setting, at, text string) {
		ps.require(s.secret != secretKey || len(text) >= minKey, at,
			"has fewer than %d characters; write more, as `openssl rand -hex 16` makes them", minKey)
	})
}

// eachSecret calls f for each secret that is set, and each element of a list of them; at is its key.
func (c Config) eachSecret(f func(s setting, at, text string)) {
	all := settings(reflect.ValueOf(c), "")
	for i, b := range c.BizTypes {
		all = append(all, settings(reflect.ValueOf(b), fmt.Sprintf("biz_types[%d]", i))...)
	}
	for _, k := range c.Kafka.Clusters {
		all = append(all, settings(reflect.ValueOf(k), join("kafka.clusters", k.Name))...)
	}
	for _, s := range all {
		if s.secret == noSecret {
			continue
		}
		if words, ok := s.value.Interface().([]string); ok {
			for i, word := range words {
				f(s, fmt.Sprintf("%s[%d]", s.key, i), word)
			}
		} else if text := s.value.String(); text != "" {
			f(s, s.key, text)
		}
	}
}

// A template leaves a placeholder in the place of a whole secret, or a variable like ${NAME} within one. A password may
// have any characters, so parts of those are none.
var (
	placeholder = regexp.MustCompile(`(?is)^\s*(\$\{.*\}|\$\(.*\)|\{\{.*\}\}|change[-_]?me)\s*$`)
	variable    = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
)

// placeholders finds secrets that a template has left. Nothing expands a file of a secret, so those are as they are.
func (l *loader) placeholders() (ps problems) {
	l.config.eachSecret(func(s setting, at, text string) {
		left := slices.ContainsFunc(append(passwords(s.key, text), text), placeholder.MatchString) || variable.MatchString(text)
		ps.require(!left || l.fromFile[s.key], at,
			"is a placeholder, and nothing expands it; write the secret, or the path of its file as %s", s.key+fileSuffix)
	})
	return ps
}

// passwords are those in an address: in a DSN, or a URL.
func passwords(key, text string) []string {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		password, _ := u.User.Password()
		return []string{password}
	}
	if !strings.HasPrefix(key[strings.LastIndexByte(key, '.')+1:], "dsn") {
		return nil
	}
	dsn, err := mysql.ParseDSN(escapeVerb(text))
	if err != nil {
		return nil
	}
	return []string{dsn.Passwd}
}
