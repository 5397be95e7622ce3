package sim

import (
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"hk/remote"
)

// runProgram runs argv on a machine and returns its output and exit code.
// Nothing is a success by default: a program or an argument that is not known
// here is an error, as a typing mistake would be on a real machine.
func runProgram(t *tx, v *server, argv []string, _ []byte) ([]byte, int) {
	env := map[string]string{}
	if argv[0] == "env" {
		argv = argv[1:]
		for len(argv) > 0 && strings.Contains(argv[0], "=") {
			k, val, _ := strings.Cut(argv[0], "=")
			env[k] = val
			argv = argv[1:]
		}
	}
	name := argv[0][strings.LastIndex(argv[0], "/")+1:]
	var out string
	var err error
	switch name {
	case "true", "swapoff", "systemd-sysusers":
	case "hostname":
		out = v.Name + "\n"
	case "systemd-detect-virt":
		return []byte("none\n"), 1
	case "ping":
		return nil, ping(t, v, argv[len(argv)-1])
	case "systemctl":
		err = systemctl(t, v, argv[1:])
	case "crictl":
		out, err = crictl(t, v, argv[1:])
	case "kubeadm":
		err = kubeadm(t, v, argv[1:], env)
	default:
		return []byte("sim: " + argv[0] + ": command not found"), 127
	}
	if err != nil {
		return []byte(err.Error()), 1
	}
	return []byte(out), 0
}

// startUnit starts a unit that an Apply, a boot or systemctl wants up.
func startUnit(t *tx, v *server, name string) error {
	k := unitKey(v.ID, name)
	u, _ := load[hostUnit](t, k)
	switch name {
	case meshUnit:
		if err := startMesh(t, v); err != nil {
			return err
		}
	case etcdUnit:
		if err := startEtcd(t, v); err != nil {
			return err
		}
	case "containerd.service":
		if !t.has(fileKey(v.ID, "/usr/local/bin/containerd")) {
			return fmt.Errorf("containerd.service: /usr/local/bin/containerd is missing")
		}
	case kubeletUnit:
		if !t.has(fileKey(v.ID, "/usr/local/bin/kubelet")) {
			return fmt.Errorf("kubelet.service: /usr/local/bin/kubelet is missing")
		}
	}
	u.Active = true
	u.Started = digestOf(t, v.ID, u.Files)
	u.Invocation = fmt.Sprintf("%032x", t.next())
	store(t, k, u)
	return nil
}

func systemctl(t *tx, v *server, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("sim: systemctl %v: not known here", args)
	}
	k := unitKey(v.ID, args[1])
	u, ok := load[hostUnit](t, k)
	if !ok {
		return fmt.Errorf("Unit %s could not be found", args[1]) //nolint:staticcheck // systemctl's own words
	}
	switch args[0] {
	case "restart", "reload", "start", "reload-or-restart":
		return startUnit(t, v, args[1])
	case "stop":
		u.Active = false
		store(t, k, u)
		return nil
	}
	return fmt.Errorf("sim: systemctl %s: not known here", args[0])
}

// wgState is the running interface.
type wgState struct {
	Public, Address string
	Port            int
	Peers           map[string]remote.WGPeer
}

type wgSeen struct {
	remote.WGFact
	address string
}

func startMesh(t *tx, v *server) error {
	keyText, ok := load[hostFile](t, fileKey(v.ID, "/etc/wireguard/hk0.key"))
	conf, ok2 := load[hostFile](t, fileKey(v.ID, "/etc/wireguard/hk0.conf"))
	if !ok || !ok2 {
		return fmt.Errorf("wg-quick: hk0 has no key or no configuration")
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(keyText.Content)))
	if err != nil {
		return fmt.Errorf("wg-quick: the key is not valid")
	}
	private, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return fmt.Errorf("wg-quick: the key is not valid")
	}
	s := wgState{Public: base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()), Peers: map[string]remote.WGPeer{}}
	var peer string
	for l := range strings.SplitSeq(string(conf.Content), "\n") {
		name, val, ok := strings.Cut(l, " = ")
		if !ok || strings.HasPrefix(l, "#") {
			continue
		}
		p := s.Peers[peer]
		switch name {
		case "Address":
			s.Address, _, _ = strings.Cut(val, "/")
		case "ListenPort":
			s.Port, _ = strconv.Atoi(val)
		case "PublicKey":
			peer, p = val, remote.WGPeer{}
		case "Endpoint":
			p.Endpoint = val
		case "AllowedIPs":
			p.AllowedIPs = strings.Split(val, ", ")
		}
		if peer != "" {
			s.Peers[peer] = p
		}
	}
	store(t, key("wg", v.ID), s)
	return nil
}

// wgOf is the interface of a machine as `wg show` would print it.
func wgOf(t *tx, id int64) (wgSeen, bool) {
	s, ok := load[wgState](t, key("wg", id))
	u, _ := load[hostUnit](t, unitKey(id, meshUnit))
	if !ok || !u.Active {
		return wgSeen{}, false
	}
	f := wgSeen{WGFact: remote.WGFact{PublicKey: s.Public, Port: s.Port, Peers: map[string]remote.WGPeer{}}, address: s.Address}
	for k, p := range s.Peers {
		if meshPath(t, id, strings.TrimSuffix(first(p.AllowedIPs, 1)[0], "/32")) {
			p.LastHandshake = t.w.now().Add(-10 * time.Second)
		}
		f.Peers[k] = p
	}
	return f, true
}

// meshPath reports whether a mesh address answers a machine: both run, and each
// has the other as a peer.
func meshPath(t *tx, from int64, addr string) bool {
	mine, ok := load[wgState](t, key("wg", from))
	if !ok {
		return false
	}
	if mine.Address == addr {
		return true
	}
	for _, k := range t.keys("wg/") {
		other, _ := load[wgState](t, k)
		if other.Address != addr || mine.Peers[other.Public].Endpoint == "" || other.Peers[mine.Public].Endpoint == "" {
			continue
		}
		id, _ := strconv.ParseInt(k[len("wg/"):], 10, 64)
		v, _ := load[server](t, key("server", id))
		cut, _ := load[bool](t, key("cut", id))
		u, _ := load[hostUnit](t, unitKey(id, meshUnit))
		return v.Status == "running" && !cut && u.Active
	}
	return false
}

func ping(t *tx, v *server, addr string) int {
	if meshPath(t, v.ID, addr) {
		return 0
	}
	return 1
}

func crictl(t *tx, v *server, args []string) (string, error) {
	switch args[0] {
	case "images":
		refs, _ := load[[]string](t, key("images", v.ID))
		type image struct {
			RepoTags []string `json:"repoTags"`
		}
		var list struct {
			Images []image `json:"images"`
		}
		for _, r := range refs {
			list.Images = append(list.Images, image{[]string{r}})
		}
		b, err := json.Marshal(list)
		return string(b), err
	case "ps":
		_, name, _ := strings.Cut(args[len(args)-1], "io.kubernetes.container.name=")
		u, _ := load[hostUnit](t, unitKey(v.ID, kubeletUnit))
		f, ok := load[hostFile](t, fileKey(v.ID, manifest(name)))
		if !ok || !u.Active {
			return "", nil
		}
		return f.Sum + "\n", nil // a changed manifest is another container
	case "stop":
		return "", nil
	}
	return "", fmt.Errorf("sim: crictl %s: not known here", args[0])
}

// kubeadm knows init, init phase and join, with their preconditions.
func kubeadm(t *tx, v *server, args []string, env map[string]string) error {
	switch {
	case len(args) > 2 && args[0] == "init" && args[1] == "phase":
		return kubeadmRender(t, v, args[2:], env)
	case args[0] == "init":
		for _, a := range args {
			if skip, ok := strings.CutPrefix(a, "--skip-phases="); ok {
				if slices.Contains(strings.Split(skip, ","), "control-plane") {
					return kubeadmOnce(t, v, configFlag(args))
				}
				return kubeadmInit(t, v, configFlag(args))
			}
		}
		return fmt.Errorf("sim: kubeadm init without --skip-phases: not known here")
	case args[0] == "join":
		return kubeadmJoin(t, v, configFlag(args))
	}
	return fmt.Errorf("sim: kubeadm %s: not known here", args[0])
}

// configFlag is the file that --config names; "" if it is not given.
func configFlag(args []string) string {
	const name = "--config"
	for i, a := range args {
		if a == name && i+1 < len(args) {
			return args[i+1]
		}
		if val, ok := strings.CutPrefix(a, name+"="); ok {
			return val
		}
	}
	return ""
}

// docs reads a kubeadm configuration by kind.
func docs(t *tx, v *server, path string) (map[string]map[string]any, error) {
	f, ok := load[hostFile](t, fileKey(v.ID, path))
	if !ok {
		return nil, fmt.Errorf("unable to read config from %q: no such file or directory", path)
	}
	out := map[string]map[string]any{}
	for d := range strings.SplitSeq(string(f.Content), "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(d), &o); err != nil {
			return nil, err
		}
		if kind, _ := o["kind"].(string); kind != "" {
			out[kind] = o
		}
	}
	return out, nil
}

func components() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

const (
	kubeletConfig = "/var/lib/kubelet/config.yaml"
	kubeletEnv    = "/var/lib/kubelet/kubeadm-flags.env"
	kubeletOwn    = "/var/lib/kubelet/instance-config.yaml"
	kubeletConf   = "/etc/kubernetes/kubelet.conf"
	clusterCA     = "/etc/kubernetes/pki/ca.crt"
)

// preflight fails as kubeadm's does on files that must not be there yet, unless
// the configuration says to ignore exactly them.
func preflight(t *tx, v *server, cfg map[string]any, mustNot []string, must []string) error {
	var ignored []string
	if reg, ok := cfg["nodeRegistration"].(map[string]any); ok {
		if list, ok := reg["ignorePreflightErrors"].([]any); ok {
			for _, i := range list {
				ignored = append(ignored, fmt.Sprint(i))
			}
		}
	}
	var errs []string
	for _, p := range mustNot {
		name := "FileAvailable-" + strings.ReplaceAll(p, "/", "-")
		if t.has(fileKey(v.ID, p)) && !slices.Contains(ignored, name) {
			errs = append(errs, fmt.Sprintf("[ERROR %s]: %s already exists", name, p))
		}
	}
	for _, p := range must {
		if !t.has(fileKey(v.ID, p)) {
			errs = append(errs, p+" is missing")
		}
	}
	if u, _ := load[hostUnit](t, unitKey(v.ID, "containerd.service")); !u.Active {
		errs = append(errs, "[ERROR CRI]: container runtime is not running")
	}
	if len(errs) > 0 {
		return fmt.Errorf("[preflight] Some fatal errors occurred:\n%s\npreflight checks failed", strings.Join(errs, "\n"))
	}
	return nil
}

func kubeadmInit(t *tx, v *server, config string) error {
	d, err := docs(t, v, config)
	if err != nil {
		return err
	}
	var manifests []string
	for _, c := range components() {
		manifests = append(manifests, manifest(c))
	}
	must := []string{
		clusterCA, "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/front-proxy-ca.crt",
		"/usr/local/bin/kubelet", "/usr/local/bin/kubeadm", "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/admin.conf",
	}
	if err := preflight(t, v, d["InitConfiguration"], manifests, must); err != nil {
		return err
	}
	images, _ := load[[]string](t, key("images", v.ID))
	for _, c := range components() {
		if !slices.ContainsFunc(images, func(i string) bool { return strings.Contains(i, c+":") }) {
			return fmt.Errorf("[ERROR ImagePull]: failed to pull %s", c)
		}
	}
	if c, ok := etcdOf(t, v.Labels[remote.LabelUID]); !ok || !c.quorum(t) {
		return fmt.Errorf("[ERROR ExternalEtcdVersion]: no etcd endpoint answers")
	}
	version, _ := d["ClusterConfiguration"]["kubernetesVersion"].(string)
	for _, m := range manifests {
		putFile(t, v.ID, remote.File{Path: m, Mode: 0o600, Content: render(d, m)})
	}
	kubeletFiles(t, v, d)
	if err := startUnit(t, v, kubeletUnit); err != nil {
		return err
	}
	k := kubeKey(v.Labels[remote.LabelUID])
	s, _ := load[kubeState](t, k)
	s.Version = version
	store(t, k, s)
	register(t, v, version)
	return nil
}

func render(d map[string]map[string]any, name string) []byte {
	b, _ := yaml.Marshal(map[string]any{"file": name, "cluster": d["ClusterConfiguration"]})
	return b
}

func kubeletFiles(t *tx, v *server, d map[string]map[string]any) {
	b, _ := yaml.Marshal(d["KubeletConfiguration"])
	putFile(t, v.ID, remote.File{Path: kubeletConfig, Mode: 0o644, Content: b})
	putFile(t, v.ID, remote.File{Path: kubeletOwn, Mode: 0o644, Content: []byte("kind: KubeletConfiguration\n")})
	putFile(t, v.ID, remote.File{Path: kubeletEnv, Mode: 0o644, Content: []byte("KUBELET_KUBEADM_ARGS=\"\"\n")})
}

// kubeadmRender writes what a phase would write into the directory that the
// environment names.
func kubeadmRender(t *tx, v *server, args []string, env map[string]string) error {
	dir := env["KUBEADM_INIT_DRYRUN_DIR"]
	if dir == "" || !slices.Contains(args, "--dry-run") {
		return fmt.Errorf("sim: kubeadm init phase without a dry run: not known here")
	}
	d, err := docs(t, v, configFlag(args))
	if err != nil {
		return err
	}
	base := func(p string) string { return dir + p[strings.LastIndex(p, "/"):] }
	switch args[0] {
	case "control-plane":
		for _, c := range components() {
			putFile(t, v.ID, remote.File{Path: base(manifest(c)), Mode: 0o600, Content: render(d, manifest(c))})
		}
	case "kubelet-start":
		for _, p := range []string{kubeletConfig, kubeletEnv, kubeletOwn} {
			f, ok := load[hostFile](t, fileKey(v.ID, p))
			if !ok {
				return fmt.Errorf("%s is missing", p)
			}
			store(t, fileKey(v.ID, base(p)), f)
		}
	default:
		return fmt.Errorf("sim: kubeadm init phase %s: not known here", args[0])
	}
	return nil
}

func kubeadmOnce(t *tx, v *server, config string) error {
	if _, err := docs(t, v, config); err != nil {
		return err
	}
	if !apiUp(t, v.ID) {
		return fmt.Errorf("error uploading configuration: the API server does not answer")
	}
	uid := v.Labels[remote.LabelUID]
	s, _ := load[kubeState](t, kubeKey(uid))
	s.Config, s.Tokens, s.Addons = true, true, true
	store(t, kubeKey(uid), s)
	for _, o := range [][3]string{
		{"configmaps", "kube-system", "kubeadm-config"},
		{"configmaps", "kube-system", "kubelet-config"},
		{"configmaps", "kube-public", "cluster-info"},
		{"clusterrolebindings", "", "kubeadm:node-autoapprove-bootstrap"},
		{"clusterrolebindings", "", "kubeadm:cluster-admins"},
		{"deployments", "kube-system", "coredns"},
		{"daemonsets", "kube-system", "kube-proxy"},
		{"services", "kube-system", "kube-dns"},
	} {
		store(t, objectKey(uid, o[0], o[1], o[2]), map[string]any{"metadata": map[string]any{"name": o[2], "namespace": o[1]}})
	}
	return nil
}

func kubeadmJoin(t *tx, v *server, config string) error {
	d, err := docs(t, v, config)
	if err != nil {
		return err
	}
	if err := preflight(t, v, d["JoinConfiguration"], []string{kubeletConf, clusterCA}, []string{"/usr/local/bin/kubelet", "/usr/local/bin/kubeadm"}); err != nil {
		return err
	}
	uid := v.Labels[remote.LabelUID]
	s, _ := load[kubeState](t, kubeKey(uid))
	up := false
	for _, k := range t.keys("server/") {
		m, _ := load[server](t, k)
		up = up || m.Labels[remote.LabelUID] == uid && apiUp(t, m.ID)
	}
	if !up || !s.Config || !s.Tokens {
		return fmt.Errorf("error execution phase preflight: couldn't validate the identity of the API Server")
	}
	kubeletFiles(t, v, map[string]map[string]any{"KubeletConfiguration": {}})
	putFile(t, v.ID, remote.File{Path: kubeletConf, Mode: 0o600, Content: []byte("apiVersion: v1\nkind: Config\n")})
	putFile(t, v.ID, remote.File{Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Mode: 0o600, Content: []byte("certificate\n")})
	if !t.has(fileKey(v.ID, clusterCA)) {
		putFile(t, v.ID, remote.File{Path: clusterCA, Mode: 0o644, Content: []byte("CA\n")})
	}
	if err := startUnit(t, v, kubeletUnit); err != nil {
		return err
	}
	register(t, v, s.Version)
	return nil
}
