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

func (a *app) cmdDestroy() *ucli.Command {
	return &ucli.Command{
		Name: "destroy", Category: catOperate, Usage: "delete a cluster with everything that is its own", ArgsUsage: "CLUSTER",
		Description: "Shows the list first and asks for the cluster's name. Only objects with the cluster's UID are\n" +
			"touched. The credential unit moves to destroyed/ in the state directory, the kubeconfig context\n" +
			"goes. Works from any partial state; run it again if it was stopped.",
		UsageText: "hk destroy demo\nhk destroy demo --confirm demo",
		Flags:     clusterFlags(confirmFlag(), boolFlag("dry-run", "show the list, delete nothing")),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{write: true}, func(s *site, f form) error { return a.destroy(c, s, f) })
		},
	}
}

func (a *app) destroy(c *ucli.Context, s *site, f form) error {
	if err := s.world.ready(); err != nil {
		return err
	}
	if _, err := s.sess.Discover(c.Context, cluster.Look{NoHosts: true}); err != nil {
		return err
	}
	plan, err := s.sess.PlanDestroy()
	if err != nil {
		return err
	}
	list := ui.NewTable("OBJECT", "NAME", "ID")
	for _, o := range plan.Objects {
		list.Row(o.Kind, o.Name, o.ID)
	}
	if list.Len() > 0 {
		list.Write(a.Err)
	}
	if plan.Unit != "" {
		fmt.Fprintf(a.Err, "the credential unit %s moves to %s\n", plan.Unit, filepath.Join(s.home, "destroyed"))
	}
	if c.Bool("dry-run") || plan.Empty() {
		return a.destroyed(f, s.name, plan, plan.Empty())
	}
	question := fmt.Sprintf("%s of %s are deleted, with all data on the servers", plural(len(plan.Objects), "object"), s.name)
	if err := a.confirmLoss(c, s.name, question); err != nil {
		return err
	}
	own := s.contexts()
	uid := s.sess.UID()
	lock, err := cache.TakeLock(filepath.Join(s.home, "locks", s.name+".lock"), cache.Holder{
		PID: pid(), Host: hostName(), User: a.getenv("USER"), Command: "hk destroy " + s.name, Run: s.runID, Started: a.now(),
	})
	if err != nil {
		return err
	}
	err = s.sess.Destroy(c.Context, func(o cluster.Object) { s.tell(fmt.Sprintf("deleted %s %s (%d)", o.Kind, o.Name, o.ID)) })
	if err == nil && own != nil {
		for _, e := range a.dropContext(s.name, own) {
			s.tell("warning: the kubeconfig context was not removed: " + e.Error())
		}
	}
	if err == nil && uid != "" {
		err = s.store.Cluster(uid).Drop(c.Context)
	}
	if err = errors.Join(err, lock.Release()); err != nil {
		return err
	}
	return a.destroyed(f, s.name, plan, true)
}

// contexts are the kubeconfig entries hk made for the cluster; nil if there is
// no admin credential to tell them by.
func (s *site) contexts() kubeconfig {
	u := s.sess.Unit()
	if u == nil {
		return nil
	}
	k, err := adminConfOf(u, s.name)
	if err != nil {
		return nil // never got so far: no context of ours can exist
	}
	return k
}

func (a *app) destroyed(f form, name string, p *cluster.DestroyPlan, done bool) error {
	if f == asJSON {
		objects := p.Objects
		if objects == nil {
			objects = []cluster.Object{}
		}
		return a.printJSON(struct {
			V       int              `json:"v"`
			Cluster string           `json:"cluster"`
			UID     string           `json:"uid"`
			Done    bool             `json:"done"`
			Objects []cluster.Object `json:"objects"`
		}{1, name, p.UID, done, objects})
	}
	switch {
	case p.Empty():
		fmt.Fprintf(a.Out, "%s: there is nothing of it\n", name)
	case done:
		fmt.Fprintf(a.Out, "%s is gone\n", name)
	default:
		fmt.Fprintf(a.Out, "%s: %s would be deleted\n", name, plural(len(p.Objects), "object"))
	}
	return nil
}

func (a *app) cmdUnlock() *ucli.Command {
	return &ucli.Command{
		Name: "unlock", Category: catOperate, Usage: "remove the lock of an hk that is dead", ArgsUsage: "CLUSTER",
		Description: "The lock in the cloud ends by itself a minute after its holder died; this removes it at once. Make\n" +
			"sure that the other hk is dead: two at work on one cluster get in each other's way.",
		UsageText: "hk unlock demo --yes", Flags: clusterFlags(yesFlag()),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{}, func(s *site, f form) error { return a.unlock(c, s, f) })
		},
	}
}

func (a *app) unlock(c *ucli.Context, s *site, f form) error {
	found, err := s.sess.Discover(c.Context, cluster.Look{NoHosts: true})
	if err != nil {
		return err
	}
	if found.CloudErr != nil {
		return found.CloudErr
	}
	if l := found.Lock; l != nil && !l.Expired {
		q := fmt.Sprintf("%s is locked by %s, run %s, since %s; remove the lock?", s.name, l.Holder, l.Run, runTime(l.Since))
		if !a.ask(c, q) {
			return &exitError{code: ExitLocked, class: classState, err: fmt.Errorf("%s is locked by %s, run %s", s.name, l.Holder, l.Run), hint: "hk unlock " + s.name + " --yes, once that hk is dead"}
		}
	}
	locks, err := cluster.Unlock(c.Context, s.world.Cloud, s.name)
	if err != nil {
		return err
	}
	if f == asJSON {
		if locks == nil {
			locks = []cluster.LockInfo{}
		}
		return a.printJSON(struct {
			V       int                `json:"v"`
			Cluster string             `json:"cluster"`
			Removed []cluster.LockInfo `json:"removed"`
		}{1, s.name, locks})
	}
	if len(locks) == 0 {
		fmt.Fprintf(a.Out, "%s is not locked\n", s.name)
	}
	for _, l := range locks {
		fmt.Fprintf(a.Out, "removed the lock of %s, run %s\n", l.Holder, l.Run)
	}
	return nil
}
