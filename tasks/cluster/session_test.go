package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Nothing is made before the write step: not in the store, not in the cloud.
func TestLookingWritesNothing(t *testing.T) {
	g := newStage(t)
	g.store.Step = func(what string) error { t.Errorf("store: %s", what); return nil }
	s, f := g.look(Look{})
	if d := s.Decide(Ask{}); d.Action != Create {
		t.Fatalf("decided %s: %s", d.Action, d.Message)
	}
	if hosts, err := s.Hosts(); err != nil || len(hosts) != 5 || hosts[4].Index != 5 || hosts[4].MeshIP != "10.100.0.5" {
		t.Errorf("hosts before the write step: %+v, %v", hosts, err)
	}
	if f.UID != "" || s.UID() != "" || s.Generation() != 0 || len(g.keys) != 0 {
		t.Errorf("an identity before the write step: %q %q", f.UID, s.UID())
	}
	if _, err := s.cloud.CreateNetwork(t.Context(), remote.Network{}, ""); err == nil || len(g.cloud.calls) > 0 {
		t.Errorf("a write without a lease: %v, calls %v", err, g.cloud.calls)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriteMakesACluster(t *testing.T) {
	g := newStage(t)
	s, _ := g.look(Look{})
	looks := g.cloud.looks
	w, err := s.Write(t.Context(), Ask{}, Look{})
	if err != nil {
		t.Fatal(err)
	}
	if !w.New || w.Generation != 1 || len(s.UID()) != 32 || w.Decision.Action != Create {
		t.Errorf("written %+v, UID %q", w, s.UID())
	}
	if n := g.cloud.looks - looks; n != 1 {
		t.Errorf("the write step looked %d times", n)
	}
	if s.LeaseGeneration() == 0 {
		t.Error("no lease")
	}
	if k := s.Unit().KeyID(OperatorKey); k == "" {
		t.Error("the operator's key is not in the unit")
	}
	if _, err := s.cloud.CreateNetwork(w.Ctx, remote.Network{Name: "demo"}, ""); err != nil {
		t.Errorf("a write with a lease: %v", err)
	}
	if n := s.g.found().Networks; len(n) != 1 {
		t.Errorf("what was made is not found: %+v", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(g.cloud.inv.Firewalls) != 0 {
		t.Errorf("the lock is left: %+v", g.cloud.inv.Firewalls)
	}

	// The next command knows the cluster; without a config file too.
	g.cfg = nil
	again := g.load()
	if again.UID() != s.UID() || again.Spec() == nil || len(again.Wanted()) != 5 || again.Spec().Masters.Count != 3 {
		t.Errorf("after a restart: UID %q, config %+v", again.UID(), again.Spec())
	}
	if string(again.LockText()) != "kubernetes: v1.37.2\n" && len(again.LockText()) == 0 {
		t.Errorf("lock file %q", again.LockText())
	}
	if len(g.keys) != 1 {
		t.Errorf("keys told: %v", g.keys)
	}
}

// Whoever comes second is told, and has changed nothing.
func TestWriteWhileLocked(t *testing.T) {
	g := newStage(t)
	a, _ := g.look(Look{})
	if _, err := a.Write(t.Context(), Ask{}, Look{}); err != nil {
		t.Fatal(err)
	}
	h := newStage(t) // another computer, same project
	h.cloud = g.cloud
	b, f := h.look(Look{})
	if f.Lock == nil || f.Lock.Holder != "me.here-1" {
		t.Errorf("lock seen: %+v", f.Lock)
	}
	_, err := b.Write(t.Context(), Ask{}, Look{})
	refusal(t, err, ExitLocked)
	if b.Unit() != nil {
		t.Error("a unit was made without the lock")
	}
	if err := errors.Join(b.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
}

// A build that was killed is gone on with at once: its own lock is no obstacle
// to the same state directory, and still one to every other.
func TestWriteAfterAKill(t *testing.T) {
	g := newStage(t)
	a, _ := g.look(Look{})
	if _, err := a.Write(t.Context(), Ask{}, Look{}); err != nil {
		t.Fatal(err)
	}
	gen := a.LeaseGeneration()
	// a is killed: nothing of it runs any more, its lock stays.
	h := newStage(t)
	h.cloud = g.cloud
	other, _ := h.look(Look{})
	_, err := other.Write(t.Context(), Ask{}, Look{})
	refusal(t, err, ExitLocked)

	b, _ := g.look(Look{})
	if _, err := b.Write(t.Context(), Ask{}, Look{}); err != nil {
		t.Fatal(err)
	}
	if b.LeaseGeneration() <= gen {
		t.Errorf("lease generation %d after %d", b.LeaseGeneration(), gen)
	}
	if b.UID() != a.UID() || len(g.keys) != 1 {
		t.Errorf("another identity: %s, %s, keys %v", a.UID(), b.UID(), g.keys)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if len(g.cloud.inv.Firewalls) != 0 {
		t.Errorf("locks left: %+v", g.cloud.inv.Firewalls)
	}
	_ = a.Close() // ends what a dead process would not have running
}

// What was decided before the lease is decided anew under it.
func TestWriteDecidesAgain(t *testing.T) {
	g := newStage(t)
	s, _ := g.look(Look{})
	g.cloud.inv.Servers = append(g.cloud.inv.Servers, remote.Server{ID: 1, Name: "demo-master-1"})
	_, err := s.Write(t.Context(), Ask{}, Look{})
	refusal(t, err, ExitCloud)
	if s.Unit() != nil || len(g.cloud.inv.Firewalls) != 0 || len(g.keys) != 0 {
		t.Errorf("left behind: unit %v, lock %v", s.Unit(), g.cloud.inv.Firewalls)
	}
}

func TestFoundOfAnEstablishedCluster(t *testing.T) {
	g := newStage(t)
	g.up()
	s, f := g.look(Look{Query: func(host string) remote.FactsQuery { return remote.FactsQuery{Paths: []string{"/x/" + host}} }})
	if !f.Established || !f.EtcdBorn || f.UID != s.UID() || len(f.Facts()) != 5 || len(f.Unreachable()) != 0 {
		t.Errorf("found %+v, unreachable %v", f, f.Unreachable())
	}
	if d := s.Decide(Ask{}); d.Action != Keep {
		t.Errorf("decided %s: %s %v", d.Action, d.Message, d.Details)
	}
	q := g.hosts.hosts["master-1"].asked
	if !slices.Equal(q.Paths, []string{"/x/master-1", HostUnitFile}) || q.Journal {
		t.Errorf("asked %+v", q)
	}
	if q := g.hosts.hosts["worker-1"].asked; !slices.Equal(q.Paths, []string{"/x/worker-1"}) {
		t.Errorf("asked %+v", q)
	}
	if s.CopiesStale() {
		t.Error("the masters' copies are those of the last build")
	}
}

// Any readable mark counts, and none means not established.
func TestMarks(t *testing.T) {
	unmark := func(g *stage) {
		for i := range g.cloud.inv.Servers {
			delete(g.cloud.inv.Servers[i].Labels, remote.LabelBorn)
		}
		raw := g.store.units["demo"]["manifest.json"]
		i := strings.Index(string(raw), `"born": {`)
		j := i + strings.Index(string(raw[i:]), "}")
		g.store.units["demo"]["manifest.json"] = []byte(string(raw[:i]) + `"born": null` + string(raw[j+1:]))
	}
	tests := []struct {
		name string
		do   func(g *stage)
		want bool
	}{
		{"label, journal, unit", func(*stage) {}, true},
		{"none", unmark, false},
		{"a label", func(g *stage) { unmark(g); g.cloud.inv.Servers[1].Labels[remote.LabelBorn] = "1" }, true},
		{"a journal", func(g *stage) {
			unmark(g)
			g.hosts.hosts["master-2"].journal = map[string][]byte{JournalBorn: []byte("{}")}
		}, true},
		{"a journal that cannot be read", func(g *stage) {
			unmark(g)
			g.hosts.hosts["master-2"].journal = map[string][]byte{JournalBorn: []byte("{}")}
			g.hosts.hosts["master-2"].err = remote.ErrUnreachable
		}, false},
		{"the cloud cannot be read", func(g *stage) { unmark(g); g.cloud.down = errors.New("502") }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newStage(t)
			g.up()
			tt.do(g)
			s, f := g.look(Look{})
			if f.Established != tt.want || s.Established() != tt.want {
				t.Errorf("established %t", f.Established)
			}
		})
	}
}

func TestHostsThatAreNotWhatTheyWere(t *testing.T) {
	tests := []struct {
		name string
		do   func(g *stage)
		exit int
		says string
	}{
		{"installation file gone", func(g *stage) { g.hosts.hosts["worker-1"].id = remote.HostIdentity{} }, ExitServer, "worker-1: its installation file is gone"},
		{"another disk", func(g *stage) { g.hosts.hosts["worker-1"].id.Installation = "x" }, ExitServer, "worker-1: its installation file is another one"},
		{"throw-away key again", func(g *stage) { g.hosts.hosts["master-1"].err = fmt.Errorf("x: %w", remote.ErrRebuilt) }, ExitServer, "master-1: it shows the throw-away host key"},
		{"another key", func(g *stage) { g.hosts.hosts["master-1"].err = fmt.Errorf("SHA256:zzz: %w", remote.ErrHostKey) }, ExitSSH, "SHA256:zzz"},
		{"another server", func(g *stage) { g.cloud.inv.Servers[3].ID = 7 }, ExitServer, "the cloud has server 7"},
		{"server gone", func(g *stage) { g.cloud.inv.Servers = slices.Delete(g.cloud.inv.Servers, 3, 4) }, ExitServer, "worker-1: its server is gone"},
		{"nobody answers", func(g *stage) {
			for _, h := range g.hosts.hosts {
				h.err = remote.ErrUnreachable
			}
		}, ExitSSH, "worker-2: unreachable"},
		{"all of it gone", func(g *stage) { g.cloud.inv = remote.Inventory{} }, ExitCloud, ""},
		{"another cluster of the name", func(g *stage) {
			g.cloud.inv.Servers = append(g.cloud.inv.Servers, remote.Server{ID: 1, Name: "demo-worker-9", Labels: map[string]string{remote.LabelCluster: "demo", remote.LabelUID: "ff"}})
		}, ExitCloud, "in the cloud: UID ff"},
		{"store empty", func(g *stage) { g.store = NewMem() }, ExitCredentials, "tried: memory:demo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newStage(t)
			g.up()
			tt.do(g)
			s, _ := g.look(Look{})
			d := s.Decide(Ask{})
			r := refusal(t, d.Err(), tt.exit)
			if all := strings.Join(r.Details, "\n"); !strings.Contains(all, tt.says) {
				t.Errorf("details:\n%s\nwant %q", all, tt.says)
			}
			calls := len(g.cloud.calls)
			if _, err := s.Write(t.Context(), Ask{}, Look{}); err == nil {
				t.Error("the write step went on")
			}
			for _, c := range g.cloud.calls[calls:] {
				if !strings.Contains(c, "firewall") { // the lock
					t.Errorf("the cloud was changed: %s", c)
				}
			}
		})
	}
}

// A dead host costs its own line, and not the others' time.
func TestDeadHostCostsItsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		g.up()
		g.hosts.hosts["worker-2"].hang = true
		for _, h := range g.hosts.hosts {
			h.slow = 200 * time.Millisecond
		}
		start := time.Now()
		_, f := g.look(Look{})
		if took := time.Since(start); took > 4100*time.Millisecond {
			t.Errorf("took %s", took)
		}
		if d := f.Unreachable(); len(d) != 1 || !strings.Contains(d["worker-2"], "no answer within 4s") {
			t.Errorf("unreachable: %v", d)
		}
		if len(f.Facts()) != 4 {
			t.Errorf("facts of %d hosts", len(f.Facts()))
		}
	})
}

// On a computer under load all answers are slow, and nobody is dead.
func TestSlowHostsAreNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		g.up()
		for i, h := range []string{"master-1", "master-2", "master-3", "worker-1", "worker-2"} {
			g.hosts.hosts[h].slow = time.Duration(3+2*i) * time.Second
		}
		_, f := g.look(Look{})
		if len(f.Facts()) != 5 {
			t.Errorf("unreachable: %v", f.Unreachable())
		}
	})
}

// A server that is off is not waited for at all.
func TestServerThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		g.up()
		g.cloud.inv.Servers[4].Status = "off"
		g.hosts.hosts["worker-2"].hang = true
		start := time.Now()
		s, f := g.look(Look{})
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("took %s", took)
		}
		if f.Unreachable()["worker-2"] != "its server is off" {
			t.Errorf("unreachable: %v", f.Unreachable())
		}
		if d := s.Decide(Ask{}); d.Action != Keep {
			t.Errorf("decided %s: %s", d.Action, d.Message)
		}
	})
}

// A change is asked for, carried out, resumed, and then it is the applied one.
func TestUpdateAndIntent(t *testing.T) {
	g := newStage(t)
	g.up()
	g.cfg = parse(t, strings.ReplaceAll(config, "count: 2", "count: 3"))
	s, _ := g.look(Look{})
	d := s.Decide(Ask{})
	refusal(t, d.Err(), ExitConsent)
	if len(d.Diff) != 1 || d.Diff[0].Field != "workers[worker].count" || d.Diff[0].Old != "2" || d.Diff[0].New != "3" {
		t.Errorf("diff %+v", d.Diff)
	}
	if hosts, err := s.Hosts(); err != nil || hosts[5].Name != "worker-3" || hosts[5].Index != 6 {
		t.Errorf("hosts %+v, %v", hosts, err)
	}
	w, err := s.Write(t.Context(), Ask{Update: true}, Look{})
	if err != nil {
		t.Fatal(err)
	}
	if w.Generation != 2 || s.Unit().Manifest().Intent == nil || s.Unit().Alloc()["worker-3"] != 6 {
		t.Errorf("generation %d, intent %+v", w.Generation, s.Unit().Manifest().Intent)
	}
	if _, err := s.Finish(w.Ctx, Outcome{OK: false, Whole: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// It failed: the next build of the same config goes on without a question.
	s, _ = g.look(Look{})
	d = s.Decide(Ask{})
	if d.Action != Change || d.Resume == nil || d.Consented {
		t.Fatalf("decided %s (%s), resume %v", d.Action, d.Message, d.Resume)
	}
	if w, err = s.Write(t.Context(), Ask{}, Look{}); err != nil || w.Generation != 2 {
		t.Fatalf("generation %d, %v", w.Generation, err)
	}
	if _, err := s.Finish(w.Ctx, Outcome{OK: true, Whole: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s, _ = g.look(Look{})
	if d := s.Decide(Ask{}); d.Action != Keep || len(d.Diff) != 0 {
		t.Errorf("after it is done: %s (%s)", d.Action, d.Message)
	}
	// The old config is now the one that differs.
	g.cfg = parse(t, config)
	s, _ = g.look(Look{})
	d = s.Decide(Ask{})
	refusal(t, d.Err(), ExitConsent)
}

func TestForcedRunIsAnIntentOfItsTasks(t *testing.T) {
	g := newStage(t)
	g.up()
	s, _ := g.look(Look{})
	ask := Ask{Forced: []string{"etcd-setup.certs/master-1"}}
	w, err := s.Write(t.Context(), ask, Look{})
	if err != nil || w.Generation != 2 {
		t.Fatal(w, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = g.look(Look{})
	d := s.Decide(Ask{})
	if d.Resume == nil || d.Resume.Generation != 2 || !slices.Equal(d.Resume.Tasks, ask.Forced) {
		t.Fatalf("decided %s, resume %+v", d.Action, d.Resume)
	}
	if w, err = s.Write(t.Context(), Ask{}, Look{}); err != nil || w.Generation != 2 {
		t.Fatal(err)
	}
	if _, err := s.Finish(w.Ctx, Outcome{OK: true}); err != nil {
		t.Fatal(err)
	}
	if s.Unit().Manifest().Intent == nil {
		t.Error("a build of a part ended another run's intent")
	}
	if _, err := s.Finish(w.Ctx, Outcome{OK: true, Whole: true}); err != nil {
		t.Fatal(err)
	}
	if in := s.Unit().Manifest().Intent; in != nil {
		t.Errorf("the intent is still open: %+v", in)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A worker whose server is gone is made anew with a new host record.
func TestMissingWorkerIsMadeAgain(t *testing.T) {
	g := newStage(t)
	g.up()
	g.cloud.inv.Servers = slices.Delete(g.cloud.inv.Servers, 3, 4)
	s, _ := g.look(Look{})
	w, err := s.Write(t.Context(), Ask{Update: true}, Look{})
	if err != nil || !slices.Equal(w.Decision.Replace, []string{"worker-1"}) {
		t.Fatal(w, err)
	}
	if _, ok := s.Unit().Host("worker-1"); ok {
		t.Error("the old record is kept")
	}
	if s.Unit().Alloc()["worker-1"] != 4 {
		t.Errorf("index %d", s.Unit().Alloc()["worker-1"])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLeaving: what leaves is what the unit and the labels know and the config
// does not name, the highest number of a pool first.
func TestLeaving(t *testing.T) {
	g := newStage(t)
	g.up()
	less := *g.cfg
	less.Masters.Count = 1
	less.Workers = slices.Clone(less.Workers)
	less.Workers[0].Count = 0
	g.cfg = &less
	leaving := func(s *Session) string {
		var out []string
		for _, l := range s.Leaving() {
			if l.ServerID == 0 || l.Addr == "" || l.MeshIP == "" {
				t.Errorf("%+v", l)
			}
			out = append(out, l.Name)
		}
		return strings.Join(out, " ")
	}
	const want = "master-3 master-2 worker-2 worker-1"
	if got := leaving(g.load()); got != want {
		t.Errorf("nobody looked: %s, want %s", got, want)
	}
	// One is known by its label alone, and one by the unit alone: somebody deleted
	// its server.
	if err := g.load().Unit().DropHost("worker-2"); err != nil {
		t.Fatal(err)
	}
	g.cloud.inv.Servers = slices.DeleteFunc(g.cloud.inv.Servers, func(s remote.Server) bool { return s.Name == "demo-master-3" })
	s, _ := g.look(Look{})
	if got := leaving(s); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	d := s.Decide(Ask{})
	if got := strings.Join(d.Remove, " "); d.Action != AskFirst || got != "master-2 master-3 worker-1 worker-2" || strings.Join(d.Lose, " ") != "master-2 master-3" {
		t.Errorf("%s, remove %s, lose %v", d.Action, got, d.Lose)
	}
	// A member has its vote, and so is asked, until it was taken out.
	if _, err := s.Etcd(); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, e := range g.etcd.endpoints {
		asked = append(asked, e.Host)
	}
	if got := strings.Join(asked, " "); !strings.HasPrefix(got, "master-1 ") || !strings.Contains(got, "master-2") {
		t.Errorf("etcd is asked on %s", got)
	}
}

// TestIntentOfAnUnwantedHostIsDropped: a server that was asked for, never made,
// and is not wanted any more leaves nothing to be removed.
func TestIntentOfAnUnwantedHostIsDropped(t *testing.T) {
	g := newStage(t)
	g.up()
	if err := g.load().Unit().SaveHost(tasks.HostRecord{Host: "worker-9", Index: 9}); err != nil {
		t.Fatal(err)
	}
	s, _ := g.look(Look{})
	if d := s.Decide(Ask{}); d.Action != Keep || len(s.Leaving())+len(d.Remove) > 0 {
		t.Errorf("%s, remove %v", d.Action, d.Remove)
	}
	if _, err := s.Write(t.Context(), Ask{}, Look{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Unit().Host("worker-9"); ok {
		t.Error("its entry is kept")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMastersKeepACopy(t *testing.T) {
	g := newStage(t)
	g.up()
	copyOf := func(h string) string { return string(g.hosts.hosts[h].files[HostUnitFile]) }
	s, _ := g.look(Look{})
	want := string(s.Unit().Tar())
	for _, h := range []string{"master-1", "master-2", "master-3"} {
		if copyOf(h) != want {
			t.Errorf("%s has another copy", h)
		}
	}
	if copyOf("worker-1") != "" {
		t.Error("a worker has a copy")
	}
	// A build that changes nothing writes nothing; a journal is still told.
	before := g.hosts.hosts["master-1"].applied
	w, err := s.Write(t.Context(), Ask{}, Look{})
	if err != nil {
		t.Fatal(err)
	}
	g.hosts.hosts["master-2"].err = remote.ErrUnreachable
	warnings, err := s.Finish(w.Ctx, Outcome{OK: true, Whole: true, Journal: map[string][]byte{"etcd-setup.ca": []byte("r")}})
	if err != nil {
		t.Fatal(err)
	}
	if g.hosts.hosts["master-1"].applied != before || string(g.hosts.hosts["master-1"].journal["etcd-setup.ca"]) != "r" {
		t.Errorf("applied %d times, journal %v", g.hosts.hosts["master-1"].applied-before, g.hosts.hosts["master-1"].journal)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "master-2") {
		t.Errorf("warnings %v", warnings)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A copy that is old is seen.
	g.hosts.hosts["master-2"].err = nil
	g.hosts.hosts["master-2"].files[HostUnitFile] = []byte("old")
	s, _ = g.look(Look{})
	if !s.CopiesStale() {
		t.Error("an old copy is not seen")
	}
}

func TestAllocationFollowsLabelsAndUnit(t *testing.T) {
	sv := func(host, index string) remote.Server {
		return remote.Server{Name: host, Labels: map[string]string{remote.LabelHost: host, remote.LabelIndex: index}}
	}
	names := []string{"master-1", "worker-1", "worker-2"}
	got, err := allocate(names, map[string]int{"worker-1": 1}, []remote.Server{sv("worker-1", "1"), sv("old-1", "2")})
	if err != nil || got["master-1"] != 3 || got["worker-1"] != 1 || got["worker-2"] != 4 {
		t.Errorf("%v, %v", got, err)
	}
	_, err = allocate(names, map[string]int{"worker-1": 1}, []remote.Server{sv("worker-1", "2")})
	refusal(t, err, ExitState)
	_, err = allocate(names, map[string]int{"worker-1": 1}, []remote.Server{sv("worker-2", "1")})
	refusal(t, err, ExitState)
	c := parse(t, "name: demo\ncloud: sim\nmasters: {count: 1}\nworkers: []\nnetwork: {pods: 10.128.0.0/19}\n")
	if _, err := layout(c, map[string]int{"master-1": 31}); err != nil {
		t.Error(err)
	}
	_, err = layout(c, map[string]int{"master-1": 32})
	refusal(t, err, ExitConfig)
}

func TestClients(t *testing.T) {
	g := newStage(t)
	s, _ := g.look(Look{})
	if _, err := s.Kube(); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("before there is a unit: %v", err)
	}
	g.up()
	s, _ = g.look(Look{})
	k, err := s.Kube()
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, e := range g.kube.endpoints {
		at = append(at, e.Host+" "+e.Addr)
	}
	if want := []string{"master-1 127.0.0.1:6443", "master-2 127.0.0.1:6443", "master-3 127.0.0.1:6443", "external 198.51.100.1:6443"}; !slices.Equal(at, want) {
		t.Errorf("endpoints %v, want %v", at, want)
	}
	if g.kube.endpoints[0].Via.Name() != "master-1" || g.kube.endpoints[3].Via != nil {
		t.Error("the ways are wrong")
	}
	again, err := s.Kube()
	if err != nil || again != k {
		t.Error("the client is made twice")
	}
	if _, err := s.Etcd(); err != nil {
		t.Fatal(err)
	}
	if e := g.etcd.endpoints[2]; e.Addr != "10.100.0.3:2379" || e.ServerName != "10.100.0.3" {
		t.Errorf("etcd endpoint %+v", e)
	}
	if c := certOf(g.etcd.cert.Cert); c == nil || c.Subject.CommonName != "hk" {
		t.Error("etcd's client certificate cannot be read")
	}
	ca, err := s.Unit().Authority(KubernetesCA)
	if err != nil {
		t.Fatal(err)
	}
	if c := certOf(g.kube.cert.Cert); c == nil || c.CheckSignatureFrom(ca.Cert) != nil {
		t.Error("the client certificate is not the authority's")
	}
}

// A lost lease stops probes of a build too, and no host is written to.
func TestGuardAfterTheLeaseIsLost(t *testing.T) {
	g := newStage(t)
	g.up()
	s, _ := g.look(Look{})
	w, err := s.Write(t.Context(), Ask{}, Look{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.HostOf("master-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Apply(w.Ctx, remote.HostState{}); err != nil {
		t.Fatal(err)
	}
	applied, calls := g.hosts.hosts["master-1"].applied, len(g.cloud.calls)
	_ = s.lease.lose(ErrLeaseLost)
	ctx := context.Background()
	_, err1 := h.Apply(ctx, remote.HostState{})
	_, err2 := h.Run(ctx, remote.Job{})
	_, err3 := h.Exec(ctx, remote.Command{})
	_, err4 := s.cloud.CreateServer(ctx, remote.ServerSpec{})
	k, err := s.Kube()
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.Etcd()
	if err != nil {
		t.Fatal(err)
	}
	_, err6 := e.AddLearner(ctx, "")
	_, err5 := s.hosts.Install(ctx, remote.Contact{}, nil, remote.HostIdentity{})
	for i, err := range []error{
		err6, e.Promote(ctx, 1), e.Remove(ctx, 1), e.Defragment(ctx, ""), e.Proof(ctx, ""),
		k.Apply(ctx, nil), k.PatchNode(ctx, "", remote.NodePatch{}), k.DeleteNode(ctx, ""), k.Cordon(ctx, "", true), k.Delete(ctx, remote.ObjectRef{}),
		err1, err2, err3, err4, err5, h.Journal(ctx, nil), s.cloud.DeleteServer(ctx, 1), s.cloud.LabelServer(ctx, 1, nil),
		s.cloud.PowerOn(ctx, 1), s.cloud.AttachNetwork(ctx, 1, 1), s.cloud.DeleteNetwork(ctx, 1), s.cloud.SetFirewallRules(ctx, 1, nil),
		s.cloud.ApplyFirewall(ctx, 1, nil), s.cloud.LabelFirewall(ctx, 1, nil), s.cloud.DeleteFirewall(ctx, 1),
		s.cloud.DeletePlacementGroup(ctx, 1), s.cloud.DeleteSSHKey(ctx, 1), s.cloud.SetLoadBalancer(ctx, remote.LoadBalancer{}),
		s.cloud.DeleteLoadBalancer(ctx, 1),
	} {
		if !errors.Is(err, ErrLeaseLost) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if g.hosts.hosts["master-1"].applied != applied || len(g.cloud.calls) != calls {
		t.Error("something was written")
	}
	if !errors.Is(context.Cause(w.Ctx), ErrLeaseLost) {
		t.Errorf("context: %v", context.Cause(w.Ctx))
	}
}

// A look that began before a server was made must not make it seem gone.
func TestFoundKeepsWhatWasMadeDuringALook(t *testing.T) {
	g := newStage(t)
	g.up()
	s, _ := g.look(Look{})
	w, err := s.Write(t.Context(), Ask{}, Look{})
	if err != nil {
		t.Fatal(err)
	}
	old, err := g.cloud.Inventory(w.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	end := s.g.looking()
	sv, err := s.cloud.CreateServer(w.Ctx, remote.ServerSpec{Name: "demo-worker-3"})
	if err != nil {
		t.Fatal(err)
	}
	gone := old.Servers[0].ID
	if err := s.cloud.DeleteServer(w.Ctx, gone); err != nil {
		t.Fatal(err)
	}
	end(old)
	has := func(id int64) bool {
		return slices.ContainsFunc(s.g.found().Servers, func(o remote.Server) bool { return o.ID == id })
	}
	if !has(sv.ID) || has(gone) {
		t.Errorf("made is found: %t, deleted is found: %t", has(sv.ID), has(gone))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAppliedConfigReadsBackEqual(t *testing.T) {
	c := parse(t, config)
	text, err := spec.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseApplied(text)
	if err != nil {
		t.Fatal(err)
	}
	if d := DiffConfig(again, c, nil); len(d) != 0 || ConfigDigest(again) != ConfigDigest(c) {
		t.Errorf("diff %v", d)
	}
	other := parse(t, strings.ReplaceAll(config, "count: 2", "count: 3"))
	if ConfigDigest(other) == ConfigDigest(c) {
		t.Error("two configs, one digest")
	}
	client := parse(t, config+"ssh: {key: other.key}\nsim: {seed: 4}\n")
	if ConfigDigest(client) != ConfigDigest(c) || len(DiffConfig(c, client, nil)) != 0 {
		t.Error("a field of this computer counts")
	}
}
