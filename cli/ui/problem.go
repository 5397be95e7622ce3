package ui

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Problem is an error as people read it: what is wrong, where, and what to do.
type Problem struct {
	Message string
	File    string // "" if it has no place
	Line    int    // from 1; 0 if unknown
	Col     int    // from 1; 0 if unknown
	Hints   []string
	// Details are more lines, such as the root causes of a failed build.
	Details []string
}

// Write prints the problem:
//
//	error: demo.yaml:12:3: unknown key "mastres"
//	   12 |   mastres:
//	      |   ^
//	hint: did you mean "masters"?
func (p *Problem) Write(w io.Writer, st Style) {
	msg := p.Message
	if at := p.place(); at != "" && !strings.HasPrefix(msg, at) {
		msg = at + ": " + msg
	}
	fmt.Fprintf(w, "%s %s\n", st.Red("error:"), msg)
	if p.File != "" && p.Line > 0 {
		p.snippet(w, st)
	}
	for _, d := range p.Details {
		fmt.Fprintf(w, "  %s\n", d)
	}
	for _, h := range p.Hints {
		for i, l := range strings.Split(h, "\n") {
			if i == 0 {
				fmt.Fprintf(w, "%s %s\n", st.Yellow("hint:"), l)
			} else {
				fmt.Fprintf(w, "      %s\n", l)
			}
		}
	}
}

func (p *Problem) place() string {
	switch {
	case p.File == "":
		return ""
	case p.Line == 0:
		return p.File
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// snippet shows the line and a caret under the column. A file that cannot be
// read any more shows nothing: the place is named already.
func (p *Problem) snippet(w io.Writer, st Style) {
	line, ok := readLine(p.File, p.Line)
	if !ok {
		return
	}
	const most = 160
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most]) + "…"
	}
	fmt.Fprintf(w, "%5d | %s\n", p.Line, line)
	if p.Col < 1 {
		return
	}
	var pad strings.Builder
	for i, r := range []rune(line) {
		if i >= p.Col-1 {
			break
		}
		if r == '\t' {
			pad.WriteByte('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	fmt.Fprintf(w, "      | %s%s\n", pad.String(), st.Red("^"))
}

func readLine(file string, n int) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }() // read only
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for i := 1; sc.Scan(); i++ {
		if i == n {
			return strings.ToValidUTF8(strings.TrimRight(sc.Text(), "\r"), "?"), true
		}
	}
	return "", false
}
