package kubenode

import (
	"errors"
	"testing"

	"hk/remote"
)

func TestJobErrorSaysWhy(t *testing.T) {
	for _, c := range []struct {
		stderr, want string
		again        bool
	}{
		{"\t[WARNING Mem]: little\nerror: error execution phase wait-control-plane: no answer\nTo see the stack trace of this error execute with --v=5 or higher\n", "error: error execution phase wait-control-plane: no answer", true},
		{"[preflight] Some fatal errors occurred:\n\t[ERROR CRI]: not running\nerror: error execution phase preflight: preflight checks failed\n", "[ERROR CRI]: not running\nerror: error execution phase preflight: preflight checks failed", false},
		{"killed\n", "killed", true},
	} {
		err := JobError("master-1", "kubeadm init", &remote.JobResult{Code: 1, Stderr: []byte(c.stderr)})
		var he *remote.HostError
		if !errors.As(err, &he) || he.Stderr != c.want || he.Transient() != c.again {
			t.Errorf("got %q, transient %t", he.Stderr, he.Transient())
		}
	}
	if err := JobError("h", "op", &remote.JobResult{}); err != nil {
		t.Error(err)
	}
}
