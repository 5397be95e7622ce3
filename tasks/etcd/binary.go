package etcd

import (
	"context"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/spec"
)

type binaryIn struct {
	Etcd    host.Pin `part:"artifact:etcd"`
	Etcdctl host.Pin `part:"artifact:etcdctl"`
	Etcdutl host.Pin `part:"artifact:etcdutl"`
	Mirror  string   `part:"config:mirrors.artifacts"`
}

// binaryKind brings etcd's programs. Its output is what the running member
// depends on: another etcd makes the service stale.
func binaryKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "binary", Scope: graph.OnHost, Roles: []string{spec.Etcd}, Recipe: 1,
		Needs: onHost(), Title: "etcd programs",
	}, tasks.Def[binaryIn]{
		Inputs: func(v *tasks.View) (binaryIn, error) {
			in := binaryIn{Mirror: v.Spec.Mirrors.Artifacts}
			arch := v.Out(sshKind)["arch"]
			for _, p := range []struct {
				pin    *host.Pin
				member string
			}{{&in.Etcd, "etcd"}, {&in.Etcdctl, "etcdctl"}, {&in.Etcdutl, "etcdutl"}} {
				var err error
				if *p.pin, err = host.PinOf(v.Lock, host.Etcd, arch, p.member); err != nil {
					return in, err
				}
			}
			return in, nil
		},
		Declared: func(in binaryIn) remote.HostState {
			return remote.HostState{Files: []remote.File{
				in.Etcd.At(etcdProgram, in.Mirror),
				in.Etcdctl.At(host.BinDir+"/etcdctl", in.Mirror),
				in.Etcdutl.At(host.BinDir+"/etcdutl", in.Mirror),
			}}
		},
		Verify: func(_ context.Context, in binaryIn, _ *tasks.Env) (fp.Output, error) {
			return fp.Output{"version": in.Etcd.Version, "etcd": in.Etcd.File}, nil
		},
	})
}

const etcdProgram = host.BinDir + "/etcd"
