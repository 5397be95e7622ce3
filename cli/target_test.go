package cli

import (
	"testing"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]target{
		"demo":                            {Cluster: "demo"},
		"demo/master-1":                   {Cluster: "demo", Host: "master-1"},
		"demo:etcd-setup":                 {Cluster: "demo", Phase: "etcd-setup"},
		"demo:etcd-setup.certs":           {Cluster: "demo", Phase: "etcd-setup", Part: "certs"},
		"demo:etcd-setup.certs/master-1":  {Cluster: "demo", Phase: "etcd-setup", Part: "certs", Host: "master-1"},
		"demo:install-workers/worker-*":   {Cluster: "demo", Phase: "install-workers", Host: "worker-*"},
		"demo:etcd-setup+":                {Cluster: "demo", Phase: "etcd-setup", Plus: true},
		"demo:etcd-setup.certs/master-1+": {Cluster: "demo", Phase: "etcd-setup", Part: "certs", Host: "master-1", Plus: true},
		"d/*":                             {Cluster: "d", Host: "*"},
	} {
		got, err := parseTarget(in)
		if err != nil || got != want {
			t.Errorf("parseTarget(%q) = %+v, %v; want %+v", in, got, err, want)
		}
		if got.String() != in {
			t.Errorf("%q is written as %q", in, got.String())
		}
	}
}

func TestParseTargetRefuses(t *testing.T) {
	for _, in := range []string{
		"", "/master-1", ":etcd-setup", "demo:", "demo/", "demo:.certs", "demo:etcd-setup.", "Demo", "demo+",
		"demo:etcd-setup/", "demo:a.b.c", "demo/a/b", "demo:etcd*", "demo/[a]", "-demo", "demo-", "demo/master-1+", "demo master",
	} {
		if got, err := parseTarget(in); err == nil || !isUsage(err) {
			t.Errorf("parseTarget(%q) = %+v, %v; want a usage error", in, got, err)
		}
	}
}

func TestParseTargetsOneCluster(t *testing.T) {
	if _, err := parseTargets([]string{"demo:addons", "demo/worker-1"}); err != nil {
		t.Error(err)
	}
	if _, err := parseTargets([]string{"demo", "prod"}); !isUsage(err) {
		t.Errorf("two clusters: %v", err)
	}
	if _, err := clusterArg("demo/master-1"); !isUsage(err) {
		t.Errorf("a host where a cluster is wanted: %v", err)
	}
}

func TestTargetMatchHost(t *testing.T) {
	for _, tc := range []struct {
		host, name string
		want       bool
	}{
		{"", "master-1", true},
		{"", "", true},
		{"worker-*", "worker-12", true},
		{"worker-?", "worker-12", false},
		{"*", "", false},
		{"master-1", "master-10", false},
	} {
		if got := (target{Host: tc.host}).matchHost(tc.name); got != tc.want {
			t.Errorf("%q matches %q: %v", tc.host, tc.name, got)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"demo", "demo:etcd-setup.certs/master-1+", "a:b/*", "::", "a/b+"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s)
		if err != nil {
			return
		}
		if got.String() != s {
			t.Fatalf("%q is written as %q", s, got.String())
		}
		if again, err := parseTarget(got.String()); err != nil || again != got {
			t.Fatalf("%q: %+v then %+v, %v", s, got, again, err)
		}
	})
}
