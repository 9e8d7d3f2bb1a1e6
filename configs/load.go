package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Load reads the settings: the environment (as os.Environ gives it) over the
// file at path over Default. A path of "" is no file; a file that is missing or
// holds no settings is an error. The Config is checked and complete. The error
// is a join of all Problems, one line each.
func Load(path string, environ []string) (Config, error) {
	var data []byte
	if path != "" {
		var err error
		if data, err = readFile(path); err != nil {
			return Config{}, fmt.Errorf("read configuration: %w", err)
		}
	}
	c, _, err := parse(path, data, environ, Config.checkTLSFiles)
	return c, err
}

// loader sets the fields of config from the file and then from the environment. It
// collects the mistakes.
type loader struct {
	path     string // of the file
	config   Config
	sources  map[string]string // key → path:line or variable
	secrets  secretFiles
	fromFile map[string]bool // keys of secrets that were read from a file
	problems problems
}

// parse is Load for a file that has been read already, with further checks. It also returns the
// paths of the secret files that it read.
func parse(path string, data []byte, environ []string, further ...func(Config) problems) (Config, secretFiles, error) {
	l := loader{path: path, config: base(), sources: map[string]string{}, fromFile: map[string]bool{}}
	readable := path == "" || l.readYAML(data)
	l.readEnv(environ)
	if readable { // else all values are still the defaults
		zeros := l.config.zeros()
		l.config = l.config.WithDefaults()
		misread := l.problems
		found := slices.Concat(zeros, l.placeholders(), l.config.check())
		for _, check := range further {
			for _, p := range check(l.config) {
				if !found.has(p.Key) {
					found = append(found, p)
				}
			}
		}
		for _, p := range found {
			if misread.has(p.Key) || misread.has(p.Key+fileSuffix) { // the default in its place may break a rule
				continue
			}
			if !l.problems.has(p.Key) { // one word about each is enough
				p.Source = l.sourceOf(p.Key)
				l.problems = append(l.problems, p)
			}
		}
	}
	if err := l.problems.err(); err != nil {
		return Config{}, l.secrets, err
	}
	return l.config, l.secrets, nil
}

// zeros refuses zeros that WithDefaults would take for "not set": base has set these, so the file or the environment has
// said 0.
func (c Config) zeros() (ps problems) {
	ps.require(c.Store.SlowAfter != 0, "store.slow_after", "0s is too little; write 1s or more")
	for i, b := range c.BizTypes {
		at := fmt.Sprintf("biz_types[%d].", i)
		ps.require(b.Pull.TTR != 0, at+"pull.ttr", "0s is out of range; write 100ms to 24h")
		ps.require(b.Pull.MaxInFlight != 0, at+"pull.max_in_flight", "0 is too little; write 1 or more")
	}
	return ps
}

// tree is the Config, its fields settable.
func (l *loader) tree() reflect.Value { return reflect.ValueOf(&l.config).Elem() }

// sourceOf returns where the value of a key came from, or else the list or element that
// contains the key; "" when unknown.
func (l *loader) sourceOf(key string) string {
	for key != "" {
		if s, ok := l.sources[key]; ok {
			return s
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return ""
}
