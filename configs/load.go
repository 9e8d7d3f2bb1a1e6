package configs

import (
	"fmt"
	"maps"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
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
			return Config{}, err
		}
	}
	c, _, err := parse(path, data, environ)
	return c, err
}

// parse is Load with the file's content in hand. It tells which files of secrets it read.
func parse(path string, data []byte, environ []string) (Config, secretFiles, error) {
	file := reader{path: path, sources: map[string]string{}}
	var fileLayer map[string]any
	if path != "" {
		fileLayer = file.read(data)
	}
	envLayer, envSources, envProblems := readEnv(environ, &file.secrets)
	found := append(file.problems, envProblems...)
	if path != "" && fileLayer == nil { // nothing is known of what was meant
		return Config{}, file.secrets, found.err()
	}

	c, err := merge(fileLayer, envLayer)
	if err != nil {
		return Config{}, file.secrets, err
	}
	c = c.WithDefaults()

	sources := file.sources
	maps.Copy(sources, envSources)
	for _, p := range c.check() {
		if !found.has(p.Key) { // not what follows from a mistake that is told already
			p.Source = sourceOf(p.Key, sources)
			found = append(found, p)
		}
	}
	if err := found.err(); err != nil {
		return Config{}, file.secrets, err
	}
	return c, file.secrets, nil
}

// merge lays the layers over the default. An element of biz_types is laid over
// the default of its kind the same way.
func merge(file, env map[string]any) (Config, error) {
	if elements, ok := file["biz_types"].([]any); ok {
		for i := range elements {
			var b BizType
			if err := decode(&b, structs.Provider(DefaultBizType(), "koanf"), confmap.Provider(elements[i].(map[string]any), "")); err != nil {
				return Config{}, fmt.Errorf("merge biz_types[%d]: %w", i, err)
			}
			elements[i] = b
		}
	}
	var c Config
	err := decode(&c, structs.Provider(base(), "koanf"), confmap.Provider(file, ""), confmap.Provider(env, "."))
	if err != nil {
		return Config{}, fmt.Errorf("merge configuration: %w", err)
	}
	return c, nil
}

// decode fills into from the layers, later over earlier. Their values have the
// right types already, so nothing is converted.
func decode(into any, layers ...koanf.Provider) error {
	k := koanf.New(".")
	for _, layer := range layers {
		if err := k.Load(layer, nil); err != nil {
			return err
		}
	}
	return k.UnmarshalWithConf("", into, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{TagName: "koanf", ErrorUnused: true, Result: into},
	})
}

// sourceOf finds where a key's value came from, or else that of the list or
// element that the key is in.
func sourceOf(key string, sources map[string]string) string {
	for key != "" {
		if s, ok := sources[key]; ok {
			return s
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return ""
}
