package configs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The YAML package parses the file into nodes, and this code reads the nodes. The package's
// own decoder would report mistakes without their keys, show secrets in its errors, and
// read max_retries: 1.5 as 1.

// maxMistakes is the number of mistakes after which no further section is read. Aliases
// let a small file repeat one mistake millions of times.
const maxMistakes = 1000

// readYAML sets the fields of config from the file's content. It returns false when the
// document cannot be parsed or has too many mistakes.
func (l *loader) readYAML(data []byte) bool {
	root, err := document(data)
	if err == nil && root.Kind != yaml.MappingNode {
		_, example := kindOf(l.tree())
		err = fmt.Errorf("is not a configuration; write %s", example)
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if strings.HasSuffix(text, "cannot start any token") {
			text += "; indent with spaces, not tabs, and quote a text that begins with @, ` or %"
		}
		l.problems.add(l.path, "%s", text)
		return false
	}
	l.section(l.tree(), root, "")
	return len(l.problems) <= maxMistakes
}

// document parses the file's only YAML document. An empty document is an error.
func document(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if doc.IsZero() || isNull(doc.Content[0]) || doc.Content[0].Kind == yaml.MappingNode && len(doc.Content[0].Content) == 0 {
		return nil, errors.New("holds no settings; write some, or start without a file to get the embedded default")
	}
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, fmt.Errorf("line %d: a second YAML document begins; write one only", next.Line))
	}
	return doc.Content[0], nil
}

// section sets the fields of a section from a mapping.
func (l *loader) section(section reflect.Value, n *yaml.Node, at string) {
	if len(l.problems) > maxMistakes {
		return
	}
	known, given := settings(section, at), l.entries(n, at)
	for _, e := range given {
		name := e.key.Value
		key := join(at, name)
		plain, isFile := strings.CutSuffix(key, fileSuffix)
		switch i := slices.IndexFunc(known, func(s setting) bool { return s.key == plain }); {
		case i >= 0 && strings.Contains(name, "."):
			l.mistake(e.key, key, "a key has no dots; write its sections: %s: …%s",
				strings.ReplaceAll(name, ".", ": {"), strings.Repeat("}", strings.Count(name, ".")))
		case i >= 0 && !isFile:
			l.value(known[i].value, e.value, key)
		case i >= 0 && known[i].secret != noSecret:
			if slices.ContainsFunc(given, func(other entry) bool { return join(at, other.key.Value) == plain }) {
				l.mistake(e.key, key, "%s is given, too; write one of them", plain)
			} else {
				l.secretFile(known[i], e.value, key)
			}
		default:
			meant := keys(l.tree(), "")
			if end := strings.IndexByte(at, ']'); strings.HasPrefix(at, "intake[") {
				meant = keys(reflect.ValueOf(Intake{}), at[:end+1])
			} else if end >= 0 {
				meant = keys(reflect.ValueOf(BizType{}), at[:end+1])
			} else if c, ok := section.Interface().(KafkaCluster); ok {
				meant = keys(reflect.ValueOf(c), at)
			}
			l.mistake(e.key, shorten(key), "%s", unknown("key", key, meant))
		}
	}
}

// value sets one value from its node.
func (l *loader) value(v reflect.Value, n *yaml.Node, key string) {
	n = follow(n)
	kind, example := kindOf(v)
	want := yaml.ScalarNode
	switch v.Kind() {
	case reflect.Struct:
		want = yaml.MappingNode
	case reflect.Slice:
		want = yaml.SequenceNode
	}
	_, isTLS := v.Interface().(TLS)
	_, isClusters := v.Interface().(KafkaClusters)
	if isClusters {
		want = yaml.MappingNode
	}
	switch {
	case isNull(n) && want == yaml.MappingNode: // all keys of the section are commented out
	case isNull(n):
		l.mistake(n, key, "has no value; write %s, or leave the key out", kind)
	case n.Kind != want: // the value is not quoted: it may be a secret in the wrong place
		l.mistake(n, key, "is not %s; write %s", kind, example)
	case isTLS && len(n.Content) == 0: // it would mean plain text
		l.mistake(n, key, "is empty; write {ca: system} to trust the certificates of the machine, {ca: FILE} to trust those in a PEM file, or leave the key out for plain text")
	case isClusters:
		l.clusters(v, n, key)
	case want == yaml.MappingNode:
		l.section(v, n, key)
	case want == yaml.SequenceNode:
		l.sources[key] = l.place(n)
		l.list(v, n, key)
	default:
		if err := setText(v, n.Value); err != nil {
			l.mistake(n, key, "%v", err)
			return
		}
		l.sources[key] = l.place(n)
	}
}

// list sets a list from a sequence. A wrong element keeps its place, so that the numbers of
// the others stay right.
func (l *loader) list(v reflect.Value, n *yaml.Node, key string) {
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch e := v.Index(i).Addr().Interface().(type) {
		case *BizType:
			*e = DefaultBizType()
		case *Intake:
			*e = defaultIntake()
		}
		l.sources[at] = l.place(e)
		l.value(v.Index(i), e, at)
	}
}

// secretFile sets a secret from the file whose path is the value of key.
func (l *loader) secretFile(secret setting, n *yaml.Node, key string) {
	var path string
	l.value(reflect.ValueOf(&path).Elem(), n, key)
	if l.problems.has(key) {
		return
	}
	if err := l.secrets.use(path, secret); err != nil {
		l.mistake(n, key, "%v", err)
	}
	l.fromFile[secret.key] = true
	l.sources[secret.key] = l.place(follow(n))
	l.sources[key] = l.place(follow(n))
}

func (l *loader) mistake(n *yaml.Node, key, format string, args ...any) {
	l.problems.addFrom(l.place(n), key, format, args...)
}

func (l *loader) place(n *yaml.Node) string { return fmt.Sprintf("%s:%d", l.path, n.Line) }

// entry is a key of a mapping and its value.
type entry struct{ key, value *yaml.Node }

// entries lists the keys of a mapping, then those of the mappings that it merges
// (<<: *name). Its own keys win over merged keys, and earlier merges over later ones.
func (l *loader) entries(mapping *yaml.Node, at string) []entry {
	var all []entry
	lines := map[string]int{} // key → line
	mappings := []*yaml.Node{mapping}
	for i := 0; i < len(mappings); i++ {
		content, next := mappings[i].Content, i+1
		for ; len(content) > 0; content = content[2:] {
			key, value := content[0], content[1]
			line, twice := lines[key.Value]
			switch own := i == 0; {
			case own && key.Kind != yaml.ScalarNode:
				l.mistake(key, join(at, "?"), "a key is not a word; write key: value")
			case own && twice:
				l.mistake(key, join(at, shorten(key.Value)), "is given twice, first on line %d; write it once", line)
			case key.Tag == "!!merge":
				lines[key.Value] = key.Line
				targets := []*yaml.Node{value}
				if list := follow(value); list.Kind == yaml.SequenceNode {
					targets = list.Content
				}
				for _, m := range targets {
					if m = follow(m); m.Kind != yaml.MappingNode {
						l.mistake(m, join(at, "<<"), "merges what is not a section; write *name of one")
					} else if !slices.Contains(mappings, m) { // a mapping may merge itself
						mappings = slices.Insert(mappings, next, m)
						next++
					}
				}
			case !twice && key.Kind == yaml.ScalarNode:
				lines[key.Value] = key.Line
				all = append(all, entry{key, value})
			}
		}
	}
	return all
}

// follow returns the node that an alias (*name) refers to.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
