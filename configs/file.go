package configs

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// maxFile is the size in bytes above which a file is surely not a configuration.
const maxFile = 1 << 20

// readFile gives the content of the file, or an error that names it.
func readFile(path string) ([]byte, error) {
	data, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// readRegular reads a file that is one: a pipe would be waited for.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		what := "not a regular file"
		if info.IsDir() {
			what = "a directory"
		}
		return nil, fmt.Errorf("%s is %s", path, what)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, nil
}

// reader turns a YAML document into a layer: a map in the shape of the tree,
// with Go values. It walks the nodes and not a decoded map, because only the
// nodes know the text as it was written (a password 0123), the line, and a key
// that is given twice.
type reader struct {
	path     string
	problems problems
	sources  map[string]string // key → path:line
	secrets  secretFiles
}

// read gives the layer; nil when the document as a whole cannot be read.
func (r *reader) read(data []byte) map[string]any {
	root, err := document(data)
	if err != nil {
		r.problems.add(r.path, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.problems.add(r.path, "is not a configuration; write sections: %s", strings.Join(keysOf(reflect.TypeFor[Config]()), ", "))
		return nil
	}
	return r.section(root, reflect.TypeFor[Config](), "")
}

// section reads a mapping whose keys are those of the struct type.
func (r *reader) section(n *yaml.Node, t reflect.Type, path string) map[string]any {
	layer := map[string]any{}
	pairs := r.pairs(n, path)
	for _, p := range pairs {
		key := p.key.Value
		if f, known := field(t, key); known {
			if v, ok := r.value(p.value, f.Type, join(path, key)); ok {
				layer[key] = v
			}
		} else if f, known := secretByFile(t, key); known {
			name := f.Tag.Get("koanf")
			if slices.ContainsFunc(pairs, func(p pair) bool { return p.key.Value == name }) {
				r.at(p.key, join(path, key), "%s is given, too; write one of them", join(path, name))
			} else if v, ok := r.secret(p.value, f.Type, join(path, key), join(path, name)); ok {
				layer[name] = v
			}
		} else {
			r.unknown(join(path, key), p.key)
		}
	}
	return layer
}

// secret reads the file that stands at a key in the secret's stead.
func (r *reader) secret(n *yaml.Node, t reflect.Type, key, name string) (any, bool) {
	path, ok := r.value(n, reflect.TypeFor[string](), key)
	if !ok {
		return nil, false
	}
	r.source(follow(n), name)
	v, err := r.secrets.read(path.(string), t)
	if err != nil {
		r.at(n, key, "%v", err)
	}
	return v, err == nil
}

// value reads what stands at a key.
func (r *reader) value(n *yaml.Node, t reflect.Type, key string) (any, bool) {
	n = follow(n)
	switch {
	case t.Kind() == reflect.Struct:
		if isNull(n) { // a section whose keys are all commented out
			return nil, false
		}
		if n.Kind != yaml.MappingNode {
			return r.wrong(n, t, key)
		}
		return r.section(n, t, key), true
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return r.wrong(n, t, key)
		}
		return r.list(n, t.Elem(), key), true
	case n.Kind != yaml.ScalarNode || isNull(n):
		return r.wrong(n, t, key)
	}
	v, ok := parseScalar(n.Value, t)
	if !ok {
		return r.wrong(n, t, key)
	}
	r.source(n, key)
	return v, true
}

// list reads a list of words, or of sections. An element that is wrong leaves an
// empty one, so that the others keep their numbers.
func (r *reader) list(n *yaml.Node, element reflect.Type, key string) any {
	r.source(n, key)
	if element.Kind() == reflect.String {
		words := []string{}
		for i, e := range n.Content {
			v, _ := r.value(e, element, fmt.Sprintf("%s[%d]", key, i))
			word, _ := v.(string)
			words = append(words, word)
		}
		return words
	}
	sections := []any{}
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, i)
		if follow(e).Kind != yaml.MappingNode {
			r.wrong(follow(e), element, at)
			sections = append(sections, map[string]any{})
			continue
		}
		r.source(e, at)
		sections = append(sections, r.section(follow(e), element, at))
	}
	return sections
}

// wrong says that a value is not of the key's kind.
func (r *reader) wrong(n *yaml.Node, t reflect.Type, key string) (any, bool) {
	kind, example := kindOf(t)
	switch {
	case isNull(n):
		r.at(n, key, "has no value; write %s, or leave the key out", kind)
	case n.Kind == yaml.ScalarNode && t.Kind() != reflect.Struct && t.Kind() != reflect.Slice:
		r.at(n, key, "%s is not %s; write %s", quote(n.Value), kind, example)
	default: // a single value here may be a secret in the wrong place
		r.at(n, key, "is not %s; write %s", kind, example)
	}
	return nil, false
}

// unknown says that there is no such key, and which was meant.
func (r *reader) unknown(key string, n *yaml.Node) {
	known := fileKeys(key)
	for _, k := range known {
		if k == key {
			r.at(n, key, "a key has no dots; write its sections: %s", strings.ReplaceAll(key, ".", ": {")+": …"+strings.Repeat("}", strings.Count(key, ".")))
			return
		}
	}
	text := "unknown key"
	if meant := nearest(key, known); meant != "" {
		text += fmt.Sprintf("; did you mean %s?", meant)
	}
	r.at(n, shorten(key), "%s", text)
}

func (r *reader) at(n *yaml.Node, key, format string, args ...any) {
	r.problems.add(key, format, args...)
	r.problems[len(r.problems)-1].Source = fmt.Sprintf("%s:%d", r.path, n.Line)
}

func (r *reader) source(n *yaml.Node, key string) {
	r.sources[key] = fmt.Sprintf("%s:%d", r.path, n.Line)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// shorten cuts a key that no one could have meant.
func shorten(key string) string {
	if len(key) > 100 {
		return key[:100] + "…"
	}
	return key
}
