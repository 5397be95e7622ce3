package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a stream is one that a person looks at.
func isTerminal(s any) bool {
	f, ok := s.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// tty is a terminal the live view draws on.
type tty struct {
	io.Writer
	fd int
}

// Size implements ui.Terminal.
func (t tty) Size() (cols, rows int) {
	cols, rows, err := term.GetSize(t.fd)
	if err != nil || cols <= 0 || rows <= 0 {
		return 80, 24
	}
	return cols, rows
}
