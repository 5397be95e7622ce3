package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"hk/tasks/spec"
)

func established() Situation {
	return Situation{
		Name: "demo", Local: true, LocalUID: "aa", LocalPlace: "/home/clusters/demo", CloudUIDs: []string{"aa"}, Objects: 9,
		Started: true, Established: true, HasConfig: true, Version: "1.2.0", BuiltBy: "1.2.0", ConfigDigest: "d1",
		Hosts: []HostState{
			{Host: "master-1", Roles: []string{"master", "etcd"}, Wanted: true, Known: true, Exists: true},
			{Host: "worker-1", Roles: []string{"worker"}, Wanted: true, Known: true, Exists: true},
		},
	}
}

func change(field, old, new string, class spec.Class) ConfigChange {
	return ConfigChange{Field: field, Old: old, New: new, Class: class}
}

// TestDecide has a case for every row of DESIGN §6's matrix that is decided
// before the graph is made.
func TestDecide(t *testing.T) {
	nothing := func(s *Situation) {
		*s = Situation{Name: "demo", HasConfig: true, Version: "1.2.0", LocalPlace: "/home/clusters/demo"}
	}
	young := func(s *Situation) { s.Established = false }
	grown := func(s *Situation) {
		s.Diff = []ConfigChange{change("workers[worker].count", "2", "3", spec.Safe)}
	}
	update := func(s *Situation) { s.Ask.Update = true }
	tests := []struct {
		name   string
		with   []func(*Situation)
		action Action
		exit   int
		says   string   // in the message
		lists  []string // in details or hints
	}{
		{"nothing", []func(*Situation){nothing}, Create, 0, "creating demo", nil},
		{"nothing, and no config", []func(*Situation){nothing, func(s *Situation) { s.HasConfig = false }}, Refuse, ExitConfig, "no config file", []string{"hk init demo"}},
		{"unit only, no server was ever asked for", []func(*Situation){young, func(s *Situation) {
			s.Started, s.Objects, s.CloudUIDs, s.Hosts = false, 0, nil, nil
		}}, Continue, 0, "going on", nil},
		{"not established", []func(*Situation){young}, Continue, 0, "not complete yet", nil},
		{"not established, another config", []func(*Situation){young, grown}, Continue, 0, "not complete yet", nil},
		{"not established, server gone", []func(*Situation){young, func(s *Situation) { s.Hosts[0].Exists = false }}, Continue, 0, "", nil},
		{"not established, removals ask", []func(*Situation){young, func(s *Situation) { s.Hosts[1].Wanted = false }}, AskFirst, ExitConsent, "worker-1", []string{"--update"}},
		{"not established, removals agreed to", []func(*Situation){young, update, func(s *Situation) { s.Hosts[1].Wanted = false }}, Continue, 0, "", nil},

		{"established, same config", nil, Keep, 0, "established", nil},
		{"established, a host does not answer", []func(*Situation){func(s *Situation) { s.Hosts[1].Down = "no answer" }}, Keep, 0, "", nil},
		{"established, nobody answers", []func(*Situation){func(s *Situation) {
			s.Hosts[0].Down, s.Hosts[1].Down = "no answer", "off"
		}}, Refuse, ExitSSH, "no host of demo can be reached", []string{"worker-1: off"}},
		{"host key differs", []func(*Situation){func(s *Situation) { s.Hosts[1].BadKey = "shows SHA256:x" }}, Refuse, ExitSSH, "not its own", []string{"SHA256:x"}},

		{"master missing", []func(*Situation){func(s *Situation) { s.Hosts[0].Exists = false }}, Refuse, ExitServer, "missing or rebuilt", []string{"master-1: its server is gone", "hk node replace demo/master-1"}},
		{"master missing, --update", []func(*Situation){update, func(s *Situation) { s.Hosts[0].Exists = false }}, Refuse, ExitServer, "", []string{"hk node replace demo/master-1"}},
		{"master rebuilt", []func(*Situation){func(s *Situation) { s.Hosts[0].Rebuilt = "its installation file is gone" }}, Refuse, ExitServer, "", []string{"installation file is gone"}},
		{"worker missing", []func(*Situation){func(s *Situation) { s.Hosts[1].Exists = false }}, Refuse, ExitServer, "", []string{"--update makes missing workers again"}},
		{"worker missing, --update", []func(*Situation){update, func(s *Situation) { s.Hosts[1].Exists = false }}, Change, 0, "worker-1", nil},
		{"worker never made", []func(*Situation){func(s *Situation) { s.Hosts[1].Known, s.Hosts[1].Exists = false, false }}, Keep, 0, "", nil},

		{"config differs", []func(*Situation){grown}, AskFirst, ExitConsent, "differs from the applied one", []string{"workers[worker].count: 2 -> 3 (safe)", "--update"}},
		{"config differs, --update", []func(*Situation){grown, update}, Change, 0, "changing demo", nil},
		{"config differs, --force alone", []func(*Situation){grown, func(s *Situation) { s.Ask.Forced = []string{"x"} }}, AskFirst, ExitConsent, "", nil},
		{"immutable field", []func(*Situation){func(s *Situation) {
			s.Diff = []ConfigChange{change("network.pods", "10.128.0.0/10", "10.64.0.0/10", spec.Immutable)}
		}}, Refuse, ExitConfig, "cannot be changed", []string{"network.pods: 10.128.0.0/10 -> 10.64.0.0/10", "addresses are in certificates"}},
		{"immutable field, --update", []func(*Situation){update, func(s *Situation) {
			s.Diff = []ConfigChange{change("cni", "mesh", "none", spec.Immutable)}
		}}, Refuse, ExitConfig, "cannot be changed", nil},
		{"version change", []func(*Situation){func(s *Situation) {
			s.Diff = []ConfigChange{change("kubernetes.version", "v1.37.2", "v1.38.0", spec.Disruptive)}
		}}, AskFirst, ExitConsent, "", []string{"v1.37.2 -> v1.38.0"}},
		{"version change, --update", []func(*Situation){update, func(s *Situation) {
			s.Diff = []ConfigChange{change("kubernetes.version", "v1.37.2", "v1.38.0", spec.Disruptive)}
		}}, Refuse, ExitConfig, "is an upgrade", []string{"back to v1.37.2"}},
		{"removal of a worker", []func(*Situation){func(s *Situation) { s.Hosts[1].Wanted = false }}, AskFirst, ExitConsent, "worker-1", nil},
		{"removal of a worker, --update", []func(*Situation){update, func(s *Situation) { s.Hosts[1].Wanted = false }}, Change, 0, "", nil},
		{"removal of a master needs the name", []func(*Situation){update, func(s *Situation) { s.Hosts[0].Wanted, s.Hosts[0].Roles = false, []string{"master"} }}, AskFirst, ExitConsent, "master-1", []string{"--confirm demo"}},
		{"removal of a worker, its server gone", []func(*Situation){func(s *Situation) { s.Hosts[1].Wanted, s.Hosts[1].Exists = false, false }}, AskFirst, ExitConsent, "worker-1", nil},
		{"never made and not wanted", []func(*Situation){func(s *Situation) {
			s.Hosts[1].Wanted, s.Hosts[1].Exists, s.Hosts[1].Known = false, false, false
		}}, Keep, 0, "", nil},
		{"removal of a worker that shows another key, --update", []func(*Situation){update, func(s *Situation) {
			s.Hosts[1].Wanted, s.Hosts[1].BadKey = false, "shows SHA256:x"
		}}, Change, 0, "", nil},
		{"removal of a worker, agreed to before", []func(*Situation){grown, func(s *Situation) {
			s.Hosts[1].Wanted, s.Intent = false, &Intent{RunID: "r7", Digest: "d1"}
		}}, Change, 0, "going on with run r7", nil},
		{"removal of a master with a worker missing, --update", []func(*Situation){update, func(s *Situation) {
			s.Hosts[0].Wanted, s.Hosts[1].Exists = false, false
		}}, AskFirst, ExitConsent, "master-1", []string{"--confirm demo"}},
		{"removal of a master, agreed to before, --update", []func(*Situation){update, func(s *Situation) {
			s.Hosts[0].Wanted, s.Intent = false, &Intent{RunID: "r7", Digest: "d1"}
		}}, Change, 0, "", nil},
		{"removal of a master would change the endpoint", []func(*Situation){update, func(s *Situation) {
			s.Hosts[0].Wanted, s.Ask.Confirm = false, true
			s.Diff = []ConfigChange{change("endpoint.external", "load-balancer", "master", spec.Disruptive)}
		}}, Refuse, ExitConfig, "address for people", []string{"endpoint: {external: load-balancer}"}},
		{"not established, removal of a master", []func(*Situation){young, update, func(s *Situation) { s.Hosts[0].Wanted, s.Ask.Confirm = false, true }}, Refuse, ExitConfig, "not complete yet", []string{"set the count back"}},
		{"not established, removals agreed to before", []func(*Situation){young, func(s *Situation) {
			s.Hosts[1].Wanted, s.Intent = false, &Intent{RunID: "r7", Digest: "d1"}
		}}, Continue, 0, "", nil},
		{"removal of a master, named", []func(*Situation){update, func(s *Situation) {
			s.Hosts[0].Wanted, s.Hosts[0].Roles, s.Ask.Confirm = false, []string{"master"}, true
		}}, Change, 0, "", nil},

		{"recipes of a newer hk", []func(*Situation){func(s *Situation) { s.Ask.Recipes = []string{"etcd-setup.service/master-1"} }}, AskFirst, ExitConsent, "in another way", []string{"etcd-setup.service/master-1"}},
		{"recipes of a newer hk, --update", []func(*Situation){update, func(s *Situation) { s.Ask.Recipes = []string{"x"} }}, Change, 0, "", nil},
		{"built by a newer hk", []func(*Situation){func(s *Situation) { s.BuiltBy = "1.10.0" }}, Refuse, ExitConfig, "built by hk 1.10.0", []string{"use hk 1.10.0"}},
		{"built by an older hk", []func(*Situation){func(s *Situation) { s.BuiltBy = "1.1.9" }}, Keep, 0, "", nil},
		{"--force", []func(*Situation){func(s *Situation) { s.Ask.Forced = []string{"etcd-setup.certs/master-1"} }}, Change, 0, "forcing etcd-setup.certs/master-1", nil},

		{"open intent, same config", []func(*Situation){grown, func(s *Situation) { s.Intent = &Intent{RunID: "r7", Digest: "d1"} }}, Change, 0, "going on with run r7", nil},
		{"open intent, another config", []func(*Situation){grown, func(s *Situation) { s.Intent = &Intent{RunID: "r7", Digest: "d0"} }}, AskFirst, ExitConsent, "run r7", []string{"--abandon r7"}},
		{"open intent, the applied config again", []func(*Situation){func(s *Situation) { s.Intent = &Intent{RunID: "r7", Digest: "d0"} }}, AskFirst, ExitConsent, "run r7", nil},
		{"open intent, abandoned", []func(*Situation){func(s *Situation) {
			s.Intent, s.Ask.Abandon = &Intent{RunID: "r7", Digest: "d0"}, "r7"
		}}, Keep, 0, "", nil},
		{"open intent, abandoned, but the config still differs", []func(*Situation){grown, func(s *Situation) {
			s.Intent, s.Ask.Abandon = &Intent{RunID: "r7", Digest: "d1"}, "r7"
		}}, AskFirst, ExitConsent, "differs", nil},
		{"no such intent", []func(*Situation){func(s *Situation) { s.Ask.Abandon = "r8" }}, Refuse, ExitUsage, "no open run r8", nil},

		{"our servers, store empty", []func(*Situation){nothing, func(s *Situation) { s.CloudUIDs, s.Tried = []string{"aa"}, []string{"/home/clusters/demo"} }}, Refuse, ExitCredentials, "credentials cannot be found", []string{"tried: /home/clusters/demo"}},
		{"our servers, store empty, somebody builds", []func(*Situation){nothing, func(s *Situation) {
			s.CloudUIDs, s.Lock = []string{"aa"}, &LockInfo{Holder: "you.there", Run: "r9"}
		}}, Refuse, ExitLocked, "locked by you.there, run r9", nil},
		{"same name, other UID", []func(*Situation){func(s *Situation) { s.CloudUIDs = []string{"bb"} }}, Refuse, ExitCloud, "another cluster called demo", []string{"UID aa", "UID bb", "hk adopt demo", "hk forget demo"}},
		{"same name, ours and another", []func(*Situation){func(s *Situation) { s.CloudUIDs = []string{"aa", "bb"} }}, Refuse, ExitCloud, "another cluster called demo", nil},
		{"same name, two others", []func(*Situation){nothing, func(s *Situation) { s.CloudUIDs = []string{"bb", "cc"} }}, Refuse, ExitCloud, "2 clusters called demo", nil},
		{"foreign object", []func(*Situation){nothing, func(s *Situation) { s.Foreign = []string{"server demo-master-1 (7)"} }}, Refuse, ExitCloud, "not its own", []string{"server demo-master-1 (7)"}},
		{"wrong project", []func(*Situation){func(s *Situation) { s.Objects, s.CloudUIDs = 0, nil }}, Refuse, ExitCloud, "wrong project, or demo was deleted elsewhere", []string{"hk forget demo"}},
		{"wrong project, not established", []func(*Situation){young, func(s *Situation) { s.Objects, s.CloudUIDs = 0, nil }}, Refuse, ExitCloud, "wrong project", nil},
		{"cloud down", []func(*Situation){func(s *Situation) { s.CloudErr = errors.New("502") }}, Refuse, ExitCloud, "502", nil},
		{"destroy begun", []func(*Situation){func(s *Situation) { s.Destroying = true }}, Refuse, ExitConfig, "destroy of demo was begun", []string{"--confirm demo"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := established()
			for _, w := range tt.with {
				w(&s)
			}
			d := Decide(s)
			if d.Action != tt.action || d.Exit != tt.exit {
				t.Fatalf("%s, exit %d (%s); want %s, exit %d", d.Action, d.Exit, d.Message, tt.action, tt.exit)
			}
			if !strings.Contains(d.Message, tt.says) {
				t.Errorf("message %q, want %q", d.Message, tt.says)
			}
			all := strings.Join(slices.Concat(d.Details, d.Hints), "\n")
			for _, l := range tt.lists {
				if !strings.Contains(all, l) {
					t.Errorf("no %q in:\n%s", l, all)
				}
			}
			if refused := d.Err() != nil; refused != (tt.exit != 0) {
				t.Errorf("error %v with exit %d", d.Err(), tt.exit)
			}
			if d.Action == Refuse && len(d.Hints)+len(d.Details) == 0 && d.Exit != ExitLocked {
				t.Error("a refusal without a next step")
			}
		})
	}
}

// Consent raises the generation; going on with what was agreed to does not.
func TestDecideConsent(t *testing.T) {
	tests := []struct {
		name string
		with func(*Situation)
		want bool
	}{
		{"keep", func(*Situation) {}, false},
		{"create", func(s *Situation) { *s = Situation{HasConfig: true} }, true},
		{"force", func(s *Situation) { s.Ask.Forced = []string{"x"} }, true},
		{"update", func(s *Situation) {
			s.Ask.Update, s.Diff = true, []ConfigChange{change("a", "1", "2", spec.Safe)}
		}, true},
		{"update of nothing", func(s *Situation) { s.Ask.Update = true }, false},
		{"resume", func(s *Situation) { s.Intent = &Intent{RunID: "r", Digest: "d1"} }, false},
		{"continue", func(s *Situation) { s.Established = false }, false},
	}
	for _, tt := range tests {
		s := established()
		tt.with(&s)
		if d := Decide(s); d.Consented != tt.want {
			t.Errorf("%s: consented %t, want %t", tt.name, d.Consented, tt.want)
		}
	}
}

// Every row can be the one that decides: none is hidden by another.
func TestEveryRowDecides(t *testing.T) {
	used := map[string]bool{}
	for _, s := range []Situation{
		{CloudErr: errors.New("x")},
		{CloudUIDs: []string{"a", "b"}},
		{Foreign: []string{"x"}},
		{Local: true, Started: true},
		{BuiltBy: "2.0.0", Version: "1.0.0"},
		{CloudUIDs: []string{"a"}},
		{Local: true, Destroying: true},
		{Local: true, Ask: Ask{Abandon: "r"}},
		{},
		{Local: true, Hosts: []HostState{{BadKey: "x", Wanted: true}}},
		{Local: true, Hosts: []HostState{{Roles: []string{"master"}, Exists: true}}},
		{Local: true},
		{Local: true, Established: true, Diff: []ConfigChange{{Field: "cni", Class: spec.Immutable}}},
		{Local: true, Established: true, Hosts: []HostState{{Wanted: true, Known: true}}},
		{Local: true, Established: true, Hosts: []HostState{{Wanted: true, Known: true, Exists: true, Down: "x"}}},
		{Local: true, Established: true, Intent: &Intent{Digest: "x"}},
		{Local: true, Established: true, Ask: Ask{Update: true}, Diff: []ConfigChange{{Field: "kubernetes.version"}}},
		{Local: true, Established: true, Diff: []ConfigChange{{Field: "x"}}},
		{Local: true, Established: true, Ask: Ask{Forced: []string{"x"}}},
		{Local: true, Established: true},
	} {
		for _, r := range rows {
			if _, ok := r.rule(&s); ok {
				used[r.name] = true
				break
			}
		}
	}
	for _, r := range rows {
		if !used[r.name] {
			t.Errorf("row %q never decides", r.name)
		}
	}
}
