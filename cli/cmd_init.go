package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	ucli "github.com/urfave/cli/v2"
	"golang.org/x/crypto/ssh"
)

// configText is what `hk init` writes: every field a newcomer asks about, with
// its meaning; what is left out has a default (hk config schema).
const configText = `# A Kubernetes cluster for hk. Build it with:  hk build %[1]s
name: %[1]s
cloud: %[2]s                 # hetzner | lab (real machines on this computer) | sim (in memory)
location: fsn1
image: %[3]s
ssh: {key: %[4]s}
kubernetes: {version: v1.37.2}

# The address plan cannot be changed once the cluster exists.
network:
  mesh: 10.100.0.0/16       # addresses of the hosts in the WireGuard mesh
  private: 10.99.0.0/16     # the cloud's private network
  pods: 10.128.0.0/10
  services: 10.200.0.0/16
  mesh_port: 51820

etcd: {count: 0}            # 0: on the masters; 3 or 5: on hosts of its own
masters: {count: %[5]d, type: cx23}
workers:
  - {pool: worker, count: %[6]d, type: cx23, labels: {}, taints: []}

endpoint: {external: %[7]s} # load-balancer | master | dns NAME: the address for people
cni: mesh                   # mesh | none
addons: []
`

func (a *app) cmdInit() *ucli.Command {
	return &ucli.Command{
		Name: "init", Category: catBuild, Usage: "write a config and an SSH key for a new cluster", ArgsUsage: "NAME",
		Description: "Writes NAME.yaml and, unless --ssh-key names one, NAME.key (0600) beside it. Nothing that exists\n" +
			"is overwritten, and nothing is made in any cloud.",
		UsageText: "hk init demo\nhk init prod --cloud hetzner --masters 3 --workers 5\nhk init tiny --masters 1 --workers 0",
		Flags: []ucli.Flag{
			stringFlag("cloud", "lab", "`WORLD` of the cluster: lab, hetzner or sim"),
			&ucli.IntFlag{Name: "masters", Value: 3, Usage: "`NUMBER` of masters"},
			&ucli.IntFlag{Name: "workers", Value: 2, Usage: "`NUMBER` of workers"},
			stringFlag("image", "", "`IMAGE` of the hosts (default: debian-12; lab: hk-snapshot)"),
			stringFlag("ssh-key", "", "existing private key `FILE` to use"),
			configFlag(), outputFlag(),
		},
		Action: a.runInit,
	}
}

func (a *app) runInit(c *ucli.Context) error {
	args, err := a.wantArgs(1, 1)
	if err != nil {
		return err
	}
	f, err := outputForm(c)
	if err != nil {
		return err
	}
	name, err := clusterArg(args[0])
	if err != nil {
		return err
	}
	cloud := c.String("cloud")
	image := c.String("image")
	switch cloud {
	case "lab":
		if image == "" {
			image = "hk-snapshot"
		}
	case "hetzner", "sim":
		if image == "" {
			image = "debian-12"
		}
	default:
		return usagef("clouds are hetzner, lab and sim", "cloud %q", cloud)
	}
	masters, workers := c.Int("masters"), c.Int("workers")
	if masters < 1 || workers < 0 {
		return usagef("at least one master is needed", "%d masters and %d workers", masters, workers)
	}
	file := c.String("config")
	if file == "" {
		file = name + ".yaml"
	}
	return a.writeInit(f, initFiles{name: name, cloud: cloud, image: image, masters: masters, workers: workers, config: file, key: c.String("ssh-key")})
}

type initFiles struct {
	name, cloud, image, config, key string
	masters, workers                int
}

func (a *app) writeInit(f form, n initFiles) error {
	if _, err := os.Lstat(n.config); err == nil {
		return &exitError{
			code: ExitConfig, class: classConfig, err: fmt.Errorf("%s exists", n.config),
			hint: "edit it, remove it, or name another with --config FILE",
		}
	}
	created := []string{}
	if n.key == "" {
		n.key = n.name + ".key"
		made, err := makeKey(n.key, n.name)
		if err != nil {
			return configError(n.key, err)
		}
		if made {
			created = append(created, n.key)
		}
	} else if _, err := os.Stat(n.key); err != nil {
		return configError(n.key, err)
	}
	external := "load-balancer"
	if n.masters < 3 {
		external = "master"
	}
	text := fmt.Sprintf(configText, n.name, n.cloud, n.image, n.key, n.masters, n.workers, external)
	if err := writeNew(n.config, []byte(text), 0o644); err != nil {
		return configError(n.config, err)
	}
	created = append(created, n.config)
	if f == asJSON {
		return a.printJSON(map[string]any{"v": 1, "cluster": n.name, "cloud": n.cloud, "config": n.config, "ssh_key": n.key, "created": created})
	}
	for _, c := range created {
		fmt.Fprintf(a.Out, "wrote %s\n", c)
	}
	fmt.Fprintf(a.Out, "next: hk build %s\n", n.name)
	if n.cloud == "lab" && (runtime.GOOS != "linux" || os.Geteuid() != 0) {
		fmt.Fprintln(a.Err, "note: the lab needs Linux and root; without them `cloud: sim` builds the same cluster in memory")
	}
	return nil
}

// makeKey makes an Ed25519 key unless the file exists.
func makeKey(file, comment string) (made bool, err error) {
	if _, err := os.Lstat(file); err == nil {
		return false, nil
	}
	_, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return false, err
	}
	block, err := ssh.MarshalPrivateKey(priv, "hk-"+comment)
	if err != nil {
		return false, err
	}
	return true, writeNew(file, pem.EncodeToMemory(block), 0o600)
}

func writeNew(file string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func configError(file string, err error) error {
	return &exitError{code: ExitConfig, class: classConfig, err: fmt.Errorf("%s: %w", file, err)}
}
