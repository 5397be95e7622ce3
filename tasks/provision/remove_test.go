package provision

import (
	"context"
	"slices"
	"strings"
	"testing"

	"hk/remote"
	"hk/tasks"
)

func (c *fakeCloud) DeleteServer(_ context.Context, id int64) error {
	c.inv.Servers = slices.DeleteFunc(c.inv.Servers, func(s remote.Server) bool { return s.ID == id })
	return nil
}

func (v *fakeVault) DropHost(name string) error { delete(v.hosts, name); return nil }

func TestRemoveDeletesOnlyItsOwnServer(t *testing.T) {
	own := map[string]string{remote.LabelUID: "uid", remote.LabelHost: "worker-2"}
	for name, tt := range map[string]struct {
		server remote.Server
		id     int64
		says   string
	}{
		"its own":         {remote.Server{ID: 7, Labels: own}, 7, ""},
		"deleted before":  {remote.Server{}, 7, ""},
		"never made":      {remote.Server{}, 0, ""},
		"of another":      {remote.Server{ID: 7, Labels: map[string]string{remote.LabelUID: "other", remote.LabelHost: "worker-2"}}, 7, "does not carry this cluster's UID"},
		"of another host": {remote.Server{ID: 7, Labels: map[string]string{remote.LabelUID: "uid", remote.LabelHost: "worker-1"}}, 7, "is not deleted"},
		"protected":       {remote.Server{ID: 7, Labels: own, Protected: true}, 7, "protected from deletion"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			s.vault.hosts["worker-2"] = tasks.HostRecord{Host: "worker-2", ServerID: tt.id}
			if tt.server.ID != 0 {
				s.cloud.inv.Servers = []remote.Server{tt.server}
			}
			in := removeIn{Host: "worker-2", Server: tt.id}
			err := runRemove(t.Context(), in, s.env)
			_, kept := s.vault.hosts["worker-2"]
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) || !kept || len(s.cloud.inv.Servers) != 1 {
					t.Errorf("error %v, entry kept %t, servers %v", err, kept, s.cloud.inv.Servers)
				}
				return
			}
			if _, verr := verifyRemove(t.Context(), in, s.env); err != nil || verr != nil || kept || len(s.cloud.inv.Servers) > 0 {
				t.Errorf("errors %v, %v; entry kept %t, servers %v", err, verr, kept, s.cloud.inv.Servers)
			}
		})
	}
}
