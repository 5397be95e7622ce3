package cli

import (
	"fmt"
	"strconv"

	ucli "github.com/urfave/cli/v2"

	"hk/tasks/cluster"
	"hk/tasks/spec"
)

func (a *app) cmdConfig() *ucli.Command {
	return &ucli.Command{
		Name: "config", Category: catLook, Usage: "the config of a cluster",
		Subcommands: []*ucli.Command{a.cmdConfigShow(), a.cmdConfigDiff(), a.cmdConfigSchema()},
	}
}

func (a *app) cmdConfigShow() *ucli.Command {
	return &ucli.Command{
		Name: "show", Usage: "the config a cluster was last brought to", ArgsUsage: "NAME",
		Description: "The applied config, with everything filled in; no secret is in it. With --config: that file, as hk\n" +
			"reads it.",
		UsageText: "hk config show demo\nhk config show demo >demo.yaml",
		Flags:     []ucli.Flag{configFlag(), tokenDirFlag(), outputFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			s, err := a.openConfig(c, args[0], false)
			if err != nil {
				return err
			}
			if f == asJSON {
				return a.printJSON(struct {
					V       int           `json:"v"`
					Cluster string        `json:"cluster"`
					Config  *spec.Cluster `json:"config"`
				}{1, s.name, s.cfg})
			}
			text, err := spec.Marshal(s.cfg)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
}

// openConfig reads a cluster's config without opening its world.
func (a *app) openConfig(c *ucli.Context, word string, file bool) (*site, error) {
	name, err := clusterArg(word)
	if err != nil {
		return nil, err
	}
	home, err := a.home()
	if err != nil {
		return nil, err
	}
	s := &site{a: a, name: name, home: home, units: a.unitStore(c, home, name)}
	return s, s.chooseConfig(c, siteOptions{file: file})
}

func (a *app) cmdConfigDiff() *ucli.Command {
	return &ucli.Command{
		Name: "diff", Usage: "what a config file changes of the applied config", ArgsUsage: "NAME",
		UsageText: "hk config diff demo\nhk config diff demo -o json",
		Flags:     []ucli.Flag{configFlag(), tokenDirFlag(), outputFlag()},
		Action: func(c *ucli.Context) error {
			args, err := a.wantArgs(1, 1)
			if err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			s, err := a.openConfig(c, args[0], true)
			if err != nil {
				return err
			}
			applied, err := s.appliedConfig()
			if err != nil {
				return err
			}
			if applied == nil {
				return &exitError{code: ExitConfig, class: classConfig, err: fmt.Errorf("nothing was applied of %s yet", s.name), hint: "hk build " + s.name}
			}
			return a.printDiff(f, s, cluster.DiffConfig(applied, s.cfg, s.src))
		},
	}
}

func (a *app) printDiff(f form, s *site, diff []cluster.ConfigChange) error {
	if f == asJSON {
		return a.printJSON(struct {
			V       int                    `json:"v"`
			Cluster string                 `json:"cluster"`
			Diff    []cluster.ConfigChange `json:"config_diff"`
		}{1, s.name, append([]cluster.ConfigChange{}, diff...)})
	}
	if len(diff) == 0 {
		fmt.Fprintf(a.Out, "%s: %s is the applied config\n", s.name, s.config)
	}
	for _, d := range diff {
		at := s.config
		if d.Line != nil {
			at += ":" + strconv.Itoa(*d.Line)
		}
		fmt.Fprintf(a.Out, "%s: %s\n", at, d)
	}
	return nil
}

func (a *app) cmdConfigSchema() *ucli.Command {
	return &ucli.Command{
		Name: "schema", Usage: "JSON schema of the config file, for editors",
		UsageText: "hk config schema >hk.schema.json", Flags: []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			if _, err := outputForm(c); err != nil {
				return err
			}
			text, err := spec.Schema()
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
}
