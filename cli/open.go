package cli

import (
	"errors"
	"os"
	"slices"

	ucli "github.com/urfave/cli/v2"

	"hk/tasks/cluster"
	"hk/tasks/spec"
)

// onCluster runs a command that is about one existing cluster, its argument.
func (a *app) onCluster(c *ucli.Context, o siteOptions, do func(s *site, f form) error) (err error) {
	args, err := a.wantArgs(1, 1)
	if err != nil {
		return err
	}
	f, err := outputForm(c)
	if err != nil {
		return err
	}
	name, err := clusterArg(args[0])
	if err != nil {
		return err
	}
	s, err := a.openSite(c, name, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return do(s, f)
}

// unit is the credential unit; exit 9 if there is none.
func (s *site) unit() (*cluster.Unit, error) {
	if u := s.sess.Unit(); u != nil {
		return u, nil
	}
	return nil, &cluster.Refusal{
		Exit: ExitCredentials, World: classState, Message: "there are no credentials of " + s.name + " here",
		Details: []string{"tried: " + s.units.Place(s.name)},
		Hints:   []string{"hk build " + s.name + " makes the cluster; HK_HOME or --token-dir name where its credentials are"},
	}
}

// knownHosts are the hosts of a cluster as the files here tell; for completion.
func (a *app) knownHosts(name string) []string {
	var out []string
	if home, err := a.home(); err == nil {
		u, err := cluster.OpenUnit(cluster.NewDir(home), name, cluster.UnitOptions{Version: version, Now: a.now})
		if err == nil {
			out = slices.Sorted(keys(u.Hosts()))
		}
	}
	if len(out) > 0 {
		return out
	}
	if _, err := os.Stat(name + ".yaml"); err != nil {
		return nil
	}
	cfg, _, err := spec.Load(name + ".yaml")
	if err != nil {
		return nil
	}
	return spec.Names(cfg)
}
