package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	ucli "github.com/urfave/cli/v2"

	"hk/tasks"
)

func (a *app) cmdSSH() *ucli.Command {
	return &ucli.Command{
		Name: "ssh", Category: catOperate, Usage: "a shell or a command on a host", ArgsUsage: "CLUSTER/HOST [-- CMD…]",
		Description: "Runs this computer's ssh with the cluster's own known_hosts and key. Several words after -- are\n" +
			"passed to the host as they are; a single word is a line for the host's shell.",
		UsageText: "hk ssh demo/master-1\nhk ssh demo/worker-1 -- journalctl -u kubelet -n 50\nhk ssh demo/master-1 -- 'ls /etc | wc -l'",
		Flags:     []ucli.Flag{configFlag(), tokenDirFlag(), verboseFlag()},
		Action:    a.runSSH,
	}
}

func (a *app) runSSH(c *ucli.Context) error {
	args, err := a.wantArgs(1, 1)
	if err != nil {
		return err
	}
	t, err := parseTarget(args[0])
	if err != nil {
		return err
	}
	if t.Host == "" || t.Phase != "" {
		return usagef("hk ssh CLUSTER/HOST, such as "+t.Cluster+"/master-1", "%q does not name one host", args[0])
	}
	s, err := a.openSite(c, t.Cluster, siteOptions{})
	if err != nil {
		return err
	}
	argv, err := s.sshArgv(t.Host, a.cmd.rest)
	if err == nil && s.cfg.Cloud == "sim" {
		err = usagef("hk init NAME --cloud lab makes a cluster of real machines on this computer", "%s is simulated: its hosts have no shell", t.Cluster)
	}
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return &exitError{code: ExitFailed, class: classSSH, err: fmt.Errorf("looking for ssh: %w", err), hint: "install an OpenSSH client"}
	}
	// The terminal and the exit code are ssh's from here on.
	return fmt.Errorf("starting ssh: %w", syscall.Exec(path, argv, os.Environ()))
}

// sshArgv is the command line of the system's ssh.
func (s *site) sshArgv(host string, cmd []string) ([]string, error) {
	u, err := s.unit()
	if err != nil {
		return nil, err
	}
	r, ok := u.Host(host)
	if !ok || r.Addr == "" {
		names := []string{}
		for n := range u.Hosts() {
			names = append(names, n)
		}
		hint := s.name + " has no hosts yet"
		if len(names) > 0 {
			hint = "hosts are " + strings.Join(sorted(names), ", ")
		}
		if c := closest(host, names); c != "" {
			hint = "did you mean " + s.name + "/" + c + "?"
		}
		return nil, usagef(hint, "%s has no host %q", s.name, host)
	}
	if !r.Seen {
		return nil, &exitError{code: ExitSSH, class: classSSH, err: fmt.Errorf("%s was not contacted yet, its key is not known", host), hint: "hk build " + s.name + ":provision-nodes/" + host}
	}
	argv := []string{
		"ssh", "-p", fmt.Sprint(s.cfg.SSH.Port),
		"-o", "UserKnownHostsFile=" + sshQuote(filepath.Join(s.units.Place(s.name), "known_hosts")),
		"-o", "GlobalKnownHostsFile=/dev/null",
		"-o", "StrictHostKeyChecking=yes",
		"-o", "HostKeyAlias=" + s.name + "-" + host,
		"-o", "UpdateHostKeys=no",
		"-o", "ConnectTimeout=15",
	}
	if s.world.signer != nil {
		argv = append(argv, "-i", s.cfg.SSH.Key, "-o", "IdentitiesOnly=yes")
	}
	if b := s.cfg.SSH.Bastion; b.Host != "" {
		argv = append(argv, "-J", fmt.Sprintf("%s@%s:%d", b.User, b.Host, b.Port))
	}
	argv = append(argv, destination(s, r))
	if len(cmd) == 0 {
		return argv, nil
	}
	return append(argv, "--", remoteLine(cmd)), nil
}

func destination(s *site, r tasks.HostRecord) string { return s.cfg.SSH.User + "@" + r.Addr }

// remoteLine is the line ssh hands to the host's shell: ssh joins words with
// blanks, so several words are quoted to arrive as they are.
func remoteLine(cmd []string) string {
	if len(cmd) == 1 {
		return cmd[0]
	}
	out := make([]string, len(cmd))
	for i, w := range cmd {
		out[i] = shellQuote(w)
	}
	return strings.Join(out, " ")
}

func shellQuote(w string) string {
	if w != "" && strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,") == "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// sshQuote protects blanks in a path from ssh's own splitting of option values.
func sshQuote(path string) string {
	if strings.ContainsAny(path, " \t") {
		return `"` + path + `"`
	}
	return path
}
