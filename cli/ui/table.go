package ui

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table prints rows in columns, two spaces apart, with a heading. A cell may be
// coloured: its width is what is seen.
type Table struct {
	head []string
	rows [][]string
}

// NewTable starts a table with its heading.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row; missing cells are empty.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(t.head))
	for i := range row {
		if i < len(cells) {
			row[i] = fmt.Sprint(cells[i])
		}
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Write prints the table.
func (t *Table) Write(w io.Writer) {
	width := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, r := range all {
		for i, c := range r {
			width[i] = max(width[i], visible(c))
		}
	}
	for _, r := range all {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-visible(c)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// visible is the number of characters a terminal shows: escape sequences show
// none.
func visible(s string) int {
	if !strings.Contains(s, "\x1b[") {
		return utf8.RuneCountInString(s)
	}
	n, esc := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			esc = true
		case esc:
			esc = r != 'm'
		default:
			n++
		}
	}
	return n
}
