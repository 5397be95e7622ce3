package cli

import (
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

// Questions. --yes answers those that lose nothing. Where data or servers are
// lost only the name answers, typed or given with --confirm, so that neither a
// habit nor a script's --yes can do it.

// person reports whether somebody is there to be asked.
func (a *app) person() bool {
	return isTerminal(a.In) && isTerminal(a.Err) && a.getenv("CI") == ""
}

// ask asks a question that loses nothing.
func (a *app) ask(c *ucli.Context, question string) bool {
	if c.Bool("yes") {
		return true
	}
	if !a.person() {
		return false
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	switch strings.ToLower(strings.TrimSpace(a.readLine())) {
	case "y", "yes":
		return true
	}
	return false
}

// confirmLoss asks for a name before something is lost.
func (a *app) confirmLoss(c *ucli.Context, name, question string) error {
	given := c.String("confirm")
	if given == "" && a.person() {
		fmt.Fprintf(a.Err, "%s\ntype the name %q to go on: ", question, name)
		given = strings.TrimSpace(a.readLine())
	}
	if given == name {
		return nil
	}
	msg := question
	if given != "" {
		msg = fmt.Sprintf("%s; the name given is %q, not %q", question, given, name)
	}
	return &exitError{
		code: ExitConsent, class: classConfig, err: fmt.Errorf("not confirmed: %s", msg),
		hint: fmt.Sprintf("add --confirm %s", name),
	}
}

// readLine reads one line byte by byte: what follows it belongs to others.
func (a *app) readLine() string {
	var line []byte
	b := make([]byte, 1)
	for {
		n, err := a.In.Read(b)
		if n == 1 && b[0] != '\n' {
			line = append(line, b[0])
		}
		if err != nil || n == 1 && b[0] == '\n' {
			return string(line)
		}
	}
}
