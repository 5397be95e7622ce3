package cli

import (
	"errors"
	"fmt"

	ucli "github.com/urfave/cli/v2"

	"hk/remote"
	"hk/tasks/cluster"
)

func (a *app) cmdKubeconfig() *ucli.Command {
	return &ucli.Command{
		Name: "kubeconfig", Category: catOperate, Usage: "merge a cluster's admin access into your kubeconfig", ArgsUsage: "CLUSTER",
		Description: "Writes context CLUSTER into the first file of KUBECONFIG, or ~/.kube/config (0600; what was there\n" +
			"is kept as FILE.hk-backup), and makes it the current one.",
		UsageText: "hk kubeconfig demo && kubectl get nodes\nhk kubeconfig demo --print >demo.kubeconfig",
		Flags:     clusterFlags(boolFlag("print", "print the kubeconfig instead")),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{}, func(s *site, f form) error { return a.kubeconfig(c, s, f) })
		},
	}
}

func (a *app) kubeconfig(c *ucli.Context, s *site, f form) error {
	own, err := s.adminConf()
	if err != nil {
		return err
	}
	if c.Bool("print") {
		if f == asJSON {
			return a.printJSON(own)
		}
		text, err := own.encode()
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	}
	file := a.kubeconfigFiles()[0]
	if err := mergeKubeconfig(file, own); err != nil {
		return &exitError{code: ExitState, class: classState, err: err, hint: "hk kubeconfig " + s.name + " --print prints it instead"}
	}
	if f == asJSON {
		return a.printJSON(struct {
			V       int    `json:"v"`
			Cluster string `json:"cluster"`
			File    string `json:"file"`
			Context string `json:"context"`
		}{1, s.name, file, s.name})
	}
	fmt.Fprintf(a.Out, "context %s is in %s and is the current one\n", s.name, file)
	return nil
}

// adminConf is the unit's admin kubeconfig under the cluster's name.
func (s *site) adminConf() (kubeconfig, error) {
	u, err := s.unit()
	if err != nil {
		return nil, err
	}
	return adminConfOf(u, s.name)
}

func adminConfOf(u *cluster.Unit, name string) (kubeconfig, error) {
	data, err := u.File("admin.conf")
	if errors.Is(err, remote.ErrNotFound) {
		return nil, &exitError{
			code: ExitCredentials, class: classState, err: fmt.Errorf("%s has no admin credential yet", name),
			hint: "hk build " + name + " makes it in phase install-masters",
		}
	}
	if err != nil {
		return nil, err
	}
	k, err := parseKubeconfig(data)
	if err == nil {
		err = k.rename(name)
	}
	if err != nil {
		return nil, fmt.Errorf("admin.conf of the credential unit: %w", err)
	}
	return k, nil
}
