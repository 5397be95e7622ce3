package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// listing is an answer with a page of things.
type listing struct {
	key   string
	items any
	meta  pageMeta
}

func list[R, V any](key string, meta pageMeta, rows []R, view func(R) V) listing {
	items := make([]V, 0, len(rows))
	for _, r := range rows {
		items = append(items, view(r))
	}
	return listing{key: key, items: items, meta: meta}
}

// MarshalJSON implements json.Marshaler.
func (l listing) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{l.key: l.items, "meta": l.meta})
}

// linker has a Link header to give.
type linker interface{ link(r *http.Request) string }

func (l listing) link(r *http.Request) string {
	var parts []string
	add := func(rel string, page *int) {
		if page == nil {
			return
		}
		u := *r.URL
		q := u.Query()
		q.Set("page", fmt.Sprint(*page))
		u.RawQuery = q.Encode()
		parts = append(parts, fmt.Sprintf("<http://%s%s>; rel=%q", r.Host, u.RequestURI(), rel))
	}
	p := l.meta.Pagination
	add("prev", p.PreviousPage)
	add("next", p.NextPage)
	add("last", p.LastPage)
	return strings.Join(parts, ", ")
}
