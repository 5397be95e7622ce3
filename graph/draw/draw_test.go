package draw_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hk/graph"
	"hk/graph/draw"
)

var update = flag.Bool("update", false, "write the golden files anew")

// cluster is a small one with every sort of edge.
func cluster(t testing.TB, masters, workers int) *graph.Graph {
	t.Helper()
	kg, err := graph.New([]graph.Kind{
		{Phase: "provision-nodes", Part: "network", Recipe: 1},
		{Phase: "provision-nodes", Part: "server", Scope: graph.OnHost, Recipe: 1, Needs: []graph.Need{{Kind: "provision-nodes.network", Via: graph.ToCluster}}},
		{Phase: "network-setup", Part: "keys", Scope: graph.OnHost, Recipe: 1, Needs: []graph.Need{{Kind: "provision-nodes.server"}}},
		{Phase: "network-setup", Part: "peers", Recipe: 1, Needs: []graph.Need{{Kind: "network-setup.keys", Via: graph.FromAll, Quorum: graph.Any}}},
		{Phase: "network-setup", Part: "mesh", Scope: graph.OnHost, Recipe: 1, Needs: []graph.Need{{Kind: "network-setup.keys"}, {Kind: "network-setup.peers", Via: graph.ToCluster}}},
		{Phase: "etcd-setup", Part: "certs", Scope: graph.OnHost, Roles: []string{"master"}, Recipe: 1, Needs: []graph.Need{{Kind: "provision-nodes.server"}}},
		{Phase: "etcd-setup", Part: "service", Scope: graph.OnHost, Roles: []string{"master"}, Recipe: 1, Needs: []graph.Need{
			{Kind: "etcd-setup.certs"}, {Kind: "network-setup.mesh"}, {Kind: "network-setup.mesh", Via: graph.ToRole, Role: "master", Quorum: graph.Majority},
		}},
		{Phase: "etcd-setup", Part: "health", Recipe: 1, Needs: []graph.Need{{Kind: "etcd-setup.service", Via: graph.FromAll, Quorum: graph.Majority}}},
		{Phase: "install-workers", Part: "join", Scope: graph.OnHost, Roles: []string{"worker"}, Recipe: 1, Needs: []graph.Need{
			{Kind: "etcd-setup.health", Via: graph.ToCluster}, {Kind: "network-setup.mesh"}, {Kind: "network-setup.peers", Via: graph.ToCluster, After: true},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var hosts []graph.Host
	for i := range masters {
		hosts = append(hosts, graph.Host{Name: fmt.Sprintf("master-%d", i+1), Roles: []string{"master"}})
	}
	for i := range workers {
		hosts = append(hosts, graph.Host{Name: fmt.Sprintf("worker-%d", i+1), Roles: []string{"worker"}})
	}
	g, err := kg.Expand(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// states gives some tasks a state and a reason, one of them nasty.
func states(g *graph.Graph) draw.Options {
	state := func(u graph.Task) string {
		switch k := g.Kind(u); {
		case k.Part == "service" && g.HostName(u) == "master-2":
			return "failed"
		case k.Part == "health" || k.Phase == "install-workers":
			return "blocked"
		case k.Part == "certs":
			return "ran"
		}
		return "fresh"
	}
	return draw.Options{Title: `demo "one" <1>`, State: state, Reason: func(u graph.Task) string {
		switch state(u) {
		case "failed":
			return `config:x "a\b" -> <c> & d`
		case "ran":
			return "recipe 1 -> 2"
		}
		return ""
	}}
}

func render(t testing.TB, f draw.Format, g *graph.Graph, o draw.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := draw.Write(&b, f, g, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	small, large := cluster(t, 3, 2), cluster(t, 3, 40)
	part := small.NewSet()
	u, _ := small.Lookup("etcd-setup.service/master-1")
	part.Add(u)
	for name, c := range map[string]struct {
		g *graph.Graph
		o draw.Options
	}{
		"small": {small, states(small)}, "large": {large, states(large)},
		"part": {small, draw.Options{Title: "demo", Show: small.Up(part, -1)}},
	} {
		for _, f := range draw.Formats() {
			t.Run(name+"."+string(f), func(t *testing.T) {
				got := render(t, f, c.g, c.o)
				for range 3 {
					if !bytes.Equal(got, render(t, f, c.g, c.o)) {
						t.Fatal("two drawings of the same graph differ")
					}
				}
				file := filepath.Join("testdata", name+"."+string(f))
				if *update {
					if err := os.WriteFile(file, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), string(got)); diff != "" {
					t.Errorf("%s (-want +got), -update writes it anew:\n%s", file, diff)
				}
			})
		}
	}
}

func TestJSONIsComplete(t *testing.T) {
	g := cluster(t, 3, 2)
	var doc struct {
		V     int
		Tasks []struct {
			Task, Phase, Part, Host string
			State, Reason           *string
			Needs                   []struct{ Task, Kind string }
		}
	}
	if err := json.Unmarshal(render(t, draw.JSON, g, draw.Options{}), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.V != 1 || len(doc.Tasks) != g.Len() {
		t.Fatalf("version %d, %d tasks", doc.V, len(doc.Tasks))
	}
	for _, x := range doc.Tasks {
		u, ok := g.Lookup(x.Task)
		if !ok || g.HostName(u) != x.Host || g.Kind(u).ID() != x.Phase+"."+x.Part || x.State != nil || x.Reason != nil {
			t.Errorf("%+v", x)
		}
		seen := map[string]bool{}
		for _, n := range x.Needs {
			if seen[n.Task] {
				t.Errorf("%s needs %s twice", x.Task, n.Task)
			}
			seen[n.Task] = true
		}
		for v := range g.Needs(u) {
			if !seen[g.Name(v)] {
				t.Errorf("%s does not need %s", x.Task, g.Name(v))
			}
		}
	}
}

// An SVG is well-formed, its boxes lie inside it and never on one another.
func TestSVGLayout(t *testing.T) {
	for _, size := range [][2]int{{1, 0}, {3, 2}, {3, 5}, {3, 500}} {
		g := cluster(t, size[0], size[1])
		svg := render(t, draw.SVG, g, states(g))
		type rect struct{ x, y, w, h int }
		var boxes []rect
		var width, height int
		dec := xml.NewDecoder(bytes.NewReader(svg))
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v: %v", size, err)
			}
			e, ok := tok.(xml.StartElement)
			if !ok {
				continue
			}
			attr := map[string]string{}
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
			}
			num := func(s string) (n int) { _, _ = fmt.Sscan(attr[s], &n); return n }
			switch {
			case e.Name.Local == "svg":
				width, height = num("width"), num("height")
			case e.Name.Local == "rect" && attr["height"] == "24":
				boxes = append(boxes, rect{num("x"), num("y"), num("width"), num("height")})
			}
		}
		for i, a := range boxes {
			if a.x < 0 || a.y < 0 || a.x+a.w > width || a.y+a.h > height {
				t.Errorf("%v: %+v is outside of %d × %d", size, a, width, height)
			}
			for _, b := range boxes[:i] {
				if a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h {
					t.Errorf("%v: %+v lies on %+v", size, a, b)
				}
			}
		}
		if size[1] <= 5 && len(boxes) != g.Len() {
			t.Errorf("%v: %d boxes for %d tasks", size, len(boxes), g.Len())
		}
		if size[1] == 500 && len(boxes) > 60 {
			t.Errorf("%v: %d boxes", size, len(boxes))
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	err := draw.Write(io.Discard, "svgg", cluster(t, 1, 0), draw.Options{})
	if err == nil || err.Error() != `unknown graph format "svgg": did you mean svg?` {
		t.Errorf("%v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestWriteError(t *testing.T) {
	for _, f := range draw.Formats() {
		err := draw.Write(broken{}, f, cluster(t, 3, 2), draw.Options{})
		if err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("%s: %v", f, err)
		}
	}
}
