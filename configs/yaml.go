package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// What YAML is by itself, before any key means something: one document, aliases
// (*name), merges (<<), and keys that are given once.

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

// pair is a key and what stands at it.
type pair struct{ key, value *yaml.Node }

func pairsOf(mapping *yaml.Node) []pair {
	pairs := make([]pair, 0, len(mapping.Content)/2)
	for i := 0; i < len(mapping.Content); i += 2 {
		pairs = append(pairs, pair{mapping.Content[i], mapping.Content[i+1]})
	}
	return pairs
}

// pairs gives a mapping's keys and values, then those that its merges bring: the
// mapping's own keys go over merged ones, earlier merges over later.
func (r *reader) pairs(mapping *yaml.Node, path string) []pair {
	var keep, merges []pair
	seen := map[string]int{} // key → line
	for _, p := range pairsOf(mapping) {
		line, twice := seen[p.key.Value]
		seen[p.key.Value] = p.key.Line
		switch {
		case p.key.Kind != yaml.ScalarNode:
			r.at(p.key, join(path, "?"), "a key is not a word; write key: value")
		case twice:
			r.at(p.key, join(path, shorten(p.key.Value)), "is given twice, first on line %d; write it once", line)
		case isMerge(p.key):
			merges = append(merges, p)
		default:
			keep = append(keep, p)
		}
	}
	for _, m := range merges {
		for _, other := range merged(m.value) {
			if other.Kind != yaml.MappingNode {
				r.at(other, join(path, "<<"), "merges what is not a section; write *name of one")
				continue
			}
			for _, p := range pairsOf(other) {
				if isMerge(p.key) { // not followed, so that no merge goes in circles
					r.at(p.key, join(path, "<<"), "merges a section that merges; write the keys out")
				} else if _, own := seen[p.key.Value]; !own {
					seen[p.key.Value] = p.key.Line
					keep = append(keep, p)
				}
			}
		}
	}
	return keep
}

// merged lists the mappings that a merge names: one, or a list of them.
func merged(n *yaml.Node) []*yaml.Node {
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	all := make([]*yaml.Node, len(n.Content))
	for i, element := range n.Content {
		all[i] = follow(element)
	}
	return all
}

// follow gives what an alias (*name) stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" }
