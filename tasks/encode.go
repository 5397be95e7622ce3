package tasks

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"hk/cache/fp"
)

// checkInput panics unless every field of an input struct is exported, labelled
// and of a kind that encodes canonically. What Run can see must be what the
// fingerprint holds (law 4), so there is no way to opt a field out.
func checkInput(kind string, t reflect.Type) {
	if t.Kind() != reflect.Struct {
		panic("bug: input of " + kind + " is not a struct")
	}
	seen := map[string]bool{}
	for f := range t.Fields() {
		label := f.Tag.Get("part")
		if label == "" || !f.IsExported() {
			panic("bug: input field " + kind + "." + f.Name + " has no part label or is not exported")
		}
		if seen[label] {
			panic("bug: input of " + kind + " uses label " + label + " twice")
		}
		seen[label] = true
	}
}

// encodeInput adds every field of an input struct to the parts. Labels that
// start with "secret:" are opaque: they hold a key ID or an HMAC and are not
// shown.
func encodeInput(in any, p *fp.Parts) {
	v := reflect.ValueOf(in)
	t := v.Type()
	for i := range t.NumField() {
		label := t.Field(i).Tag.Get("part")
		text := canonical(v.Field(i))
		if strings.HasPrefix(label, "secret:") || strings.HasPrefix(label, "file:") {
			p.Opaque(label, []byte(text))
		} else {
			p.Text(label, text)
		}
	}
}

// Canonical is implemented by input fields that write themselves: shorter to
// read than their fields one by one. Two different values must write different
// text.
type Canonical interface{ Canonical() string }

// canonical writes a value so that two different values never read the same:
// strings in composite values are quoted, maps sorted, nil and empty alike
// (config makes no difference between them).
func canonical(v reflect.Value) string {
	if v.Kind() == reflect.Struct || v.Kind() == reflect.Array {
		if c, ok := reflect.TypeAssert[Canonical](v); ok {
			return c.Canonical()
		}
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint32, reflect.Uint64, reflect.Uint16:
		return fmt.Sprint(v.Interface())
	default:
		var b strings.Builder
		writeCanonical(&b, v)
		return b.String()
	}
}

func writeCanonical(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		b.WriteString(strconv.Quote(v.String()))
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		b.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.Float64, reflect.Float32:
		b.WriteString(strconv.FormatFloat(v.Float(), 'g', -1, 64))
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			writeCanonical(b, v.Index(i))
		}
		b.WriteByte(']')
	case reflect.Map:
		keys := v.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strconv.Quote(k.String()))
			b.WriteByte(':')
			writeCanonical(b, v.MapIndex(k))
		}
		b.WriteByte('}')
	case reflect.Struct:
		b.WriteByte('(')
		for i := range v.NumField() {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(v.Type().Field(i).Name)
			b.WriteByte('=')
			writeCanonical(b, v.Field(i))
		}
		b.WriteByte(')')
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		writeCanonical(b, v.Elem())
	default:
		panic("bug: cannot encode " + v.Type().String())
	}
}
