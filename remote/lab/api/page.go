package api

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sizes of a page, as on the real API.
const (
	defaultPerPage = 25
	maxPerPage     = 50
)

// pageMeta is the meta block; unlike schema.MetaPagination it can say null.
type pageMeta struct {
	Pagination struct {
		Page         int  `json:"page"`
		PerPage      int  `json:"per_page"`
		PreviousPage *int `json:"previous_page"`
		NextPage     *int `json:"next_page"`
		LastPage     *int `json:"last_page"`
		TotalEntries *int `json:"total_entries"`
	} `json:"pagination"`
}

// paginate cuts out the page that is asked for.
func paginate[T any](q url.Values, all []T) ([]T, pageMeta, error) {
	var m pageMeta
	page, err := positive(q, "page", 1)
	if err != nil {
		return nil, m, err
	}
	per, err := positive(q, "per_page", defaultPerPage)
	if err != nil {
		return nil, m, err
	}
	if per > maxPerPage {
		return nil, m, invalid("per_page", "must be less or equal to %d", maxPerPage)
	}
	total := len(all)
	last := max(1, (total+per-1)/per)
	p := &m.Pagination
	p.Page, p.PerPage, p.TotalEntries, p.LastPage = page, per, &total, &last
	if page > 1 {
		prev := page - 1
		p.PreviousPage = &prev
	}
	if page < last {
		next := page + 1
		p.NextPage = &next
	}
	// page is bounded before it is multiplied: a huge one must not wrap around.
	if page > last {
		return []T{}, m, nil
	}
	from := (page - 1) * per
	return all[from:min(from+per, total)], m, nil
}

func positive(q url.Values, key string, otherwise int) (int, error) {
	v := q.Get(key)
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		return 0, invalid(key, "must be a positive number")
	}
	return n, nil
}

// sortKeys are what a row can be sorted by.
type sortKeys struct {
	id      int64
	name    string
	created time.Time
	other   map[string]string
}

// sortRows sorts by the sort parameters (id, name, created, each with :asc or
// :desc) that allowed names.
func sortRows[T any](q url.Values, rows []T, keys func(T) sortKeys, allowed ...string) error {
	type by struct {
		field string
		desc  bool
	}
	var order []by
	for _, s := range q["sort"] {
		field, dir, _ := strings.Cut(s, ":")
		if !slices.Contains(allowed, field) || dir != "" && dir != "asc" && dir != "desc" {
			return invalid("sort", "'%s' is not a valid sort", s)
		}
		order = append(order, by{field, dir == "desc"})
	}
	if len(order) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(x, y T) int {
		a, b := keys(x), keys(y)
		for _, o := range order {
			var c int
			switch o.field {
			case "id":
				c = cmp.Compare(a.id, b.id)
			case "name":
				c = cmp.Compare(a.name, b.name)
			case "created", "started":
				c = a.created.Compare(b.created)
			default:
				c = cmp.Compare(a.other[o.field], b.other[o.field])
			}
			if o.desc {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	return nil
}
