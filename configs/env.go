package configs

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// envPrefix begins the name of every variable that is ours.
const envPrefix = "TOC_"

// foreign are the TOC_ variables that are no settings: the client's, the test
// rig's, and what Kubernetes or docker links put into the environment next to a
// service that is called toc or toc-something.
var foreign = regexp.MustCompile(`^TOC_(SERVER|TOKEN|TEST_.*|SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_.*` +
	`|.*_SERVICE_(HOST|PORT|PORT_.*)|.*_PORT_\d+_(TCP|UDP|SCTP)(_.*)?)=` +
	`|^TOC_.*_PORT=(tcp|udp|sctp)://`)

// readEnv makes a layer of the environment, which is a list of NAME=value as
// os.Environ gives it. Lists are split at commas; "" is an empty list.
func readEnv(environ []string, secrets *secretFiles) (layer map[string]any, sources map[string]string, ps problems) {
	known := map[string]setting{}
	for _, s := range settings() {
		known[s.env()] = s
		if s.kind != "" {
			known[s.env()+envFileSuffix] = s
		}
	}
	layer, sources = map[string]any{}, map[string]string{}
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || foreign.MatchString(pair) {
			continue
		}
		s, ok := known[name]
		if !ok {
			unknownEnv(&ps, name, slices.Sorted(maps.Keys(known)))
			continue
		}
		if !utf8.ValidString(text) {
			ps = append(ps, &Problem{Key: s.key, Text: "is not UTF-8; write plain text", Source: name})
			continue
		}
		if other, twice := sources[s.key]; twice {
			ps = append(ps, &Problem{Key: s.key, Text: other + " is given, too; set one of them", Source: name})
			continue
		}
		if name != s.env() {
			v, err := secrets.read(text, s.typ)
			if err != nil {
				ps = append(ps, &Problem{Key: s.key + fileSuffix, Text: err.Error(), Source: name})
				continue
			}
			layer[s.key] = v
		} else if s.typ.Kind() == reflect.Slice {
			layer[s.key] = split(text)
		} else if v, ok := parseScalar(text, s.typ); ok {
			layer[s.key] = v
		} else {
			kind, example := kindOf(s.typ)
			ps = append(ps, &Problem{
				Key:    s.key,
				Text:   fmt.Sprintf("%s is not %s; write %s", quote(text), kind, example),
				Source: name,
			})
			continue
		}
		sources[s.key] = name
	}
	return layer, sources, ps
}

// unknownEnv says that a variable is none, and which was meant.
func unknownEnv(ps *problems, name string, known []string) {
	text := "unknown setting"
	switch meant := nearest(name, known); {
	case strings.HasPrefix(name, "TOC_BIZ_TYPES"):
		text = "biz_types are given by the file only"
	case meant != "":
		text += fmt.Sprintf("; did you mean %s?", meant)
	}
	ps.add(shorten(name), "%s", text)
}

func split(text string) []string {
	if strings.TrimSpace(text) == "" {
		return []string{}
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
