package spec

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v4"
)

// Schema is the JSON schema of the config file, for editors. It accepts all
// that the loader accepts; rules between fields are the loader's alone.
func Schema() ([]byte, error) {
	r := &jsonschema.Reflector{FieldNameTag: "yaml", ExpandedStruct: true, DoNotReference: true, RequiredFromJSONSchemaTags: true}
	s := r.Reflect(&Cluster{})
	s.ID = ""
	s.Title = "hk cluster"
	s.Description = "Config of one Kubernetes cluster. Everything but the name has a default."
	s.Required = []string{"name"}
	annotate(s, "")
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the schema: %w", err)
	}
	return append(data, '\n'), nil
}

// annotate puts the table's words on the schema's properties.
func annotate(s *jsonschema.Schema, path string) {
	if s.Items != nil {
		annotate(s.Items, path+"[]")
	}
	if s.Properties == nil {
		return
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		at := join(path, p.Key)
		f, ok := fieldOf(at)
		if !ok || f.Path != at {
			panic("bug: config field " + at + " is not in the table")
		}
		describeProperty(p.Value, f)
		annotate(p.Value, at)
	}
}

func describeProperty(s *jsonschema.Schema, f Field) {
	s.Description = f.Doc
	s.Pattern = f.Pattern
	for _, v := range f.Values {
		s.Enum = append(s.Enum, v)
	}
	if f.Default == "" || strings.Contains(f.Default, "NAME") {
		return
	}
	// Defaults are written as in the file; text that looks like a number is
	// not among them.
	var v any
	if err := yaml.Load([]byte(f.Default), &v); err != nil {
		panic("bug: default of " + f.Path + ": " + err.Error())
	}
	s.Default = v
}
