package cli

import (
	"fmt"
	"runtime"

	ucli "github.com/urfave/cli/v2"
)

func (a *app) cmdVersion() *ucli.Command {
	return &ucli.Command{
		Name: "version", Category: catSelf, Usage: "version of hk", UsageText: "hk version\nhk version -o json",
		Flags: []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			return a.printVersion(f == asJSON)
		},
	}
}

func (a *app) printVersion(asJSON bool) error {
	if asJSON {
		return a.printJSON(map[string]any{
			"v": 1, "version": version, "commit": commit, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	s := "hk " + version
	if commit != "" {
		s += " (" + commit + ")"
	}
	fmt.Fprintf(a.Out, "%s %s %s/%s\n", s, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
