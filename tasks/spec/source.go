package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxProblems is how many problems of one file are told at most.
const maxProblems = 40

// Pos is a place in a file, from 1.
type Pos struct{ Line, Col int }

// Source is a config file as it was read: where each value stands.
type Source struct {
	File  string
	Data  []byte
	lines []string
	pos   map[string]Pos // value by path
	keys  map[string]Pos // key by path
}

func newSource(file string, data []byte) *Source {
	return &Source{
		File: file, Data: data, lines: strings.Split(string(data), "\n"),
		pos: map[string]Pos{}, keys: map[string]Pos{},
	}
}

// Position is where the value of a path stands, or the nearest thing around it
// if the file does not give it; false if there is nothing at all.
func (s *Source) Position(path string) (line, col int, ok bool) {
	if s == nil {
		return 0, 0, false
	}
	for p := path; p != ""; p = parentPath(p) {
		if at, ok := s.pos[p]; ok && at.Line > 0 {
			return at.Line, at.Col, true
		}
		if at, ok := s.keys[p]; ok {
			return at.Line, at.Col, true
		}
	}
	return 0, 0, false
}

// parentPath is workers[1].taints of workers[1].taints[0]; "" at the top.
func parentPath(p string) string {
	if i := strings.LastIndexAny(p, ".["); i >= 0 {
		return p[:i]
	}
	return ""
}

// snippet is the line and a caret below the column.
func (s *Source) snippet(line, col int) string {
	if s == nil || line < 1 || line > len(s.lines) {
		return ""
	}
	text := strings.TrimRight(s.lines[line-1], "\r")
	if len(text) > 160 {
		return "" // generated or binary; no help to anybody
	}
	lead := []rune(text)[:min(max(col-1, 0), len([]rune(text)))]
	for i, r := range lead {
		if r != '\t' {
			lead[i] = ' '
		}
	}
	return fmt.Sprintf("%4d | %s\n     | %s^", line, text, string(lead))
}

// problem makes an error at a path.
func (s *Source) problem(path, msg, hint string) *ConfigError {
	e := &ConfigError{Path: path, Msg: msg, Hint: hint}
	if s == nil {
		return e
	}
	e.File = s.File
	if line, col, ok := s.Position(path); ok {
		e.Line, e.Col, e.Snippet = line, col, s.snippet(line, col)
	}
	return e
}

// problemAt makes an error at a place.
func (s *Source) problemAt(p Pos, path, msg, hint string) *ConfigError {
	return &ConfigError{
		File: s.File, Line: p.Line, Col: p.Col, Path: path, Msg: msg, Hint: hint, Snippet: s.snippet(p.Line, p.Col),
	}
}

// inOrder sorts problems by place and drops what is too much.
func inOrder(p Problems) Problems {
	slices.SortStableFunc(p, func(a, b *ConfigError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return p[:min(len(p), maxProblems)]
}
