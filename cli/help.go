package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

// Categories of commands, in the order of the overview.
const (
	catBuild   = "Build"
	catLook    = "Look"
	catOperate = "Operate"
	catLab     = "The lab"
	catSelf    = "hk itself"
)

var categories = []string{catBuild, catLook, catOperate, catLab, catSelf}

// help writes the overview, or the help of one command, to stdout. In a command
// UsageText holds the examples and Description the longer text.
func (a *app) help(cmds []*ucli.Command, path []*ucli.Command) {
	if len(path) == 0 {
		overview(a.Out, cmds)
		return
	}
	commandHelp(a.Out, path)
}

func overview(w io.Writer, cmds []*ucli.Command) {
	fmt.Fprint(w, `hk builds and keeps Kubernetes clusters on Hetzner Cloud the way a build system
builds a program: it runs only what is stale, says why, and continues where the
last build stopped.

Usage: hk COMMAND [TARGET…] [FLAGS]     flags may stand anywhere

A target is CLUSTER, CLUSTER/HOST, CLUSTER:PHASE, CLUSTER:PHASE.PART, each
PHASE also with /HOST; a host may be a pattern like 'worker-*', and a final +
adds what needs it: demo:etcd-setup/master-1+
`)
	for _, cat := range categories {
		fmt.Fprintf(w, "\n%s\n", cat)
		for _, c := range cmds {
			if c.Category != cat || c.Hidden {
				continue
			}
			name := c.Name
			if len(c.Subcommands) > 0 {
				name += " " + strings.Join(visibleNames(c.Subcommands), "|")
			}
			if len(name) > 26 {
				name = c.Name + " …"
			}
			fmt.Fprintf(w, "  %-26s %s\n", name, c.Usage)
		}
	}
	fmt.Fprint(w, `
Start here: hk init demo && hk build demo
More: hk help COMMAND, hk help tasks; exit codes are listed in README.md.
`)
}

func commandHelp(w io.Writer, path []*ucli.Command) {
	c := path[len(path)-1]
	words := []string{"hk"}
	for _, p := range path {
		words = append(words, p.Name)
	}
	name := strings.Join(words, " ")
	fmt.Fprintf(w, "%s: %s\n\n", name, c.Usage)
	if len(c.Subcommands) > 0 {
		fmt.Fprintf(w, "Usage: %s COMMAND\n\nCommands\n", name)
		for _, s := range c.Subcommands {
			if !s.Hidden {
				fmt.Fprintf(w, "  %-10s %s\n", s.Name, s.Usage)
			}
		}
		if c.Description != "" {
			fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.Description))
		}
		return
	}
	usage := name
	if c.ArgsUsage != "" {
		usage += " " + c.ArgsUsage
	}
	if len(c.Flags) > 0 {
		usage += " [FLAGS]"
	}
	fmt.Fprintf(w, "Usage: %s\n", usage)
	if c.Description != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.Description))
	}
	if len(c.Flags) > 0 {
		fmt.Fprint(w, "\nFlags\n")
		for _, f := range c.Flags {
			flagHelp(w, f)
		}
	}
	if c.UsageText != "" {
		fmt.Fprint(w, "\nExamples\n")
		for l := range strings.SplitSeq(strings.TrimSpace(c.UsageText), "\n") {
			fmt.Fprintf(w, "  %s\n", strings.TrimSpace(l))
		}
	}
}

func flagHelp(w io.Writer, f ucli.Flag) {
	d, ok := f.(ucli.DocGenerationFlag)
	if !ok || hiddenFlag(f) {
		return
	}
	var names []string
	for _, n := range f.Names() {
		if len(n) == 1 {
			names = slices.Insert(names, 0, "-"+n)
		} else {
			names = append(names, "--"+n)
		}
	}
	placeholder, usage := unquote(d.GetUsage())
	left := strings.Join(names, ", ")
	if d.TakesValue() {
		if placeholder == "" {
			placeholder = "VALUE"
		}
		left += " " + placeholder
	}
	if len(left) > 24 {
		fmt.Fprintf(w, "  %s\n  %-24s  %s\n", left, "", usage)
		return
	}
	fmt.Fprintf(w, "  %-24s  %s\n", left, usage)
}

func hiddenFlag(f ucli.Flag) bool {
	v, ok := f.(ucli.VisibleFlag)
	return ok && !v.IsVisible()
}

// unquote takes the placeholder out of a usage text: "config `FILE` (…)".
func unquote(usage string) (placeholder, rest string) {
	before, after, ok := strings.Cut(usage, "`")
	if !ok {
		return "", usage
	}
	word, tail, ok := strings.Cut(after, "`")
	if !ok {
		return "", usage
	}
	return word, before + word + tail
}

func orList(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
}

// takesRest reports whether words after `--` are a remote command.
func takesRest(c *ucli.Command) bool { return strings.Contains(c.ArgsUsage, "-- CMD") }

// wantArgs checks the number of arguments and returns them. most < 0 means any.
func (a *app) wantArgs(least, most int) ([]string, error) {
	args := a.cmd.args()
	if takesRest(a.cmd.leaf()) {
		args = a.cmd.pos
		if len(args) == 0 && a.cmd.dash {
			return nil, usagef("see "+a.cmd.name()+" --help", "%s needs %s", a.cmd.name(), a.cmd.leaf().ArgsUsage)
		}
	}
	hint := "usage: " + strings.TrimSpace(a.cmd.name()+" "+a.cmd.leaf().ArgsUsage)
	if len(args) < least {
		return nil, usagef(hint, "%s needs an argument", a.cmd.name())
	}
	if most >= 0 && len(args) > most {
		return nil, usagef(hint, "%s: unexpected argument %q", a.cmd.name(), args[most])
	}
	return args, nil
}

func (a *app) cmdHelp(cmds func() []*ucli.Command) *ucli.Command {
	return &ucli.Command{
		Name: "help", Category: catSelf, Usage: "help of a command, or of all tasks",
		ArgsUsage: "[COMMAND… | tasks]",
		Description: "Without a command: the overview. `hk help tasks` lists every kind of task with its\n" +
			"scope, what it needs and why; it is made from the code itself.",
		UsageText: "hk help build\nhk help etcd snapshot\nhk help tasks",
		Action: func(*ucli.Context) error {
			words := a.cmd.args()
			if len(words) == 1 && words[0] == "tasks" {
				return a.helpTasks()
			}
			subs := cmds()
			var path []*ucli.Command
			for _, w := range words {
				i := slices.IndexFunc(subs, func(c *ucli.Command) bool { return c.HasName(w) })
				if i < 0 {
					c := command{path: path}
					return c.unknownCommand(cmds(), w)
				}
				path = append(path, subs[i])
				subs = subs[i].Subcommands
			}
			a.help(cmds(), path)
			return nil
		},
	}
}
