package cli

import (
	"slices"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
)

// Flags are made here, one function a flag, so that a name means the same on
// every command that has it.

func boolFlag(name, usage string, aliases ...string) ucli.Flag {
	return &ucli.BoolFlag{Name: name, Aliases: aliases, Usage: usage, DisableDefaultText: true}
}

func stringFlag(name, value, usage string, aliases ...string) ucli.Flag {
	return &ucli.StringFlag{Name: name, Aliases: aliases, Value: value, Usage: usage}
}

func outputFlag() ucli.Flag {
	return stringFlag("output", "text", "`FORM` of the answer: text or json", "o")
}

func configFlag() ucli.Flag { return stringFlag("config", "", "config `FILE` (default ./NAME.yaml)") }

func tokenDirFlag() ucli.Flag {
	return stringFlag("token-dir", "", "look for the cluster's credentials in `DIR` first")
}

func verboseFlag() ucli.Flag {
	return boolFlag("verbose", "tell more: fresh tasks, output of tasks, connections", "v")
}
func quietFlag() ucli.Flag { return boolFlag("quiet", "tell only what failed") }
func yesFlag() ucli.Flag {
	return boolFlag("yes", "answer yes to questions that lose nothing", "y")
}

func confirmFlag() ucli.Flag {
	return stringFlag("confirm", "", "confirm the loss of data or servers with the cluster's `NAME`")
}
func labFlag() ucli.Flag { return stringFlag("lab", "", "the lab's `NAME` (default: default)") }

// clusterFlags are those of every command that reaches a cluster.
func clusterFlags(more ...ucli.Flag) []ucli.Flag {
	return slices.Concat(more, []ucli.Flag{configFlag(), tokenDirFlag(), outputFlag(), verboseFlag(), quietFlag()})
}

// form is the form of the answer.
type form string

const (
	asText form = "text"
	asJSON form = "json"
)

// outputForm reads -o.
func outputForm(c *ucli.Context) (form, error) {
	f := form(c.String("output"))
	if f != asText && f != asJSON {
		return "", usagef("use -o text or -o json", "output form %q", f)
	}
	return f, nil
}

func (a *app) style() ui.Style { return ui.Style{Color: a.color} }

// outStyle is for answers on stdout.
func (a *app) outStyle() ui.Style {
	return ui.Style{Color: isTerminal(a.Out) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"}
}
