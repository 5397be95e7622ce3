package ui

// Style colours text for terminals that want it.
type Style struct{ Color bool }

func (s Style) wrap(code, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Red is for what went wrong.
func (s Style) Red(t string) string { return s.wrap("31", t) }

// Green is for what went well.
func (s Style) Green(t string) string { return s.wrap("32", t) }

// Yellow is for what to look at.
func (s Style) Yellow(t string) string { return s.wrap("33", t) }

// Dim is for what may be skipped.
func (s Style) Dim(t string) string { return s.wrap("2", t) }

// Bold is for headings.
func (s Style) Bold(t string) string { return s.wrap("1", t) }
