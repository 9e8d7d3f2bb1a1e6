package configs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/configuration.md is written by hand up to this line. The rest is made of the code.
const referenceMark = "<!-- made of configs/config.go by `go test ./configs -run Reference -update` -->\n"

// The page is what the comments of config.go and the values of Default say.
func TestReferenceIsTheCode(t *testing.T) {
	const path = "../docs/configuration.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	head, _, found := strings.Cut(string(page), referenceMark)
	require.True(t, found, "%s lacks the line %s", path, referenceMark)

	r := reference{t: t, comments: comments(t)}
	defaults := Default()
	defaults.Node.Name = "" // it differs from process to process
	r.section(reflect.ValueOf(defaults), "")
	want := head + referenceMark + r.page.String()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "run go test ./configs -run Reference -update")
}

// comments reads the comments of config.go: of each type (Store) and of each field (Store.Driver), on one line.
func comments(t *testing.T) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	require.NoError(t, err)
	all := map[string]string{}
	oneLine := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	for _, d := range file.Decls {
		types, ok := d.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		typ := types.Specs[0].(*ast.TypeSpec)
		all[typ.Name.Name] = oneLine(types.Doc)
		for _, f := range typ.Type.(*ast.StructType).Fields.List {
			all[typ.Name.Name+"."+f.Names[0].Name] = oneLine(f.Doc)
		}
	}
	return all
}

type reference struct {
	t        *testing.T
	comments map[string]string
	page     strings.Builder
}

// section writes the keys of a section, then the sections in it.
func (r *reference) section(section reflect.Value, at string) {
	var inner []func()
	for i := range section.NumField() {
		f := section.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		key, comment := join(at, name), r.comments[section.Type().Name()+"."+f.Name]
		s := setting{key: key, value: section.Field(i), secret: secret(f.Tag.Get("secret"))}
		switch {
		case !s.isSection():
			r.key(s, f.Name, comment)
		case s.value.Kind() == reflect.Struct:
			inner = append(inner, func() { r.open(key, s.value.Type(), comment); r.section(s.value, key) })
		default:
			inner = append(inner, func() {
				r.open(key, s.value.Type().Elem(), comment)
				if s.value.Type() == reflect.TypeFor[KafkaClusters]() {
					r.section(reflect.ValueOf(KafkaCluster{Brokers: []string{}}), key+".NAME")
				} else if s.value.Type() == reflect.TypeFor[[]Intake]() {
					r.section(reflect.ValueOf(defaultIntake()), key+"[]")
				} else {
					r.section(reflect.ValueOf(DefaultBizType()), key+"[]")
				}
			})
		}
	}
	for _, write := range inner {
		write()
	}
}

// open writes the heading of a section. What a comment says to Go programs is not for the page.
func (r *reference) open(key string, typ reflect.Type, comment string) {
	about, _, _ := strings.Cut(r.comments[typ.Name()], " In code,")
	if rest, ok := strings.CutPrefix(about, typ.Name()+" configures "); ok {
		about = strings.ToUpper(rest[:1]) + rest[1:]
	}
	about = strings.TrimSpace(comment + " " + about)
	require.NotEmpty(r.t, about, "%s has no comment", key)
	fmt.Fprintf(&r.page, "\n## %s\n\n%s\n", key, wrap(about))
}

// key writes one key. Its comment says the default as Default does, or that there is none.
func (r *reference) key(s setting, field, comment string) {
	value := shown(s.value)
	text, found := strings.CutSuffix(comment, " Defaults to "+value+".")
	line := "Default: `" + value + "`"
	if !found {
		text, found = strings.CutSuffix(comment, " It has no default.")
		line = "Required"
	}
	require.True(r.t, found, `the comment of %s ends neither with "Defaults to %s." nor with "It has no default.": %s`, s.key, value, comment)
	for _, verb := range []string{" is ", " are "} {
		text = strings.TrimPrefix(text, field+verb)
	}
	if !strings.Contains(s.key, "[]") && !strings.Contains(s.key, "NAME") {
		line += " · Environment: `" + s.env() + "`"
	}
	if s.secret != noSecret {
		line += " · Secret"
	}
	fmt.Fprintf(&r.page, "\n### %s\n\n%s\n\n%s\n", s.key, line, wrap(strings.ToUpper(text[:1])+text[1:]))
}

// shown is a value as a file has it.
func shown(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return strings.ReplaceAll(strings.ReplaceAll(value.String(), "m0s", "m"), "h0m", "h")
	case []string:
		return "[" + strings.Join(value, ", ") + "]"
	case string:
		if value == "" {
			return `""`
		}
	}
	return fmt.Sprint(v.Interface())
}

// wrap breaks a text into lines of at most 120 bytes.
func wrap(text string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) >= 120 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}
