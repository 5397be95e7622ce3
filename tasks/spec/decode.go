package spec

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Limits of what a config may hold, against files that expand when read.
const (
	maxDepth = 40
	maxNodes = 200_000
)

// decoder fills the config from a YAML tree. It is our own, not the library's,
// because it must say everything that is wrong at once, each with its place,
// its path and a suggestion, and remember what was given.
type decoder struct {
	src      *Source
	problems Problems
	nodes    int
	// given holds the path of every value the file has, so that defaults go
	// only where nothing was said.
	given map[string]bool
}

func (d *decoder) add(n *yaml.Node, path, msg, hint string) {
	d.problems = append(d.problems, d.src.problemAt(Pos{n.Line, n.Column}, path, msg, hint))
}

// enter resolves aliases and checks the limits; nil if there is nothing to
// decode.
func (d *decoder) enter(n *yaml.Node, path string, depth int) *yaml.Node {
	d.nodes++
	if d.nodes > maxNodes || depth > maxDepth {
		if d.nodes <= maxNodes+1 {
			d.add(n, path, "is nested too deeply or too large", "")
			d.nodes = maxNodes + 1
		}
		return nil
	}
	at := n
	for hops := 0; n != nil && n.Kind == yaml.AliasNode; hops++ {
		if hops > maxDepth {
			return nil
		}
		n = n.Alias
	}
	if n == nil {
		return nil
	}
	if path != "" {
		d.src.pos[path] = Pos{at.Line, at.Column}
		d.given[path] = true
	}
	return n
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n = d.enter(n, path, depth); n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.add(n, path, "has no value", noValueHint(v))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, v, path, depth)
	case reflect.Slice:
		d.decodeSlice(n, v, path, depth)
	case reflect.Map:
		d.decodeMap(n, v, path, depth)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.decodeScalar(n, p.Elem(), path)
		v.Set(p)
	default:
		d.decodeScalar(n, v, path)
	}
}

func noValueHint(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Slice:
		return "write [] for none, or leave the key out for its default"
	case reflect.Map, reflect.Struct:
		return "write {} for nothing, or leave the key out for its default"
	default:
		return "leave the key out for its default"
	}
}

// want checks the shape of a node.
func (d *decoder) want(n *yaml.Node, kind yaml.Kind, path, what string) bool {
	if tag := n.ShortTag(); n.Kind == kind && (tag == "" || strings.HasPrefix(tag, "!!")) {
		return true
	}
	d.add(n, path, "must be "+what+", not "+describe(n), "")
	return false
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a block of keys"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!int", "!!float":
			return "the number " + n.Value
		case "!!bool":
			return n.Value
		case "!!null":
			return "nothing"
		case "!!str", "!!timestamp":
			return "the text " + strconv.Quote(short(n.Value))
		}
	default:
	}
	return "a value with tag " + short(n.Tag)
}

func short(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

// pairs calls f for each key of a mapping, refusing what is no plain key and
// what is there twice.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key string, k, v *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			d.add(k, path, "a key must be plain text", "merge keys and composite keys are not part of this file")
			continue
		}
		if line, twice := seen[k.Value]; twice {
			d.add(k, join(path, k.Value), fmt.Sprintf("is given twice, first on line %d", line), "keep one of the two")
			continue
		}
		seen[k.Value] = k.Line
		f(k.Value, k, v)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string, depth int) {
	if !d.want(n, yaml.MappingNode, path, "a block of keys") {
		return
	}
	fields := fieldsOf(v.Type())
	d.pairs(n, path, func(key string, k, val *yaml.Node) {
		p := join(path, key)
		i, ok := fields.index[key]
		if !ok {
			d.add(k, p, "unknown key", unknownHint(key, fields.names))
			return
		}
		d.src.keys[p] = Pos{k.Line, k.Column}
		d.decode(val, v.Field(i), p, depth+1)
	})
}

// unknownHint suggests a key that looks like the one given, else the block in
// which a key of this name exists, else what is known here.
func unknownHint(key string, names []string) string {
	if near := nearest(key, names); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	for _, f := range Fields() {
		if i := strings.LastIndexByte(f.Path, '.'); i >= 0 && f.Path[i+1:] == key {
			return key + " belongs under " + strings.TrimSuffix(f.Path[:i], "[]")
		}
	}
	return "known here: " + strings.Join(names, ", ")
}

type fieldIndex struct {
	names []string
	index map[string]int
}

func fieldsOf(t reflect.Type) fieldIndex {
	f := fieldIndex{index: map[string]int{}}
	for i := range t.NumField() {
		name := yamlName(t.Field(i))
		f.names = append(f.names, name)
		f.index[name] = i
	}
	return f
}

func yamlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value, path string, depth int) {
	if !d.want(n, yaml.SequenceNode, path, "a list") {
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.decode(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
	v.Set(out)
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, path string, depth int) {
	if !d.want(n, yaml.MappingNode, path, "a block of keys") {
		return
	}
	out := reflect.MakeMap(v.Type())
	d.pairs(n, path, func(key string, _, val *yaml.Node) {
		p := join(path, key)
		if v.Type().Elem().Kind() == reflect.Interface {
			if free, ok := d.free(val, p, depth+1); ok {
				out.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(&free).Elem())
			}
			return
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.decode(val, e, p, depth+1)
		out.SetMapIndex(reflect.ValueOf(key), e)
	})
	v.Set(out)
}

// free decodes what is passed through to another program: any tree that JSON
// can hold.
func (d *decoder) free(n *yaml.Node, path string, depth int) (any, bool) {
	if n = d.enter(n, path, depth); n == nil {
		return nil, false
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		d.pairs(n, path, func(key string, _, val *yaml.Node) {
			if x, ok := d.free(val, join(path, key), depth+1); ok {
				out[key] = x
			}
		})
		return out, true
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			if x, ok := d.free(item, fmt.Sprintf("%s[%d]", path, i), depth+1); ok {
				out = append(out, x)
			}
		}
		return out, true
	case yaml.ScalarNode:
		return d.freeScalar(n, path)
	default: // documents do not nest, aliases were resolved
		return nil, false
	}
}

func (d *decoder) freeScalar(n *yaml.Node, path string) (any, bool) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp":
		return n.Value, true
	case "!!bool":
		if b, err := strconv.ParseBool(n.Value); err == nil {
			return b, true
		}
	case "!!int":
		if i, ok := wholeNumber(n.Value); ok {
			return i, true
		}
	case "!!float":
		// Not every float can be written back: JSON has no .inf and no .nan.
		f, err := strconv.ParseFloat(n.Value, 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f, true
		}
	case "!!null":
		d.add(n, path, "has no value", "leave the key out")
		return nil, false
	}
	d.add(n, path, "cannot be passed on: "+describe(n), "write it in quotes if it is text")
	return nil, false
}

// wholeNumber reads a decimal number. 010 is refused: YAML's versions do not
// agree whether that is eight or ten.
func wholeNumber(s string) (int64, bool) {
	digits := strings.TrimPrefix(s, "-")
	if len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	i, err := strconv.ParseInt(s, 10, 64)
	return i, err == nil
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, path string) {
	what := map[reflect.Kind]string{reflect.String: "text", reflect.Bool: "true or false"}[v.Kind()]
	if what == "" {
		what = "a whole number"
	}
	if !d.want(n, yaml.ScalarNode, path, what) {
		return
	}
	tag := n.ShortTag()
	switch v.Kind() {
	case reflect.String:
		if tag != "!!str" && tag != "!!timestamp" {
			d.add(n, path, "must be text, not "+describe(n), "write it in quotes: "+strconv.Quote(short(n.Value)))
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if tag != "!!bool" {
			d.add(n, path, "must be true or false, not "+describe(n), "")
			return
		}
		v.SetBool(n.Value == "true" || n.Value == "True" || n.Value == "TRUE")
	case reflect.Int, reflect.Int64:
		i, ok := wholeNumber(n.Value)
		if tag != "!!int" || !ok || v.OverflowInt(i) {
			d.add(n, path, "must be a whole number, not "+describe(n), "")
			return
		}
		v.SetInt(i)
	default:
		panic("bug: the config has a field of kind " + v.Kind().String())
	}
}
