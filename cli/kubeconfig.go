package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"sigs.k8s.io/yaml"
)

// A kubeconfig is three lists of named entries and a name. What hk does not
// know of is kept as it is.

type kubeconfig map[string]any

func parseKubeconfig(data []byte) (kubeconfig, error) {
	k := kubeconfig{}
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, err
	}
	if k == nil {
		k = kubeconfig{}
	}
	if kind, ok := k["kind"]; ok && kind != "Config" {
		return nil, fmt.Errorf("it is a %v, not a kubeconfig", kind)
	}
	return k, nil
}

// rename gives the only cluster, user and context of an admin.conf one name.
func (k kubeconfig) rename(name string) error {
	for _, list := range []string{"clusters", "users", "contexts"} {
		items, ok := k[list].([]any)
		if !ok || len(items) != 1 {
			return fmt.Errorf("it has not one entry in %s", list)
		}
		item, ok := items[0].(map[string]any)
		if !ok {
			return fmt.Errorf("its %s cannot be read", list)
		}
		item["name"] = name
		if list == "contexts" {
			item["context"] = map[string]any{"cluster": name, "user": name}
		}
	}
	k["current-context"] = name
	return nil
}

// entry finds a named entry of a list.
func (k kubeconfig) entry(list, name string) map[string]any {
	items, _ := k[list].([]any) // another type has no entries
	for _, i := range items {
		if m, ok := i.(map[string]any); ok && m["name"] == name {
			return m
		}
	}
	return nil
}

// put adds the entries of another kubeconfig, replacing those of the same name.
func (k kubeconfig) put(from kubeconfig) {
	for _, list := range []string{"clusters", "users", "contexts"} {
		items, _ := k[list].([]any)
		adds, _ := from[list].([]any)
		for _, add := range adds {
			name := add.(map[string]any)["name"]
			items = slices.DeleteFunc(items, func(i any) bool {
				m, ok := i.(map[string]any)
				return ok && m["name"] == name
			})
			items = append(items, add)
		}
		k[list] = items
	}
	k["apiVersion"], k["kind"] = "v1", "Config"
	k["current-context"] = from["current-context"]
}

// drop removes the entries of a name and reports whether there were any.
func (k kubeconfig) drop(name string) bool {
	found := false
	for _, list := range []string{"clusters", "users", "contexts"} {
		items, _ := k[list].([]any)
		kept := slices.DeleteFunc(slices.Clone(items), func(i any) bool {
			m, ok := i.(map[string]any)
			return ok && m["name"] == name
		})
		if len(kept) != len(items) {
			found = true
			k[list] = kept
		}
	}
	if k["current-context"] == name {
		k["current-context"] = ""
	}
	return found
}

// authority is the CA of a cluster entry, as it is written.
func (k kubeconfig) authority(name string) any {
	c, _ := k.entry("clusters", name)["cluster"].(map[string]any) // nil has none
	return c["certificate-authority-data"]
}

func (k kubeconfig) encode() ([]byte, error) { return yaml.Marshal(map[string]any(k)) }

// kubeconfigFiles are the files kubectl would read, the one it writes first.
func (a *app) kubeconfigFiles() []string {
	var out []string
	for _, f := range filepath.SplitList(a.getenv("KUBECONFIG")) {
		if f != "" {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		out = []string{filepath.Join(a.getenv("HOME"), ".kube", "config")}
	}
	return out
}

// mergeKubeconfig puts a cluster's entries into a file, 0600, and keeps what
// was there beside it as FILE.hk-backup.
func mergeKubeconfig(file string, own kubeconfig) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k, perr := parseKubeconfig(old)
	if perr != nil {
		return fmt.Errorf("%s: %w", file, perr)
	}
	k.put(own)
	return replaceKubeconfig(file, old, k)
}

func replaceKubeconfig(file string, old []byte, k kubeconfig) error {
	text, err := k.encode()
	if err != nil {
		return err
	}
	if bytes.Equal(text, old) {
		return os.Chmod(file, 0o600)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if old != nil {
		if err := writePrivate(file+".hk-backup", old); err != nil {
			return fmt.Errorf("keeping a backup: %w", err)
		}
	}
	return writePrivate(file, text)
}

// writePrivate replaces a file by one of mode 0600, whatever mode it had.
func writePrivate(file string, data []byte) error {
	p, err := renameio.NewPendingFile(file, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = p.Cleanup() }() // does nothing once replaced
	if _, err := p.Write(data); err != nil {
		return err
	}
	return p.CloseAtomicallyReplace()
}

// dropContext removes a destroyed cluster's entries from the kubeconfig files.
// An entry of the same name with another CA is another cluster's and stays.
func (a *app) dropContext(name string, own kubeconfig) []error {
	var errs []error
	for _, file := range a.kubeconfigFiles() {
		old, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var k kubeconfig
		if err == nil {
			k, err = parseKubeconfig(old)
		}
		if err == nil && k.entry("clusters", name) != nil && k.authority(name) == own.authority(name) && k.drop(name) {
			err = replaceKubeconfig(file, old, k)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	return errs
}
