package network

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hk/cache/fp"
	"hk/remote"
	"hk/tasks"
)

// fakeHost is a host that answers what a test says and notes what was asked.
type fakeHost struct {
	remote.Host
	mu      sync.Mutex
	exec    func(argv []string) (int, error)
	ran     []string
	facts   *remote.Facts
	applied []remote.HostState
	touched []string // units that Apply starts or reloads
	files   map[string][]byte
}

func (h *fakeHost) Exec(_ context.Context, c remote.Command) (*remote.CommandResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran = append(h.ran, strings.Join(c.Argv, " "))
	code, err := h.exec(c.Argv)
	return &remote.CommandResult{Code: code}, err
}

func (h *fakeHost) Facts(context.Context, remote.FactsQuery) (*remote.Facts, error) {
	return h.facts, nil
}

func (h *fakeHost) Apply(_ context.Context, s remote.HostState) (*remote.Applied, error) {
	h.applied = append(h.applied, s)
	for _, f := range s.Files {
		if _, there := h.files[f.Path]; h.files == nil || f.Keep && there {
			continue
		}
		h.files[f.Path] = f.Content
	}
	return &remote.Applied{Restarted: h.touched}, nil
}

func (h *fakeHost) Get(_ context.Context, path string) ([]byte, error) {
	b, ok := h.files[path]
	if !ok {
		return nil, remote.ErrNotFound
	}
	return b, nil
}

// memorySets is values by digest.
type memorySets map[fp.OutputDigest][]byte

func (m memorySets) PutSet(data []byte) (fp.OutputDigest, error) {
	d := fp.Output{"set": string(data)}.Digest()
	m[d] = data
	return d, nil
}

func (m memorySets) GetSet(d fp.OutputDigest) ([]byte, error) {
	b, ok := m[d]
	if !ok {
		return nil, remote.ErrNotFound
	}
	return b, nil
}

func env(h *fakeHost) (*tasks.Env, map[string]string, *[]string) {
	notes, lines := map[string]string{}, &[]string{}
	return &tasks.Env{
		Host: h, Sets: memorySets{}, Note: func(k, v string) { notes[k] = v }, Log: func(l string) { *lines = append(*lines, l) },
	}, notes, lines
}

func TestKeyIsDrawnOnce(t *testing.T) {
	h := &fakeHost{files: map[string][]byte{}}
	e, _, _ := env(h)
	var public []string
	for range 2 {
		if err := runKeys(t.Context(), keysIn{}, e); err != nil {
			t.Fatal(err)
		}
		out, err := verifyKeys(t.Context(), keysIn{}, e)
		if err != nil {
			t.Fatal(err)
		}
		public = append(public, out["public"])
	}
	if public[0] != public[1] || len(public[0]) != 44 {
		t.Errorf("public keys %q", public)
	}
	for _, s := range h.applied {
		for _, f := range s.Files {
			if f.Path == keyFile && (!f.Secret || !f.Keep || f.Mode != 0o600) {
				t.Errorf("the key's file: secret %t, keep %t, mode %o", f.Secret, f.Keep, f.Mode)
			}
		}
	}
	h.files[keyFile] = []byte("spoilt")
	if _, err := verifyKeys(t.Context(), keysIn{}, e); err == nil {
		t.Error("a spoilt key was verified")
	}
}

// meshStage is the mesh task of master-1 with its set of peers.
func meshStage(t *testing.T, h *fakeHost) (meshIn, *tasks.Env, map[string]string) {
	t.Helper()
	e, notes, _ := env(h)
	data, err := json.Marshal(peers())
	if err != nil {
		t.Fatal(err)
	}
	d, err := e.Sets.PutSet(data)
	if err != nil {
		t.Fatal(err)
	}
	m := in()
	m.Set = hex.EncodeToString(d[:])
	return m, e, notes
}

func TestMeshRun(t *testing.T) {
	for name, c := range map[string]struct {
		facts   *remote.Facts
		touched []string
		want    string
	}{
		"started or reloaded by its files":     {facts(nil), []string{Unit}, ""},
		"all as it should be":                  {facts(nil), nil, ""},
		"a peer was taken out by hand":         {facts(func(w *remote.WGFact) { delete(w.Peers, "KEY2=") }), nil, "systemctl reload " + Unit},
		"the userspace process died":           {&remote.Facts{}, nil, "systemctl restart " + Unit},
		"its key was taken away":               {facts(func(w *remote.WGFact) { w.PublicKey = "" }), nil, "systemctl reload " + Unit},
		"a peer was added to it by a stranger": {facts(func(w *remote.WGFact) { w.Peers["X"] = remote.WGPeer{} }), nil, "systemctl reload " + Unit},
	} {
		t.Run(name, func(t *testing.T) {
			h := &fakeHost{facts: c.facts, touched: c.touched, exec: func([]string) (int, error) { return 0, nil }}
			m, e, _ := meshStage(t, h)
			if err := runMesh(t.Context(), m, e); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(h.ran, "; "); got != c.want {
				t.Errorf("ran %q, want %q", got, c.want)
			}
			if f := h.applied[0].Files[0]; f.Path != confFile || !strings.Contains(string(f.Content), "PublicKey = KEY3=") || strings.Contains(string(f.Content), "KEY1=") {
				t.Errorf("file %+v", f)
			}
		})
	}
}

func TestMeshVerify(t *testing.T) {
	h := &fakeHost{facts: facts(nil)}
	m, e, notes := meshStage(t, h)
	out, err := verifyMesh(t.Context(), m, e)
	if err != nil || out["mtu"] != "1420" || !strings.HasPrefix(notes["wg:hk0"], "2 peers (") {
		t.Errorf("%v %v %v", out, err, notes)
	}
	m.Set = strings.Repeat("00", 32)
	if _, err := verifyMesh(t.Context(), m, e); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("a set that nobody kept: %v", err)
	}
}

// pings answers pings: which masters answer full packets, which only small
// ones, and from when on.
func pings(full, small map[string]time.Duration) func(argv []string) (int, error) {
	start := time.Now()
	return func(argv []string) (int, error) {
		ip, size := argv[len(argv)-1], argv[len(argv)-2]
		after, ok := full[ip]
		if !ok && size == "56" {
			after, ok = small[ip]
		}
		if ok && time.Since(start) >= after {
			return 0, nil
		}
		return 1, nil
	}
}

func TestMeshCheck(t *testing.T) {
	masters := []master{{"master-1", "1"}, {"master-2", "2"}, {"master-3", "3"}}
	for name, c := range map[string]struct {
		host        string
		masters     []master
		full, small map[string]time.Duration
		err, log    string
		within      time.Duration
	}{
		"the only master":            {host: "master-1", masters: masters[:1]},
		"a worker, all answer":       {host: "worker-1", masters: masters, full: map[string]time.Duration{"1": 0, "2": 0, "3": 0}},
		"a worker, one is down":      {host: "worker-1", masters: masters, full: map[string]time.Duration{"1": 0, "3": 0}, log: "no answer from master-2 over the mesh"},
		"a master counts itself":     {host: "master-1", masters: masters, full: map[string]time.Duration{"3": 0}, log: "no answer from master-2 over the mesh"},
		"a handshake takes its time": {host: "worker-1", masters: masters, full: map[string]time.Duration{"1": 0, "2": 6 * time.Second}, log: "no answer from master-3 over the mesh", within: 10 * time.Second},
		"a majority is silent": {
			host: "worker-1", masters: masters, full: map[string]time.Duration{"1": 0},
			err: "1 of 3 masters answer over the mesh, 2 are needed; silent: master-2, master-3", within: 31 * time.Second,
		},
		"a narrow path": {
			host: "worker-1", masters: masters, full: map[string]time.Duration{"1": 0, "2": 0}, small: map[string]time.Duration{"3": 0},
			err: "master-3 answers over the mesh, but not packets of 1420 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				h := &fakeHost{exec: pings(c.full, c.small)}
				e, _, lines := env(h)
				_, err := verifyMeshCheck(t.Context(), meshCheckIn{Host: c.host, Masters: c.masters, MTU: 1420}, e)
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				if got := strings.Join(*lines, "; "); got != c.log {
					t.Errorf("said %q, want %q", got, c.log)
				}
				if took := time.Since(start); took > c.within {
					t.Errorf("took %v", took)
				}
				for _, r := range h.ran {
					if !strings.HasPrefix(r, "ping -n -q -c 1 -W 2 -M do -s ") {
						t.Errorf("ran %q", r)
					}
				}
			})
		})
	}
}

// TestMeshCheckOwnHostGone: losing the own host is not a silent majority.
func TestMeshCheckOwnHostGone(t *testing.T) {
	h := &fakeHost{exec: func([]string) (int, error) { return 0, remote.ErrUnreachable }}
	e, _, _ := env(h)
	_, err := verifyMeshCheck(t.Context(), meshCheckIn{Host: "worker-1", Masters: []master{{"master-1", "1"}}, MTU: 1420}, e)
	if !errors.Is(err, remote.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}
