package cli

import (
	"fmt"
	"time"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
)

func (a *app) cmdCerts() *ucli.Command {
	return &ucli.Command{
		Name: "certs", Category: catOperate, Usage: "certificates of a cluster",
		Subcommands: []*ucli.Command{a.cmdCertsCheck()},
	}
}

func (a *app) cmdCertsCheck() *ucli.Command {
	return &ucli.Command{
		Name: "check", Usage: "when they end, and whether all speak of the same authorities", ArgsUsage: "CLUSTER",
		Description: "Reads the certificates of the credential unit and of every host that answers, and compares the\n" +
			"authority on each master, in the unit and as served. Exit code 1 if something is to be seen to.",
		UsageText: "hk certs check demo\nhk certs check demo -o json", Flags: clusterFlags(),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{}, func(s *site, f form) error {
				r, err := s.sess.CheckCerts(c.Context)
				if err != nil {
					return err
				}
				if f == asJSON {
					err = a.printJSON(r)
				} else {
					st := a.outStyle()
					t := ui.NewTable("CERTIFICATE", "ENDS", "IN", "SUBJECT")
					for _, crt := range r.Certificates {
						if crt.Expires == nil {
							t.Row(crt.Name, st.Red(text(crt.Problem)))
							continue
						}
						days := fmt.Sprintf("%d days", int(crt.Expires.Sub(a.now())/(24*time.Hour)))
						if crt.Expiring {
							days = st.Red(days)
						}
						t.Row(crt.Name, crt.Expires.Format("2006-01-02"), days, text(crt.Subject))
					}
					t.Write(a.Out)
					if first := r.First(); first != nil && len(r.Warnings) == 0 {
						fmt.Fprintf(a.Out, "%d certificates, all of the same authorities; the first ends in %d days (%s)\n",
							len(r.Certificates), int(first.Expires.Sub(a.now())/(24*time.Hour)), first.Name)
					}
					for _, w := range r.Warnings {
						fmt.Fprintf(a.Out, "%s %s\n", st.Yellow("warning:"), w)
					}
				}
				if err == nil && len(r.Warnings) > 0 {
					return &exitError{code: ExitFailed, class: classState, err: fmt.Errorf("%s to be seen to", plural(len(r.Warnings), "thing"))}
				}
				return err
			})
		},
	}
}
