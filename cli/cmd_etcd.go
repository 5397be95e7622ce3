package cli

import (
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
)

func (a *app) cmdEtcd() *ucli.Command {
	return &ucli.Command{
		Name: "etcd", Category: catOperate, Usage: "etcd's members and snapshots",
		Subcommands: []*ucli.Command{
			a.cmdEtcdMembers(),
			{Name: "snapshot", Usage: "snapshots of etcd", Subcommands: []*ucli.Command{a.cmdSnapshotSave()}},
		},
	}
}

func (a *app) cmdEtcdMembers() *ucli.Command {
	return &ucli.Command{
		Name: "members", Usage: "the members and how they do", ArgsUsage: "CLUSTER",
		UsageText: "hk etcd members demo\nhk etcd members demo -o json", Flags: clusterFlags(),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{}, func(s *site, f form) error {
				if _, err := s.unit(); err != nil {
					return err
				}
				st, err := s.sess.Status(c.Context)
				if err != nil {
					return err
				}
				e := st.Etcd
				if e == nil {
					return &exitError{code: ExitFailed, class: classEtcd, err: fmt.Errorf("%s has no etcd that can be asked", s.name), hint: strings.Join(st.Warnings, "; ")}
				}
				if f == asJSON {
					err = a.printJSON(struct {
						V       int    `json:"v"`
						Cluster string `json:"cluster"`
						Healthy bool   `json:"healthy"`
						Members any    `json:"members"`
						Alarms  any    `json:"alarms"`
					}{1, s.name, e.Healthy, e.Members, e.Alarms})
				} else {
					t := ui.NewTable("MEMBER", "ID", "ROLE", "VERSION", "SIZE", "PROBLEM")
					for _, m := range e.Members {
						role := "follower"
						switch {
						case m.Leader:
							role = "leader"
						case m.Learner:
							role = "learner"
						}
						size := ""
						if m.DBSize != nil {
							size = fmt.Sprintf("%.1f MiB", float64(*m.DBSize)/(1<<20))
						}
						t.Row(m.Name, m.ID, role, text(m.Version), size, text(m.Problem))
					}
					t.Write(a.Out)
				}
				if err == nil && !e.Healthy {
					return &exitError{code: ExitFailed, class: classEtcd, err: fmt.Errorf("etcd of %s has no quorum that answers", s.name)}
				}
				return err
			})
		},
	}
}

func (a *app) cmdSnapshotSave() *ucli.Command {
	return &ucli.Command{
		Name: "save", Usage: "save a snapshot into a file here", ArgsUsage: "CLUSTER",
		Description: "The snapshot is streamed from one member, checked, and only then gets its name (0600). It holds\n" +
			"every Secret of the cluster, encrypted with a key of the credential unit: keep both.",
		UsageText: "hk etcd snapshot save demo\nhk etcd snapshot save demo --file /backup/demo.db",
		Flags: clusterFlags(
			stringFlag("file", "", "`FILE` to write (default: CLUSTER-etcd-TIME.db)"),
			stringFlag("member", "", "`HOST` to take it from (default: a follower)"),
		),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{}, func(s *site, f form) error {
				file := c.String("file")
				if file == "" {
					file = s.name + "-etcd-" + a.now().UTC().Format("20060102T150405Z") + ".db"
				}
				snap, err := s.sess.SaveSnapshot(c.Context, file, c.String("member"))
				if err != nil {
					return err
				}
				for _, w := range snap.Warnings {
					s.tell("warning: " + w)
				}
				if f == asJSON {
					return a.printJSON(snap)
				}
				fmt.Fprintf(a.Out, "%s: %.1f MiB from %s, sha256 %s\n", snap.Path, float64(snap.Size)/(1<<20), snap.Member, snap.SHA256)
				return nil
			})
		},
	}
}
