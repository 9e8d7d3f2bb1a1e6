package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile is the size in bytes above which a file is surely not a configuration.
const maxFile = 1 << 20

// readFile gives the content of the file, or an error that names it.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read configuration: %s is larger than %d bytes", path, maxFile)
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

// document parses the one document that a file holds.
func document(data []byte) (*yaml.Node, error) {
	empty := errors.New("holds no settings; write some, or start without a file to get the embedded default")

	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, empty
	} else if err != nil {
		return nil, err
	}
	root := doc.Content[0]
	if isNull(root) || root.Kind == yaml.MappingNode && len(root.Content) == 0 {
		return nil, empty
	}
	if err := decoder.Decode(&next); err == nil {
		return nil, fmt.Errorf("line %d: a second YAML document begins; write one only", next.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return root, nil
}

// section reads a mapping whose keys are those of the struct type.
func (r *reader) section(n *yaml.Node, t reflect.Type, path string) map[string]any {
	layer := map[string]any{}
	for key, value := range r.pairs(n, path) {
		full := join(path, key)
		typ, known := field(t, key)
		if !known {
			r.unknown(full, value)
			continue
		}
		if v, ok := r.value(value, typ, full); ok {
			layer[key] = v
		}
	}
	return layer
}

// pairs gives a mapping's keys and values. A key given twice is a problem; the
// keys that a merge ("<<: *other") brings give way to the mapping's own.
func (r *reader) pairs(n *yaml.Node, path string) iter.Seq2[string, *yaml.Node] {
	seen := map[string]int{} // key → line
	var keep []*yaml.Node    // keys and values by turns
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		full := join(path, shorten(key.Value))
		switch line, twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.at(key, join(path, "?"), "a key is not a word; write key: value")
		case twice:
			r.at(key, full, "is given twice, first on line %d; write it once", line)
		case key.Tag != "!!merge":
			keep = append(keep, key, value)
		}
		seen[key.Value] = key.Line
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		for _, other := range merged(n.Content[i+1]) {
			if other.Kind != yaml.MappingNode {
				r.at(other, join(path, "<<"), "merges what is not a section; write *name of one")
				continue
			}
			for j := 0; j < len(other.Content); j += 2 {
				key := other.Content[j]
				if _, own := seen[key.Value]; own {
					continue
				}
				if key.Tag == "!!merge" {
					r.at(key, join(path, "<<"), "merges a section that merges; write the keys out")
					continue
				}
				seen[key.Value] = key.Line
				keep = append(keep, key, other.Content[j+1])
			}
		}
	}
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; i < len(keep); i += 2 {
			if !yield(keep[i].Value, keep[i+1]) {
				return
			}
		}
	}
}

// merged lists the mappings that a merge key names.
func merged(n *yaml.Node) []*yaml.Node {
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	var all []*yaml.Node
	for _, element := range n.Content {
		all = append(all, follow(element))
	}
	return all
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

// follow gives what an alias (*name) stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

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
