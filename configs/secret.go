package configs

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// secret is what the tag secret says of a setting: that it is never shown, and may be
// given by a file. Of a key, which nobody but us chooses, length is asked for.
type secret string

const (
	noSecret       secret = ""
	secretPassword secret = "password" // somebody else's choice
	secretKey      secret = "key"
)

func secretOf(f reflect.StructField) secret { return secret(f.Tag.Get("secret")) }

// What a key's name ends with, and a variable's, whose value is the path of a file that
// holds the secret: http.tokens_file, TOC_HTTP_TOKENS_FILE.
const (
	fileSuffix    = "_file"
	envFileSuffix = "_FILE"
)

// secretByFile finds the secret that a key names the file of.
func secretByFile(section reflect.Type, key string) (reflect.StructField, bool) {
	name, is := strings.CutSuffix(key, fileSuffix)
	f, known := field(section, name)
	return f, is && known && secretOf(f) != noSecret
}

// secretFiles are the files that secrets were read from.
type secretFiles []string

// read gives the secret in a file: its text without the line's end, or of a list one in
// each line.
func (s *secretFiles) read(path string, t reflect.Type) (any, error) {
	*s = append(*s, path)
	data, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if t.Kind() == reflect.Slice {
		words := []string{}
		for line := range bytes.Lines(data) {
			if word := strings.TrimSpace(string(line)); word != "" {
				words = append(words, word)
			}
		}
		if len(words) == 0 {
			return nil, errors.New("is empty; write one in each line, or leave the key out")
		}
		return words, nil
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return nil, errors.New("is empty; write the secret into it, or leave the key out")
	}
	return text, nil
}

// contents is what is in the files now, to be compared.
func (s secretFiles) contents() string {
	var all strings.Builder
	for _, path := range s {
		data, err := readRegular(path)
		fmt.Fprintf(&all, "%q %q %v\n", path, data, err)
	}
	return all.String()
}

// minKey is how many characters a key has at least: with 62 different ones, chosen by
// chance, that is 95 bits.
const minKey = 16

// placeholders are what templates have where a secret is to be put in.
var placeholders = []string{"${", "$(", "{{", "changeme", "change-me", "change_me"}

// checkSecrets looks at all secrets of a section.
func checkSecrets(ps *problems, section reflect.Value, at string) {
	for name, f := range fields(section.Type()) {
		v, name := section.FieldByIndex(f.Index), join(at, name)
		switch {
		case v.Kind() == reflect.Struct:
			checkSecrets(ps, v, name)
		case isSections(v.Type()):
			for i := range v.Len() {
				checkSecrets(ps, v.Index(i), fmt.Sprintf("%s[%d]", name, i))
			}
		case secretOf(f) == noSecret:
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				checkSecret(ps, v.Index(i).String(), secretOf(f), fmt.Sprintf("%s[%d]", name, i))
			}
		case v.String() != "":
			checkSecret(ps, v.String(), secretOf(f), name)
		}
	}
}

func checkSecret(ps *problems, text string, kind secret, at string) {
	isPlaceholder := slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(strings.ToLower(text), p) })
	name, _, _ := strings.Cut(at, "[")
	switch {
	case isPlaceholder:
		ps.add(at, "is a placeholder, and nothing expands it; write the secret, or the path of its file as %s", strings.TrimPrefix(name+fileSuffix, "."))
	case kind == secretKey && len(text) < minKey:
		ps.add(at, "has fewer than %d characters; write more, as `openssl rand -hex 16` makes them", minKey)
	}
}
