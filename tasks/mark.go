package tasks

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hk/remote"
)

// MarkedAll is what Labelled says when every server carries the mark.
const MarkedAll = "on every server"

// MarkServers writes a mark that must never be forgotten (born, etcd-born)
// where a lost laptop cannot take it along: as a label on the servers of the
// hosts, then into the hosts' journals, then into the credential unit, in this
// order. Any one of them that can be read later counts. A host that does not
// answer keeps its label alone.
func MarkServers(ctx context.Context, e *Env, hosts []string, label, name string) error {
	for _, h := range hosts {
		rec, ok := e.Vault.Host(h)
		if !ok || rec.ServerID == 0 {
			return fmt.Errorf("marking the cluster as %s: no server of host %s is known", name, h)
		}
		// Asked anew, not taken from the inventory: labels are written whole, and
		// another mark may have been set since.
		s, err := e.Cloud.Server(ctx, rec.ServerID)
		if err != nil {
			return fmt.Errorf("marking the cluster as %s: %w", name, err)
		}
		if s.Labels[label] != "" {
			continue
		}
		labels := maps.Clone(s.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[label] = "1"
		if err := e.Cloud.LabelServer(ctx, s.ID, labels); err != nil {
			return fmt.Errorf("marking the cluster as %s: %w", name, err)
		}
	}
	for _, h := range hosts {
		host, err := e.HostOf(h)
		if err == nil {
			err = host.Journal(ctx, map[string][]byte{name: []byte("{}\n")})
		}
		if err != nil {
			e.Log("the mark " + name + " is not in the journal of " + h + ": " + err.Error())
		}
	}
	return e.Vault.Put(name, nil)
}

// Labelled says which of the hosts' servers lack a label; for Watch. A server
// that is not there is another task's business.
func Labelled(inv *remote.Inventory, uid string, hosts []string, label string) string {
	var missing []string
	for _, h := range hosts {
		if s := serverOf(inv, uid, h); s != nil && s.Labels[label] == "" {
			missing = append(missing, h)
		}
	}
	if len(missing) == 0 {
		return MarkedAll
	}
	return fmt.Sprintf("missing on %v", missing)
}

func serverOf(inv *remote.Inventory, uid, host string) *remote.Server {
	if inv == nil {
		return nil
	}
	i := slices.IndexFunc(inv.Servers, func(s remote.Server) bool {
		return s.Labels[remote.LabelUID] == uid && s.Labels[remote.LabelHost] == host
	})
	if i < 0 {
		return nil
	}
	return &inv.Servers[i]
}
