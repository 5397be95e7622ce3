package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

// How words become a command.
//
// urfave/cli v2 gives each level's words to the standard library's flag
// package, which stops at the first word without a dash: in `hk build demo
// --force` the flag would silently become a second argument (urfave/cli#976,
// #1177, #1481). Flags of hk work anywhere, so the words are put in order
// before the library sees them:
//
//  1. Words are read up to `--`. Words without a dash name the command, level
//     by level, until it is one without subcommands; later ones are arguments.
//  2. A flag may stand anywhere, also before the command. It takes the next
//     word as its value if it wants one and has no `=`; so that this can be
//     decided before the command is known, a flag name means the same on every
//     command that has it (TestFlagsAgree).
//  3. What follows `--` is kept aside, word for word: it is a remote command
//     for `hk ssh`, more arguments for all others.
//  4. Everything unknown is an error here, with a suggestion. The library only
//     converts values.
//
// The order is canonical: command path, flags as given, arguments, `--`, rest.
// Doing it twice changes nothing.

// command is what was typed, taken apart.
type command struct {
	path []*ucli.Command // empty for a bare `hk`
	argv []string        // canonical order, without the program's name
	pos  []string        // arguments
	rest []string        // after `--`
	dash bool            // a `--` was given
	help bool
	ver  bool
}

// name is what the command is called in messages, such as "hk etcd members".
func (c *command) name() string {
	words := []string{"hk"}
	for _, p := range c.path {
		words = append(words, p.Name)
	}
	return strings.Join(words, " ")
}

// leaf is the command that runs; nil for a bare `hk`.
func (c *command) leaf() *ucli.Command {
	if len(c.path) == 0 {
		return nil
	}
	return c.path[len(c.path)-1]
}

// args are all arguments, those after `--` too.
func (c *command) args() []string { return slices.Concat(c.pos, c.rest) }

// flagWord is one flag as it was typed.
type flagWord struct {
	name  string
	words []string
	bare  bool // wants a value and has none
}

// arrange puts the words after the program's name in order.
func arrange(root []*ucli.Command, words []string) (*command, error) {
	c := &command{}
	arity := flagArity(root)
	subs := root
	var flags []flagWord
	var unknown *string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			c.dash, c.rest = true, slices.Clone(words[i+1:])
			break
		}
		if len(w) > 1 && w[0] == '-' {
			f, next := takeFlag(words, i, arity)
			flags = append(flags, f)
			i = next
			continue
		}
		if len(subs) == 0 {
			c.pos = append(c.pos, w)
			continue
		}
		k := slices.IndexFunc(subs, func(s *ucli.Command) bool { return s.HasName(w) })
		if k < 0 {
			unknown = &w
			subs = nil
			continue
		}
		c.path = append(c.path, subs[k])
		subs = subs[k].Subcommands
	}
	for _, f := range flags {
		c.help = c.help || f.name == "help" || f.name == "h"
		c.ver = c.ver || (f.name == "version" && len(c.path) == 0)
	}
	if unknown != nil {
		return c, c.unknownCommand(root, *unknown)
	}
	if c.help || c.ver {
		return c, nil
	}
	if err := c.checkFlags(root, flags); err != nil {
		return c, err
	}
	c.argv = c.canonical(flags)
	return c, nil
}

// canonical is the order the library can read.
func (c *command) canonical(flags []flagWord) []string {
	var out []string
	for _, p := range c.path {
		out = append(out, p.Name)
	}
	for _, f := range flags {
		out = append(out, f.words...)
	}
	out = append(out, c.pos...)
	if c.dash {
		out = append(append(out, "--"), c.rest...)
	}
	return out
}

// takeFlag reads the flag at i and returns the index of its last word.
func takeFlag(words []string, i int, arity map[string]bool) (flagWord, int) {
	w := words[i]
	name, _, hasValue := strings.Cut(strings.TrimPrefix(w[1:], "-"), "=")
	f := flagWord{name: name, words: []string{w}}
	if hasValue || !arity[name] {
		return f, i
	}
	if i+1 == len(words) || words[i+1] == "--" || isFlag(words[i+1], arity) {
		f.bare = true
		return f, i
	}
	f.words = append(f.words, words[i+1])
	return f, i + 1
}

// isFlag reports whether a word is a flag of hk's and so cannot be the value of
// the one before it.
func isFlag(w string, arity map[string]bool) bool {
	if len(w) < 2 || w[0] != '-' {
		return false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(w[1:], "-"), "=")
	_, known := arity[name]
	return known
}

// flagArity says of every flag name of every command whether it wants a value.
func flagArity(cmds []*ucli.Command) map[string]bool {
	out := map[string]bool{"help": false, "h": false, "version": false}
	var walk func([]*ucli.Command)
	walk = func(cmds []*ucli.Command) {
		for _, c := range cmds {
			for _, f := range c.Flags {
				for _, n := range f.Names() {
					out[n] = takesValue(f)
				}
			}
			walk(c.Subcommands)
		}
	}
	walk(cmds)
	return out
}

func takesValue(f ucli.Flag) bool {
	d, ok := f.(ucli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// checkFlags refuses flags the command does not have and flags without a value.
func (c *command) checkFlags(root []*ucli.Command, flags []flagWord) error {
	var own []string
	if l := c.leaf(); l != nil {
		for _, f := range l.Flags {
			own = append(own, f.Names()...)
		}
	}
	for _, f := range flags {
		if !slices.Contains(own, f.name) {
			return c.unknownFlag(root, own, f)
		}
		if f.bare {
			return usagef(fmt.Sprintf("see %s --help", c.name()), "flag %s needs a value", f.words[0])
		}
	}
	return nil
}

func (c *command) unknownFlag(root []*ucli.Command, own []string, f flagWord) error {
	word, _, _ := strings.Cut(f.words[0], "=")
	var long []string
	for _, n := range own {
		if len(n) > 1 {
			long = append(long, n)
		}
	}
	hint := fmt.Sprintf("see %s --help", c.name())
	if where := flagOwners(root, f.name); len(where) > 0 {
		hint = fmt.Sprintf("it is a flag of %s", strings.Join(where, ", "))
	} else if s := closest(f.name, long); s != "" {
		hint = fmt.Sprintf("did you mean --%s?", s)
	} else if l := c.leaf(); l != nil && takesRest(l) {
		hint = fmt.Sprintf("put `--` before the command to run: %s … -- CMD", c.name())
	}
	return usagef(hint, "unknown flag %s for `%s`", word, c.name())
}

// flagOwners lists the visible commands that have a flag.
func flagOwners(root []*ucli.Command, name string) []string {
	var out []string
	var walk func(prefix string, cmds []*ucli.Command)
	walk = func(prefix string, cmds []*ucli.Command) {
		for _, c := range cmds {
			if c.Hidden {
				continue
			}
			for _, f := range c.Flags {
				if slices.Contains(f.Names(), name) {
					out = append(out, prefix+c.Name)
				}
			}
			walk(prefix+c.Name+" ", c.Subcommands)
		}
	}
	walk("hk ", root)
	return out
}

func (c *command) unknownCommand(root []*ucli.Command, word string) error {
	subs := root
	if l := c.leaf(); l != nil {
		subs = l.Subcommands
	}
	names := visibleNames(subs)
	hint := "commands are " + strings.Join(names, ", ")
	if len(c.path) == 0 {
		hint = "see hk help"
	}
	if s := closest(word, names); s != "" {
		hint = fmt.Sprintf("did you mean `%s %s`?", c.name(), s)
	}
	return usagef(hint, "unknown command `%s %s`", c.name(), word)
}

func visibleNames(cmds []*ucli.Command) []string {
	var out []string
	for _, s := range cmds {
		if !s.Hidden {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}

// usageError is a wrong command line: exit code 2.
type usageError struct{ msg, hint string }

func (e *usageError) Error() string { return e.msg }

// Hint is what to do about it.
func (e *usageError) Hint() string { return e.hint }

func usagef(hint, format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...), hint: hint}
}

// isUsage reports whether an error is a wrong command line.
func isUsage(err error) bool {
	_, ok := errors.AsType[*usageError](err)
	return ok
}
