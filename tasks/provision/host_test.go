package provision

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hk/remote"
	"hk/tasks"
)

// fakeHost answers commands and facts as a test says.
type fakeHost struct {
	remote.Host
	answers map[string]remote.CommandResult // by argv
	ran     []string
	facts   *remote.Facts
	applied []remote.HostState
}

func (h *fakeHost) Exec(_ context.Context, c remote.Command) (*remote.CommandResult, error) {
	argv := strings.Join(c.Argv, " ")
	h.ran = append(h.ran, argv)
	r, ok := h.answers[argv]
	if !ok {
		return nil, errors.New("unexpected command " + argv)
	}
	return &r, nil
}

func (h *fakeHost) Facts(context.Context, remote.FactsQuery) (*remote.Facts, error) {
	return h.facts, nil
}

func (h *fakeHost) Apply(_ context.Context, s remote.HostState) (*remote.Applied, error) {
	h.applied = append(h.applied, s)
	return &remote.Applied{}, nil
}

const listImages = "crictl images --output json"

func TestVerifyImages(t *testing.T) {
	const list = `{"images":[{"id":"a","repoTags":["registry.k8s.io/pause:3.10.2"],"repoDigests":[]},{"id":"b","repoTags":["x:1"]}]}`
	in := imagesIn{Images: []string{"registry.k8s.io/pause:3.10.2"}}
	for name, c := range map[string]struct {
		answer remote.CommandResult
		want   string
	}{
		"there":      {remote.CommandResult{Stdout: []byte(list)}, ""},
		"not there":  {remote.CommandResult{Stdout: []byte(`{"images":[]}`)}, "image registry.k8s.io/pause:3.10.2 is not on the host"},
		"no runtime": {remote.CommandResult{Code: 1, Stderr: []byte("warn\nconnection refused\n")}, "listing images: connection refused"},
		"no JSON":    {remote.CommandResult{Stdout: []byte("hello")}, "reading the list of images"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &fakeHost{answers: map[string]remote.CommandResult{listImages: c.answer}}
			_, err := verifyImages(t.Context(), in, &tasks.Env{Host: h})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestImagesOfMastersAndWorkers: the control plane's images go to masters only.
func TestImagesOfMastersAndWorkers(t *testing.T) {
	for host, want := range map[string]int{"worker-1": 3, "master-1": 6} {
		in, err := imagesInputs(view(t, "name: demo\n", host, facts()))
		if err != nil || len(in.Images) != want {
			t.Errorf("%s: %v %v", host, in.Images, err)
		}
	}
}

func TestSwapGoesOffOnOwnMachinesOnly(t *testing.T) {
	off := map[string]remote.CommandResult{"swapoff --all": {}}
	for kernel, want := range map[string]int{OwnKernel: 1, SharedKernel: 0} {
		h := &fakeHost{answers: off}
		notes := map[string]string{}
		e := &tasks.Env{Host: h, Note: func(k, v string) { notes[k] = v }}
		if err := runPrepare(t.Context(), prepareIn{Kernel: kernel, MeshPort: 1}, e); err != nil {
			t.Fatal(err)
		}
		if len(h.ran) != want || len(notes) != want || len(h.applied) != 1 {
			t.Errorf("%s kernel: ran %q, noted %v", kernel, h.ran, notes)
		}
	}
	h := &fakeHost{answers: map[string]remote.CommandResult{"swapoff --all": {Code: 1, Stderr: []byte("swapoff: not permitted\n")}}}
	err := runPrepare(t.Context(), prepareIn{Kernel: OwnKernel}, &tasks.Env{Host: h, Note: func(string, string) {}})
	if err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("swap that stays on: %v", err)
	}
}

func TestWhatFirstContactFindsOut(t *testing.T) {
	const virt = "systemd-detect-virt --container"
	id := remote.HostIdentity{UID: "uid", Cluster: "demo", Host: "worker-1", Index: 3, Installation: "i"}
	in := sshIn{Cluster: "demo", Host: "worker-1", Index: 3, IPv4: "198.18.0.9", Installation: "i"}
	links := map[string]remote.Link{"lo": {MTU: 65536, Addrs: []string{"127.0.0.1/8"}}, "eth0": {MTU: 1450, Addrs: []string{"198.18.0.9/32"}}}
	for name, c := range map[string]struct {
		facts remote.Facts
		virt  remote.CommandResult
		want  string
	}{
		"a cloud server": {
			remote.Facts{Arch: "arm64", CgroupV2: true, KernelWG: true, Capabilities: 1<<41 - 1},
			remote.CommandResult{Code: 1, Stdout: []byte("none\n")},
			"arch=arm64 cgroup=v2 installation=i kernel=own mtu=1500 restricted=false wg=kernel",
		},
		"a machine of the lab": {
			remote.Facts{Arch: "amd64", Capabilities: 1<<41 - 1 - 1<<24, Links: links},
			remote.CommandResult{Stdout: []byte("systemd-nspawn\n")},
			"arch=amd64 cgroup=v1 installation=i kernel=shared mtu=1450 restricted=true wg=user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.facts
			f.Host = id
			h := &fakeHost{facts: &f, answers: map[string]remote.CommandResult{virt: c.virt}}
			e := &tasks.Env{UID: "uid", HostOf: func(string) (remote.Host, error) { return h, nil }}
			out, err := verifySSH(t.Context(), in, e)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, k := range sorted(out) {
				got = append(got, k+"="+out[k])
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s, want %s", s, c.want)
			}
			h.facts.Host.Installation = "another"
			if _, err := verifySSH(t.Context(), in, e); !errors.Is(err, remote.ErrRebuilt) {
				t.Errorf("another installation: %v", err)
			}
		})
	}
}
