package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"hk/cache"
	"hk/cli/ui"
	"hk/tasks/cluster"
)

func (a *app) cmdCache() *ucli.Command {
	return &ucli.Command{
		Name: "cache", Category: catSelf, Usage: "what hk remembers of tasks",
		Description: "Records are a cache: losing them costs time, never data. `rebuild` reads them back from the hosts.",
		Subcommands: []*ucli.Command{a.cmdCacheLs(), a.cmdCacheDoctor(), a.cmdCacheRebuild()},
	}
}

func (a *app) openStore(write bool) (*cache.Bolt, error) {
	home, err := a.home()
	if err != nil {
		return nil, err
	}
	return cache.Open(filepath.Join(home, "records.db"), cache.Options{
		ReadOnly: !write, Now: a.now, Notice: func(n cache.Notice) { fmt.Fprintln(a.Err, "warning:", n) },
	}), nil
}

// namesByUID are the clusters known here, by UID.
func (a *app) namesByUID(c *ucli.Context) map[string]string {
	out := map[string]string{}
	home, err := a.home()
	if err != nil {
		return out
	}
	st := a.unitStore(c, home, "")
	names, err := st.List()
	if err != nil {
		return out // the names are for people only
	}
	for _, n := range names {
		if u, err := cluster.OpenUnit(st, n, cluster.UnitOptions{Version: version, Now: a.now}); err == nil {
			out[u.UID()] = n
		}
	}
	return out
}

func (a *app) cmdCacheLs() *ucli.Command {
	return &ucli.Command{
		Name: "ls", Usage: "clusters with records", UsageText: "hk cache ls", Flags: []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			return a.cacheReport(c, func(r cache.Report, f form) error {
				names := a.namesByUID(c)
				type row struct {
					UID     string  `json:"uid"`
					Cluster *string `json:"cluster"`
					Records int     `json:"records"`
				}
				rows := []row{}
				for _, cl := range r.Clusters {
					rw := row{UID: cl.ID, Records: cl.Records}
					if n, ok := names[cl.ID]; ok {
						rw.Cluster = &n
					}
					rows = append(rows, rw)
				}
				if f == asJSON {
					return a.printJSON(map[string]any{"v": 1, "path": r.Path, "size": r.Size, "clusters": rows})
				}
				t := ui.NewTable("CLUSTER", "UID", "RECORDS")
				for _, rw := range rows {
					t.Row(text(rw.Cluster), rw.UID, rw.Records)
				}
				t.Write(a.Out)
				return nil
			})
		},
	}
}

func (a *app) cacheReport(c *ucli.Context, tell func(cache.Report, form) error) (err error) {
	f, err := outputForm(c)
	if err != nil {
		return err
	}
	st, err := a.openStore(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	r, err := st.Doctor(c.Context)
	if err != nil {
		return err
	}
	return tell(r, f)
}

func (a *app) cmdCacheDoctor() *ucli.Command {
	return &ucli.Command{
		Name: "doctor", Usage: "check the records' file", UsageText: "hk cache doctor",
		Description: "Changes nothing. Exit code 1 if something is damaged: the next build treats it as missing.",
		Flags:       []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			return a.cacheReport(c, func(r cache.Report, f form) error {
				damaged := len(r.Problems)
				for _, cl := range r.Clusters {
					damaged += len(cl.Damaged)
				}
				var err error
				if f == asJSON {
					err = a.printJSON(doctorAnswer(&r))
				} else {
					printDoctor(a, &r, damaged)
				}
				if err == nil && damaged > 0 {
					return &exitError{code: ExitFailed, class: classState, err: fmt.Errorf("%s damaged in %s", plural(damaged, "record or page"), r.Path), hint: "hk cache rebuild CLUSTER reads records back from the hosts"}
				}
				return err
			})
		},
	}
}

type doctorCluster struct {
	UID     string   `json:"uid"`
	Records int      `json:"records"`
	Damaged []string `json:"damaged"`
}

func doctorAnswer(r *cache.Report) any {
	cl := []doctorCluster{}
	for _, c := range r.Clusters {
		d := doctorCluster{c.ID, c.Records, c.Damaged}
		if d.Damaged == nil {
			d.Damaged = []string{}
		}
		cl = append(cl, d)
	}
	problems := r.Problems
	if problems == nil {
		problems = []string{}
	}
	return struct {
		V        int             `json:"v"`
		Path     string          `json:"path"`
		Missing  bool            `json:"missing"`
		Size     int64           `json:"size"`
		Clusters []doctorCluster `json:"clusters"`
		Problems []string        `json:"problems"`
	}{1, r.Path, r.Missing, r.Size, cl, problems}
}

func printDoctor(a *app, r *cache.Report, damaged int) {
	switch {
	case r.Missing:
		fmt.Fprintf(a.Out, "%s: there is no file yet, which is fine\n", r.Path)
		return
	case damaged == 0:
		fmt.Fprintf(a.Out, "%s: healthy, %d bytes\n", r.Path, r.Size)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(a.Out, p)
	}
	for _, c := range r.Clusters {
		for _, d := range c.Damaged {
			fmt.Fprintf(a.Out, "%s: record %s is damaged\n", c.ID, d)
		}
	}
}

func (a *app) cmdCacheRebuild() *ucli.Command {
	return &ucli.Command{
		Name: "rebuild", Usage: "read a cluster's records back from its hosts", ArgsUsage: "CLUSTER",
		Description: "Each host vouches for its own tasks, the masters for those of the cluster. What nobody vouches for\n" +
			"is stale, and the next build runs it.",
		UsageText: "hk cache rebuild demo", Flags: clusterFlags(),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{write: true}, func(s *site, f form) error { return a.cacheRebuild(c, s, f) })
		},
	}
}

func (a *app) cacheRebuild(c *ucli.Context, s *site, f form) (err error) {
	if _, err := s.unit(); err != nil {
		return err
	}
	if err := a.writableHome(); err != nil {
		return err
	}
	if err := s.prepareRecords(); err != nil {
		return err
	}
	lock, err := cache.TakeLock(filepath.Join(s.home, "locks", s.name+".lock"), cache.Holder{
		PID: pid(), Host: hostName(), User: a.getenv("USER"), Command: "hk cache rebuild " + s.name, Run: s.runID, Started: a.now(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	found, err := s.sess.Discover(c.Context, cluster.Look{Journal: true})
	if err != nil {
		return err
	}
	j := s.restored(c.Context, found)
	recs := j.records
	s.reader, s.sets = memory(recs), j.sets
	if err := s.keepRestored(c.Context); err != nil {
		return err
	}
	if f == asJSON {
		return a.printJSON(struct {
			V       int    `json:"v"`
			Cluster string `json:"cluster"`
			Records int    `json:"records"`
			Tasks   int    `json:"tasks"`
		}{1, s.name, len(recs), s.graph.Len()})
	}
	fmt.Fprintf(a.Out, "%s: %d of %s have a record\n", s.name, len(recs), plural(s.graph.Len(), "task"))
	return nil
}
