package spec

import (
	"fmt"
	"strings"
)

// ConfigError is one problem of a config file: where it is, what is wrong and
// what to do about it.
type ConfigError struct {
	File      string
	Line, Col int    // from 1; 0 if there is no place in the file
	Path      string // such as masters.count or workers[1].taints[0].effect
	Msg       string
	Snippet   string // the line and a caret below it; "" without a place
	Hint      string // what to write instead, or the command to run
}

// Error is one line: place, path, message, hint.
func (e *ConfigError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Col)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Msg)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Class is "config".
func (e *ConfigError) Class() string { return "config" }

// Problems is everything that is wrong with one file, in the file's order.
type Problems []*ConfigError

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, e := range p {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each problem reachable by errors.As.
func (p Problems) Unwrap() []error {
	out := make([]error, len(p))
	for i, e := range p {
		out[i] = e
	}
	return out
}

// Class is "config".
func (p Problems) Class() string { return "config" }

// err is nil if there are no problems.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
