package api

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"hk/remote/lab/state"
)

// kind is what the API's named things have in common: list, get, update.
type kind[T any] struct {
	path, one, many string // "servers", "server", "servers"
	title           string // for messages
	table           func(*state.Tables) *state.Table[T]
	meta            func(*T) *state.Meta
	view            func(*view, *T) any
	checkName       func(string) error
	extra           func(q map[string][]string, r *T) bool // further list filter
	sorts           []string
	renamed         func(id int64) // after a change of name or labels
	// prepare gets what views need beside the state; it may take a moment.
	prepare func(ctx context.Context, project string) func(*view)
}

func registerKind[T any](s *Server, k kind[T]) {
	s.handle("GET /"+k.path, func(r *request) (int, any, error) { return listKind(s, k, r) })
	s.handle("GET /"+k.path+"/{id}", func(r *request) (int, any, error) {
		id, err := r.id(k.title)
		if err != nil {
			return 0, nil, err
		}
		var out any
		ready := k.prepared(r)
		s.Store.View(func(t *state.Tables) {
			if row, err := getRow(t, k, r.project, id); err == nil {
				v := s.newView(t)
				ready(v)
				out = map[string]any{k.one: k.view(v, row)}
			}
		})
		if out == nil {
			return 0, nil, notFound(k.title, id)
		}
		return http.StatusOK, out, nil
	})
	s.handle("PUT /"+k.path+"/{id}", func(r *request) (int, any, error) { return updateKind(s, k, r) })
}

func (k kind[T]) prepared(r *request) func(*view) {
	if k.prepare == nil {
		return func(*view) {}
	}
	return k.prepare(r.Context(), r.project)
}

// getRow finds a row of the request's project.
func getRow[T any](t *state.Tables, k kind[T], project string, id int64) (*T, error) {
	row, ok := k.table(t).Get(id)
	if !ok || k.meta(row).Project != project {
		return nil, notFound(k.title, id)
	}
	return row, nil
}

func listKind[T any](s *Server, k kind[T], r *request) (int, any, error) {
	q := r.URL.Query()
	var out any
	var err error
	ready := k.prepared(r)
	s.Store.View(func(t *state.Tables) {
		rows := k.table(t).All()
		mine := rows[:0:0]
		for _, row := range rows {
			if k.meta(row).Project == r.project && (k.extra == nil || k.extra(q, row)) {
				mine = append(mine, row)
			}
		}
		if mine, err = filter(q, mine, k.meta); err != nil {
			return
		}
		err = sortRows(q, mine, func(row *T) sortKeys {
			m := k.meta(row)
			return sortKeys{id: m.ID, name: m.Name, created: m.Created}
		}, k.sorts...)
		if err != nil {
			return
		}
		var meta pageMeta
		if mine, meta, err = paginate(q, mine); err != nil {
			return
		}
		v := s.newView(t)
		ready(v)
		out = list(k.many, meta, mine, func(row *T) any { return k.view(v, row) })
	})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, out, nil
}

func updateKind[T any](s *Server, k kind[T], r *request) (int, any, error) {
	id, err := r.id(k.title)
	if err != nil {
		return 0, nil, err
	}
	var req struct {
		Name        *string            `json:"name"`
		Labels      *map[string]string `json:"labels"`
		Expose      *bool              `json:"expose_routes_to_vswitch"`
		Description *string            `json:"description"`
	}
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	var out any
	err = s.Store.Update(func(tx *state.Tx) error {
		if _, err := getRow(tx.Tables, k, r.project, id); err != nil {
			return err
		}
		if req.Name != nil && *req.Name != "" {
			if err := freeName(tx.Tables, k, r.project, *req.Name, id); err != nil {
				return err
			}
		}
		if req.Labels != nil {
			if err := checkLabels(*req.Labels); err != nil {
				return err
			}
		}
		err := state.Edit(tx, k.table(tx.Tables), id, func(row *T) {
			m := k.meta(row)
			if req.Name != nil && *req.Name != "" {
				m.Name = *req.Name
			}
			if req.Labels != nil {
				m.Labels = *req.Labels
			}
			if n, ok := any(row).(*state.Network); ok && req.Expose != nil {
				n.ExposeToSwitch = *req.Expose
			}
		})
		if err != nil {
			return err
		}
		row, _ := k.table(tx.Tables).Get(id)
		out = map[string]any{k.one: k.view(s.newView(tx.Tables), row)}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	if k.renamed != nil {
		k.renamed(id)
	}
	return http.StatusOK, out, nil
}

// freeName judges a name for the thing self (0: a new one).
func freeName[T any](t *state.Tables, k kind[T], project, name string, self int64) error {
	if err := k.checkName(name); err != nil {
		return err
	}
	taken := false
	k.table(t).Each(func(row *T) bool {
		m := k.meta(row)
		// Names of servers are host names: case does not tell them apart.
		taken = m.Project == project && m.ID != self && strings.EqualFold(m.Name, name)
		return !taken
	})
	if taken {
		return unique(k.title, "name")
	}
	return nil
}

// hostnameRE is what the real API takes as a server's name (RFC 1123).
var hostnameRE = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func checkHostname(name string) error {
	if len(name) > 253 || !hostnameRE.MatchString(name) {
		return invalid("name", "name is not a valid hostname")
	}
	return nil
}

// checkAnyName is what all other things take.
func checkAnyName(name string) error {
	if strings.TrimSpace(name) == "" {
		return invalid("name", "must not be empty")
	}
	if len(name) > 128 || strings.ContainsAny(name, "\x00\n\r\t") {
		return invalid("name", "is too long or has characters that are not allowed")
	}
	return nil
}
