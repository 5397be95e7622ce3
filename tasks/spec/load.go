package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFile is the largest config file in bytes.
const maxFile = 1 << 20

// Load reads a config file. Its error is Problems, or one of reading the file.
func Load(path string) (*Cluster, *Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the config: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the config: %w", err)
	}
	return Parse(data, path)
}

// Parse reads a config: unknown, repeated and mistyped keys refused, defaults
// filled in, paths made absolute from the file's folder, rules checked. Its
// error is Problems.
func Parse(data []byte, filename string) (*Cluster, *Source, error) {
	src := newSource(filename, data)
	if len(data) > maxFile {
		return nil, src, Problems{src.problem("", fmt.Sprintf("is larger than %d bytes", maxFile), "")}
	}
	root, p := src.tree()
	if p != nil {
		return nil, src, Problems{p}
	}
	c := &Cluster{}
	d := &decoder{src: src, given: map[string]bool{}}
	d.decode(root, reflect.ValueOf(c).Elem(), "", 0)
	setDefaults(c, d.given)
	if err := inOrder(append(d.problems, d.unsaid(validate(c, src))...)).err(); err != nil {
		return nil, src, err
	}
	resolvePaths(c, filename)
	return c, src, nil
}

// unsaid leaves out what follows from a problem told already. Rules are checked
// also when something could not be read, so that one look at the file is
// enough; but what was read wrongly is not judged twice, and what is missing
// beside a misspelt key is most likely what was misspelt.
func (d *decoder) unsaid(rules Problems) Problems {
	bad, around := map[string]bool{}, map[string]bool{}
	for _, e := range d.problems {
		bad[e.Path], around[parentPath(e.Path)] = true, true
	}
	var out Problems
	for _, e := range rules {
		if !bad[e.Path] && (d.given[e.Path] || !around[parentPath(e.Path)]) {
			out = append(out, e)
		}
	}
	return out
}

// tree reads the file into the library's nodes.
func (s *Source) tree() (*yaml.Node, *ConfigError) {
	loader, err := yaml.NewLoader(bytes.NewReader(s.Data))
	if err != nil {
		return nil, s.problem("", err.Error(), "")
	}
	var doc, second yaml.Node
	err = loader.Load(&doc)
	if errors.Is(err, io.EOF) || err == nil && (doc.Kind == 0 || len(doc.Content) == 0) {
		return nil, s.problem("", "the file is empty", "hk init NAME writes one")
	}
	if err != nil {
		return nil, s.syntax(err)
	}
	if err := loader.Load(&second); err == nil {
		return nil, s.problemAt(Pos{max(second.Line, 1), 1}, "", "holds more than one document", "one file is one cluster")
	} else if !errors.Is(err, io.EOF) {
		return nil, s.syntax(err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, s.problemAt(Pos{root.Line, root.Column}, "", "must be a block of keys, not "+describe(root), "hk init NAME writes an example")
	}
	return root, nil
}

// syntax is an error of the YAML itself.
func (s *Source) syntax(err error) *ConfigError {
	var le *yaml.LoadError
	if errors.As(err, &le) && le.Mark.Line > 0 {
		return s.problemAt(Pos{le.Mark.Line, max(le.Mark.Column, 1)}, "", "not valid YAML: "+le.Message, "")
	}
	return s.problem("", "not valid YAML: "+err.Error(), "")
}

// resolvePaths makes paths absolute. Those in a file are relative to the file,
// not to where hk was started.
func resolvePaths(c *Cluster, filename string) {
	dir := filepath.Dir(filename)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	for _, p := range []*string{&c.SSH.Key, &c.SSH.Bastion.Key, &c.Sim.World} {
		switch {
		case *p == "" || filepath.IsAbs(*p):
		case strings.HasPrefix(*p, "~/"):
			if home, err := os.UserHomeDir(); err == nil {
				*p = filepath.Join(home, (*p)[2:])
			}
		default:
			*p = filepath.Join(dir, *p)
		}
	}
}

// Marshal writes a config with everything filled in, as it is kept of an
// applied one. It holds no secret: the config has none.
func Marshal(c *Cluster) ([]byte, error) {
	data, err := yaml.Dump(c, yaml.WithIndent(2))
	if err != nil {
		return nil, fmt.Errorf("writing the config: %w", err)
	}
	return data, nil
}
