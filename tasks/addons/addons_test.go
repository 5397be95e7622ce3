package addons

import (
	"encoding/json"
	"testing"

	"hk/cache/fp"
	"hk/tasks"
	"hk/tasks/internal/fake"
	"hk/tasks/internal/golden"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

func TestGolden(t *testing.T) {
	st := cniState(cniIn{PodCIDR: "10.128.1.0/24", MTU: 1420, Pods: "10.128.0.0/10", Mesh: "10.100.0.0/16", Services: "10.200.0.0/16"})
	golden.Check(t, "10-hk.conflist.golden", st.Files[1].Content)
	golden.Check(t, "masquerade.nft.golden", st.Files[2].Content)
	golden.Check(t, "hk-masquerade.service.golden", st.Files[3].Content)

	var c struct {
		Plugins []struct {
			Type        string
			IPMasq      bool `json:"ipMasq"`
			HairpinMode bool `json:"hairpinMode"`
			MTU         int  `json:"mtu"`
		}
	}
	if err := json.Unmarshal(st.Files[1].Content, &c); err != nil {
		t.Fatal(err)
	}
	if b := c.Plugins[0]; b.Type != "bridge" || b.IPMasq || !b.HairpinMode || b.MTU != 1420 {
		t.Errorf("bridge is %+v", b)
	}
}

func TestPodsHaveTheMeshsMTU(t *testing.T) {
	k := cniKind()
	if k.When(&spec.Cluster{CNI: "none"}) || !k.When(&spec.Cluster{CNI: "mesh"}) {
		t.Error("it belongs to `cni: mesh` alone")
	}
	v := &tasks.View{Spec: &spec.Cluster{}, Host: &spec.Host{PodCIDR: "10.128.1.0/24"}}
	v.Out = fake.Out(map[string]fp.Output{kubenode.SSHKind: {"mtu": "1450"}})
	in, err := cniInputs(v)
	if err != nil {
		t.Fatal(err)
	}
	if in.MTU != 1370 {
		t.Errorf("MTU %d, want the carrier's less WireGuard's 80", in.MTU)
	}
}

func TestWithoutNetworkNothingDemandsReady(t *testing.T) {
	for _, k := range Kinds() {
		if k.When(&spec.Cluster{CNI: "none"}) {
			t.Errorf("%s belongs to a cluster without a pod network", k.ID())
		}
	}
}
