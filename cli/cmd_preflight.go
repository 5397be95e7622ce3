package cli

import (
	"crypto/rand"
	"errors"
	"fmt"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
	"hk/tasks/cluster"
)

func (a *app) cmdPreflight() *ucli.Command {
	return &ucli.Command{
		Name: "preflight", Category: catLook, Usage: "check the gates a build would have to pass", ArgsUsage: "NAME",
		Description: "Reads the project and its catalog and creates nothing. With --live everything that reading can\n" +
			"tell about the project is checked, also what this cluster has already: do this once with a real\n" +
			"project before the first build there.",
		UsageText: "hk preflight demo\nhk preflight --live prod",
		Flags:     clusterFlags(boolFlag("live", "check the whole project, not only what would be created")),
		Action:    a.runPreflight,
	}
}

func (a *app) runPreflight(c *ucli.Context) (err error) {
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
	s, err := a.openSite(c, name, siteOptions{file: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.world.ready(); err != nil {
		return err
	}
	if _, err := s.sess.Discover(c.Context, cluster.Look{NoHosts: true}); err != nil {
		return err
	}
	p, err := s.sess.Preflight(c.Context, cluster.PreflightOptions{SSH: s.world.canSign, Live: c.Bool("live")})
	if err != nil {
		return err
	}
	if f == asJSON {
		err = a.printJSON(struct {
			V       int    `json:"v"`
			Cluster string `json:"cluster"`
			*cluster.Preflight
		}{1, name, p})
	} else {
		printPreflight(a, p)
	}
	return errors.Join(err, p.Err())
}

func printPreflight(a *app, p *cluster.Preflight) {
	st := a.outStyle()
	t := ui.NewTable("GATE", "STATE", "FOUND")
	for _, g := range p.Gates {
		state := st.Red("fails")
		switch {
		case g.OK:
			state = st.Green("ok")
		case g.Warning:
			state = st.Yellow("warning")
		}
		t.Row(g.Name, state, g.Message)
	}
	t.Write(a.Out)
	if c := p.Cost; c != nil && c.After != nil {
		fmt.Fprintf(a.Out, "cost: %s a month; of what exists: %s\n", money(c.After, c.Currency), money(c.Before, c.Currency))
	}
}

// canSign proves that the operator's key works, by using it.
func (w *world) canSign() error {
	if w.signer == nil {
		return nil // in the agent; the first contact uses it
	}
	_, err := w.signer.Sign(rand.Reader, []byte("hk preflight"))
	return err
}
