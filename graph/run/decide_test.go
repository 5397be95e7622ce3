package run_test

import (
	"testing"

	"hk/cache/fp"
	"hk/graph/run"
)

func partsOf(kv ...string) *fp.Parts {
	p := &fp.Parts{}
	for i := 0; i < len(kv); i += 2 {
		switch kv[i][:4] {
		case "need", "file", "secr":
			p.Opaque(kv[i], []byte(kv[i+1]))
		default:
			p.Text(kv[i], kv[i+1])
		}
	}
	return p
}

func TestDecide(t *testing.T) {
	old := partsOf("config:kubernetes.version", "v1.36.3", "recipe", "1", "need:etcd-setup.ca", "a", "file:/etc/x", "x", "out:addr", "10.0.0.1")
	good := fp.Kept{Status: fp.Done, Fingerprint: old.Fingerprint()}
	with := func(f func(*fp.Kept)) fp.Kept { k := good; f(&k); return k }
	parts := func(kv ...string) *fp.Parts { return partsOf(kv...) }
	same := parts("config:kubernetes.version", "v1.36.3", "recipe", "1", "need:etcd-setup.ca", "a", "file:/etc/x", "x", "out:addr", "10.0.0.1")
	version := parts("config:kubernetes.version", "v1.37.2", "recipe", "1", "need:etcd-setup.ca", "a", "file:/etc/x", "y", "out:addr", "10.0.0.1")
	recipe := parts("config:kubernetes.version", "v1.36.3", "recipe", "2", "need:etcd-setup.ca", "a", "file:/etc/x", "x", "out:addr", "10.0.0.1")
	need := parts("config:kubernetes.version", "v1.36.3", "recipe", "1", "need:etcd-setup.ca", "b", "file:/etc/x", "x", "out:addr", "10.0.0.1")
	derived := parts("config:kubernetes.version", "v1.36.3", "recipe", "1", "need:etcd-setup.ca", "b", "file:/etc/x", "z", "out:addr", "10.0.0.9")
	all := parts("config:kubernetes.version", "", "config:a", "1", "config:b", "2", "recipe", "2")
	dropped := parts("config:kubernetes.version", "v1.36.3", "recipe", "1", "need:etcd-setup.ca", "a", "file:/etc/x", "x")
	ca := []string{"etcd-setup.ca"}
	for _, c := range []struct {
		name    string
		in      run.DecideInput
		verdict run.Verdict
		reason  string
	}{
		{"fresh", run.DecideInput{Record: good, Parts: same}, run.IsFresh, "same inputs"},
		{"no record", run.DecideInput{Parts: same}, run.Run, "no record"},
		{"no record, no parts", run.DecideInput{Unknown: ca}, run.Run, "no record"},
		{"damaged", run.DecideInput{Record: fp.Kept{Damaged: true}, Parts: same}, run.Run, "record damaged"},
		{"pending", run.DecideInput{Record: with(func(k *fp.Kept) { k.Status = fp.Pending }), Parts: same}, run.Run, "interrupted"},
		{"failed", run.DecideInput{Record: with(func(k *fp.Kept) { k.Status = fp.Failed }), Parts: same}, run.Run, "the last run failed"},
		{"config", run.DecideInput{Record: good, Parts: version}, run.Run, "config:kubernetes.version v1.36.3 -> v1.37.2; file:/etc/x changed"},
		{"recipe", run.DecideInput{Record: good, Parts: recipe}, run.Run, "recipe 1 -> 2"},
		{"need", run.DecideInput{Record: good, Parts: need}, run.Run, "need:etcd-setup.ca output changed"},
		{"dropped", run.DecideInput{Record: good, Parts: dropped}, run.Run, "out:addr removed"},
		{"many", run.DecideInput{Record: good, Parts: all}, run.Run, `config:a added: 1; config:b added: 2; config:kubernetes.version v1.36.3 -> ""; and 4 more`},
		{"drift", run.DecideInput{Record: good, Parts: same, Drift: "/etc/sysctl.d/90-hk.conf changed"}, run.Run, "drift: /etc/sysctl.d/90-hk.conf changed"},
		{"config before drift", run.DecideInput{Record: good, Parts: recipe, Drift: "x"}, run.Run, "recipe 1 -> 2"},
		{"expires", run.DecideInput{Record: with(func(k *fp.Kept) { k.GoodUntil = epoch.UnixNano() }), Parts: same}, run.Run, "expires 2027-01-01T00:00:00Z"},
		{"expires later", run.DecideInput{Record: with(func(k *fp.Kept) { k.GoodUntil = epoch.Add(1).UnixNano() }), Parts: same}, run.IsFresh, "same inputs"},
		{"forced", run.DecideInput{Record: good, Parts: same, Forced: true}, run.Run, "forced"},
		{"forced and stale", run.DecideInput{Record: good, Parts: recipe, Forced: true}, run.Run, "recipe 1 -> 2"},
		{"unreachable", run.DecideInput{Record: good, Parts: same, Unreachable: "no route"}, run.IsUnverified, "no route"},
		{"unreachable with old drift", run.DecideInput{Record: good, Parts: same, Unreachable: "no route", Drift: "x"}, run.IsUnverified, "no route"},
		{"unreachable and stale", run.DecideInput{Record: good, Parts: recipe, Unreachable: "no route"}, run.Run, "recipe 1 -> 2"},

		{"maybe", run.DecideInput{Record: good, Parts: same, Unknown: ca}, run.Maybe, "need:etcd-setup.ca may change"},
		{"maybe, other digest", run.DecideInput{Record: good, Parts: need, Unknown: ca}, run.Maybe, "need:etcd-setup.ca may change"},
		{"maybe, derived parts", run.DecideInput{Record: good, Parts: derived, Unknown: ca, Derived: true}, run.Maybe, "need:etcd-setup.ca may change"},
		{"maybe, no parts", run.DecideInput{Record: good, Unknown: ca}, run.Maybe, "need:etcd-setup.ca may change"},
		{"unknown, own file", run.DecideInput{Record: good, Parts: derived, Unknown: ca}, run.Run, "out:addr 10.0.0.1 -> 10.0.0.9; file:/etc/x changed"},
		{"unknown, own config", run.DecideInput{Record: good, Parts: version, Unknown: ca, Derived: true}, run.Run, "config:kubernetes.version v1.36.3 -> v1.37.2"},
		{"unknown, other need", run.DecideInput{Record: good, Parts: need, Unknown: []string{"x.y"}}, run.Run, "need:etcd-setup.ca output changed"},
		{"unknown and drift", run.DecideInput{Record: good, Parts: same, Unknown: ca, Drift: "x"}, run.Run, "drift: x"},

		{"spared", run.DecideInput{Record: good, Parts: same, Spared: "--keep-data"}, run.IsSpared, "spared: same inputs"},
		{"spared, stale", run.DecideInput{Record: good, Parts: recipe, Spared: "--keep-data"}, run.IsSpared, "spared: would run because recipe 1 -> 2"},
		{"spared, forced", run.DecideInput{Record: good, Parts: same, Spared: "--keep-data", Forced: true}, run.IsSpared, "spared: would run because forced"},
		{"spared, drift", run.DecideInput{Record: good, Parts: same, Spared: "--keep-data", Drift: "x"}, run.IsBlocked, "drift: x"},
		{"spared, no record", run.DecideInput{Parts: same, Spared: "--keep-data"}, run.IsBlocked, "no record"},
		{"spared, unreachable", run.DecideInput{Record: good, Parts: same, Spared: "--keep-data", Unreachable: "no route"}, run.IsUnverified, "no route"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Old, c.in.Now = old.List, epoch
			v, reason := run.Decide(c.in)
			if v != c.verdict || reason != c.reason {
				t.Errorf("%s (%s), want %s (%s)", v, reason, c.verdict, c.reason)
			}
		})
	}
}

func TestStateWords(t *testing.T) {
	for s, want := range map[run.State]string{run.Waiting: "waiting", run.Recording: "recording", run.Ran: "ran", run.Blocked: "blocked"} {
		if s.String() != want {
			t.Errorf("%d is %q, want %q", s, s, want)
		}
	}
	for v, want := range map[run.Verdict]string{run.Run: "run", run.Maybe: "maybe", run.IsBlocked: "blocked"} {
		if v.String() != want {
			t.Errorf("%d is %q, want %q", v, v, want)
		}
	}
}
