package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ucli "github.com/urfave/cli/v2"
)

// Help texts are golden: a change of one is looked at. -update writes them.
func TestHelpGolden(t *testing.T) {
	var b bytes.Buffer
	a := &app{Streams: Streams{Out: &b}}
	cmds := a.commands()
	overview(&b, cmds)
	var walk func(path, cmds []*ucli.Command)
	walk = func(path, cmds []*ucli.Command) {
		for _, c := range cmds {
			if c.Hidden {
				continue
			}
			p := append(append([]*ucli.Command{}, path...), c)
			b.WriteString("\n" + strings.Repeat("=", 78) + "\n")
			commandHelp(&b, p)
			walk(p, c.Subcommands)
		}
	}
	walk(nil, cmds)
	golden(t, "help.golden", b.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update writes it anew); got:\n%s", file, firstDifference(got, want))
	}
}

func firstDifference(a, b []byte) string {
	al, bl := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range al {
		if i >= len(bl) || al[i] != bl[i] {
			return al[i]
		}
	}
	return "(shorter)"
}

// Every command says what it does, who reads it can try it, and answers in
// JSON if it answers at all.
func TestCommandsAreDescribed(t *testing.T) {
	a := &app{}
	noForm := map[string]bool{"ssh": true, "help": true, "completion": true, "down": true}
	var walk func(cmds []*ucli.Command)
	walk = func(cmds []*ucli.Command) {
		for _, c := range cmds {
			if c.Hidden {
				continue
			}
			if c.Usage == "" {
				t.Errorf("%s has no usage", c.Name)
			}
			if len(c.Subcommands) > 0 {
				walk(c.Subcommands)
				continue
			}
			if c.UsageText == "" && c.Name != "version" {
				t.Errorf("%s has no example", c.Name)
			}
			if c.Action == nil {
				t.Errorf("%s does nothing", c.Name)
			}
			form := false
			for _, f := range c.Flags {
				form = form || f.Names()[0] == "output"
			}
			if !form && !noForm[c.Name] {
				t.Errorf("%s does not take -o", c.Name)
			}
		}
	}
	cmds := a.commands()
	walk(cmds)
	for _, c := range cmds {
		if c.Category == "" {
			t.Errorf("%s is in no category of the overview", c.Name)
		}
	}
}
