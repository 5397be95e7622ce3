package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// nodeImages run on every node; the rest of the lock file's images are the
// control plane's.
var nodeImages = []string{"coredns", "kube-proxy", "pause"}

// controlPlaneImages run on masters only.
var controlPlaneImages = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

type imagesIn struct {
	Images []string `part:"versions:images"`
}

// imagesKind pulls what kubeadm will start, so that an init waits for no
// download.
func imagesKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "images", Scope: graph.OnHost, Roles: kubeRoles, Recipe: 1,
		Needs: []graph.Need{{Kind: SSHKind, Via: graph.Same}, {Kind: RuntimeKind, Via: graph.Same}},
		Title: "container images of Kubernetes",
	}, tasks.Def[imagesIn]{
		Inputs:   imagesInputs,
		Declared: func(in imagesIn) remote.HostState { return remote.HostState{Images: in.Images} },
		Verify:   verifyImages,
	})
}

func imagesInputs(v *tasks.View) (imagesIn, error) {
	if v.Lock == nil {
		return imagesIn{}, fmt.Errorf("there is no lock file to take images from")
	}
	names := slices.Clone(nodeImages)
	if v.Host.Has(spec.Master) {
		names = append(names, controlPlaneImages...)
	}
	var in imagesIn
	for _, n := range names {
		ref := v.Lock.Images[n]
		if ref == "" {
			return in, fmt.Errorf("the lock file has no image %s", n)
		}
		in.Images = append(in.Images, ref)
	}
	slices.Sort(in.Images)
	return in, nil
}

func verifyImages(ctx context.Context, in imagesIn, e *tasks.Env) (fp.Output, error) {
	r, err := e.Host.Exec(ctx, remote.Command{Argv: []string{"crictl", "images", "--output", "json"}})
	if err != nil {
		return nil, err
	}
	if r.Code != 0 {
		return nil, fmt.Errorf("listing images: %s", lastLine(r.Stderr))
	}
	var list struct {
		Images []struct {
			RepoTags, RepoDigests []string
		} `json:"images"`
	}
	if err := json.Unmarshal(r.Stdout, &list); err != nil {
		return nil, fmt.Errorf("reading the list of images: %w", err)
	}
	have := map[string]bool{}
	for _, i := range list.Images {
		for _, ref := range slices.Concat(i.RepoTags, i.RepoDigests) {
			have[ref] = true
		}
	}
	for _, ref := range in.Images {
		if !have[ref] {
			return nil, fmt.Errorf("image %s is not on the host", ref)
		}
	}
	return nil, nil
}
