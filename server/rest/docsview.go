package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// The data of the documentation page, taken from the OpenAPI document.
type (
	docsGroup struct {
		*huma.Tag
		Operations []docsOperation
	}
	docsOperation struct {
		*huma.Operation
		Params, Body, AnswerFields []docsField
		Curl, Example              string
	}
	docsField struct {
		Name, In, Type, Description string
		Required                    bool
	}
)

// docsGroups lists the operations by tag, in the order of routes.go.
func docsGroups(doc *huma.OpenAPI, ops []*huma.Operation) []docsGroup {
	groups := make([]docsGroup, len(doc.Tags))
	for i, tag := range doc.Tags {
		groups[i] = docsGroup{Tag: tag}
		for _, op := range ops {
			if slices.Contains(op.Tags, tag.Name) {
				groups[i].Operations = append(groups[i].Operations, docsOf(doc, op))
			}
		}
	}
	return groups
}

func docsOf(doc *huma.OpenAPI, op *huma.Operation) docsOperation {
	schemas := doc.Components.Schemas
	d := docsOperation{Operation: op}
	for _, p := range op.Parameters {
		d.Params = append(d.Params, docsField{p.Name, p.In, typeOf(schemas, p.Schema), p.Description, p.Required})
	}
	if op.RequestBody != nil {
		d.Body = fieldsOf(schemas, op.RequestBody.Content[typeJSON].Schema, "")
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		for _, c := range op.Responses[status].Content {
			if c.Example != nil && d.Example == "" {
				d.Example = indented(c.Example)
				d.AnswerFields = fieldsOf(schemas, c.Schema, "")
			}
		}
	}
	isOpen := op.Security != nil && len(op.Security) == 0
	d.Curl = curl(op, len(doc.Components.SecuritySchemes) > 0 && !isOpen)
	return d
}

// fieldsOf lists the fields of an object as they were declared, each followed by
// the fields of the objects in it.
func fieldsOf(schemas huma.Registry, s *huma.Schema, prefix string) (fields []docsField) {
	if s.Ref == "" {
		return nil
	}
	o := resolve(schemas, s)
	for _, member := range reflect.VisibleFields(schemas.TypeFromRef(s.Ref)) {
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		p := o.Properties[name]
		if p == nil {
			continue
		}
		fields = append(fields, docsField{
			Name: prefix + name, Type: typeOf(schemas, p), Description: p.Description, Required: slices.Contains(o.Required, name),
		})
		if p.Type == huma.TypeArray {
			fields = append(fields, fieldsOf(schemas, p.Items, prefix+name+"[].")...)
		} else {
			fields = append(fields, fieldsOf(schemas, p, prefix+name+".")...)
		}
	}
	return fields
}

func resolve(schemas huma.Registry, s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		return schemas.SchemaFromRef(s.Ref)
	}
	return s
}

// typeOf says in words what a schema takes.
func typeOf(schemas huma.Registry, s *huma.Schema) string {
	s = resolve(schemas, s)
	switch {
	case len(s.OneOf) > 0:
		var kinds []string
		for _, one := range s.OneOf {
			kinds = append(kinds, one.Type)
		}
		return strings.Join(kinds, " or ")
	case len(s.Enum) > 0:
		return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(s.Enum), "[]")), " | ")
	case s.Type == huma.TypeArray:
		return "array of " + typeOf(schemas, s.Items)
	case s.Format == "date-time":
		return "date-time"
	default:
		return s.Type
	}
}

// curl is a call of the operation for a shell.
func curl(op *huma.Operation, token bool) string {
	target, query := op.Path, []string{}
	for _, p := range op.Parameters {
		if !p.Required || len(p.Schema.Examples) == 0 {
			continue
		}
		value := fmt.Sprint(p.Schema.Examples[0])
		if p.In == "path" {
			target = strings.ReplaceAll(target, "{"+p.Name+"}", value)
		} else {
			query = append(query, p.Name+"="+value)
		}
	}
	if len(query) > 0 {
		target += "?" + strings.Join(query, "&")
	}
	words := []string{`curl "$TOC_SERVER` + target + `"`}
	if op.Method != "GET" {
		words[0] = `curl -X ` + op.Method + ` "$TOC_SERVER` + target + `"`
	}
	if token {
		words = append(words, `-H "Authorization: Bearer $TOC_TOKEN"`)
	}
	if op.RequestBody != nil {
		words = append(words, "-H 'Content-Type: application/json'", "-d '"+indented(op.RequestBody.Content[typeJSON].Example)+"'")
	}
	return strings.Join(words, " \\\n  ")
}

func indented(example any) string {
	if text, ok := example.(string); ok {
		return text
	}
	raw, _ := example.(json.RawMessage)
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return string(raw)
	}
	return out.String()
}
