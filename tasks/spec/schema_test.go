package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "rewrite golden files")

// schemaFile is the checked-in schema that editors read.
var schemaFile = filepath.Join("..", "..", "docs", "config.schema.json")

func TestSchemaFileIsCurrent(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(schemaFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/config.schema.json is not what the types say; go test ./tasks/spec -update writes it")
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is a YAML text as the values a JSON schema judges.
func asJSON(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Load(text, &v); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSchemaAcceptsWhatTheLoaderAccepts(t *testing.T) {
	s := compile(t)
	for name, text := range valid {
		t.Run(name, func(t *testing.T) {
			if err := s.Validate(asJSON(t, []byte(text))); err != nil {
				t.Errorf("the file: %v", err)
			}
			c, _ := parse(t, text)
			full, err := Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(asJSON(t, full)); err != nil {
				t.Errorf("the same with defaults: %v", err)
			}
		})
	}
}

func TestSchemaRefuses(t *testing.T) {
	s := compile(t)
	for _, name := range []string{
		"no name", "unknown key", "unknown at all", "wrong types", "version number", "name", "cloud", "version no v", "pools",
		"taints", "endpoint", "flannel", "mirrors",
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.Validate(asJSON(t, []byte(wrong[name].text))); err == nil {
				t.Error("an editor would not mark it")
			}
		})
	}
}
