package configs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// envPrefix begins the name of every variable that is ours.
const envPrefix = "TOC_"

// foreign are the TOC_ variables that are no settings: the command line's, the test
// rig's, and what Kubernetes or docker links put into the environment next to a
// service that is called toc or toc-something.
var foreign = regexp.MustCompile(`^TOC_(CONFIG|SERVER|TOKEN|TEST_.*|SERVICE_HOST|SERVICE_PORT.*|PORT|PORT_.*` +
	`|.*_SERVICE_(HOST|PORT|PORT_.*)|.*_PORT_\d+_(TCP|UDP|SCTP)(_.*)?)=` +
	`|^TOC_.*_PORT=(tcp|udp|sctp)://`)

// readEnv sets the fields of config from the environment: a list of NAME=value, as
// os.Environ returns it.
func (l *loader) readEnv(environ []string) {
	known := map[string]setting{}
	for _, s := range settings(l.tree(), "") {
		if s.isSection() {
			continue
		}
		known[s.env()] = s
		if s.secret != noSecret {
			known[s.env()+envFileSuffix] = s
		}
	}
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || foreign.MatchString(pair) {
			continue
		}
		if s, ok := known[name]; ok {
			l.variable(s, name, text)
		} else if strings.HasPrefix(name, "TOC_BIZ_TYPES") {
			l.problems.add(shorten(name), "biz_types are given by the file only")
		} else {
			l.problems.add(shorten(name), "%s", unknown("setting", name, slices.Sorted(maps.Keys(known))))
		}
	}
}

// variable sets a setting from its own variable or from the variable of its secret file.
func (l *loader) variable(s setting, name, text string) {
	key, err := s.key, error(nil)
	switch {
	case !utf8.ValidString(text):
		err = errors.New("is not UTF-8; write plain text")
	case l.sources[s.key] == s.env(): // sorted before NAME_FILE
		err = fmt.Errorf("%s is given, too; set one of them", s.env())
	case name == s.env():
		if err = setText(s.value, text); s.file.IsValid() {
			s.file.SetZero() // of the configuration file
		}
	default:
		key += fileSuffix
		err = l.secrets.use(text, s)
	}
	if err != nil {
		l.problems.addFrom(name, key, "%v", err)
		return
	}
	l.fromFile[s.key] = key != s.key
	maps.DeleteFunc(l.sources, func(key, _ string) bool { return strings.HasPrefix(key, s.key+"[") }) // elements in the file
	l.sources[s.key], l.sources[key] = name, name
}
