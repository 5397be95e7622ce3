package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Table holds the rows of one kind by ID. What Get and All return is shared and
// must not be changed.
type Table[T any] struct {
	label string
	rows  map[int64]*T
}

func newTable[T any](label string) *Table[T] {
	return &Table[T]{label: label, rows: map[int64]*T{}}
}

// Get returns a row.
func (t *Table[T]) Get(id int64) (*T, bool) {
	r, ok := t.rows[id]
	return r, ok
}

// All returns all rows by ascending ID.
func (t *Table[T]) All() []*T {
	out := make([]*T, 0, len(t.rows))
	for _, id := range t.ids() {
		out = append(out, t.rows[id])
	}
	return out
}

// Len is the number of rows.
func (t *Table[T]) Len() int { return len(t.rows) }

// anyTable is a table whatever its rows are.
type anyTable interface {
	name() string
	ids() []int64
	encode(id int64) (json.RawMessage, error)
	decode(id int64, row json.RawMessage) error
}

func (t *Table[T]) name() string { return t.label }

func (t *Table[T]) ids() []int64 { return slices.Sorted(maps.Keys(t.rows)) }

func (t *Table[T]) encode(id int64) (json.RawMessage, error) {
	r, ok := t.rows[id]
	if !ok {
		return nil, nil
	}
	return json.Marshal(r)
}

func (t *Table[T]) decode(id int64, row json.RawMessage) error {
	if row == nil {
		delete(t.rows, id)
		return nil
	}
	r := new(T)
	if err := json.Unmarshal(row, r); err != nil {
		return fmt.Errorf("%s %d: %w", t.label, id, err)
	}
	t.rows[id] = r
	return nil
}

// Put sets a row.
func Put[T any](tx *Tx, t *Table[T], id int64, row *T) {
	old, had := t.rows[id]
	tx.undo = append(tx.undo, func() {
		if had {
			t.rows[id] = old
		} else {
			delete(t.rows, id)
		}
	})
	t.rows[id] = row
	tx.touch(t, id)
}

// Delete removes a row; it is no error if there is none.
func Delete[T any](tx *Tx, t *Table[T], id int64) {
	old, had := t.rows[id]
	if !had {
		return
	}
	tx.undo = append(tx.undo, func() { t.rows[id] = old })
	delete(t.rows, id)
	tx.touch(t, id)
}

// Edit changes a copy of a row and puts it in its place.
func Edit[T any](tx *Tx, t *Table[T], id int64, f func(*T)) error {
	old, ok := t.rows[id]
	if !ok {
		return fmt.Errorf("%s %d: %w", t.label, id, ErrNoRow)
	}
	b, err := json.Marshal(old)
	if err != nil {
		return err
	}
	row := new(T)
	if err := json.Unmarshal(b, row); err != nil {
		return err
	}
	f(row)
	Put(tx, t, id, row)
	return nil
}

// Each calls f for all rows, in no order, until it returns false.
func (t *Table[T]) Each(f func(*T) bool) {
	for _, r := range t.rows {
		if !f(r) {
			return
		}
	}
}
