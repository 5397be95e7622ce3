package state

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
)

// ErrNoRow says that there is no row with that ID.
var ErrNoRow = errors.New("no such row")

// Store holds all rows. Use View to read and Update to change.
type Store struct {
	mu     sync.RWMutex
	tables Tables
	path   string // "" keeps it in memory only
	log    *os.File
	size   int64 // of the log now
	folded int64 // of the log when it was last folded
}

// change is one line of the log.
type change struct {
	Next int64         `json:"next"` // the next free ID
	Rows []changedRows `json:"rows"`
}

type changedRows struct {
	Table string          `json:"t"`
	ID    int64           `json:"id"`
	Row   json.RawMessage `json:"v,omitempty"` // absent: deleted
}

// Open opens or makes the store at path; "" makes one in memory.
func Open(path string) (*Store, error) {
	s := &Store{tables: newTables(), path: path}
	if path == "" {
		return s, nil
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("opening state: %w", err)
	default:
		err := s.replay(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("reading state %s: %w", path, err)
		}
	}
	return s, s.fold()
}

// replay applies every whole line; a torn last line is a change that was never
// acknowledged.
func (s *Store) replay(r io.Reader) error {
	br := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := br.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		want, perr := strconv.ParseUint(sum, 16, 32)
		if !ok || perr != nil || crc32.ChecksumIEEE([]byte(text)) != uint32(want) {
			if _, err := br.Peek(1); errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("line %d is damaged", n)
		}
		var c change
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		for _, row := range c.Rows {
			if err := s.tables.apply(row); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		s.tables.Next = c.Next
	}
}

// fold rewrites the log as one change that says all, and opens it for appending.
func (s *Store) fold() error {
	all := change{Next: s.tables.Next}
	for _, t := range s.tables.all() {
		for _, id := range t.ids() {
			b, err := t.encode(id)
			if err != nil {
				return err
			}
			all.Rows = append(all.Rows, changedRows{Table: t.name(), ID: id, Row: b})
		}
	}
	line, err := encode(all)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(s.path, line, 0o600); err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	if s.log != nil {
		_ = s.log.Close()
	}
	s.log, err = os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0o600)
	s.size, s.folded = int64(len(line)), int64(len(line))
	return err
}

func encode(c change) ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("bug: encoding state: %w", err)
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text), nil
}

// Close closes the log.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return nil
	}
	return s.log.Close()
}

// View runs f with the rows as they are; f must not keep the tables.
func (s *Store) View(f func(*Tables)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f(&s.tables)
}

// Update runs f and keeps what it changed; if f fails nothing has changed.
func (s *Store) Update(f func(*Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &Tx{Tables: &s.tables, next: s.tables.Next}
	err := f(tx)
	if err == nil {
		err = s.commit(tx)
	}
	if err != nil {
		for _, undo := range slices.Backward(tx.undo) {
			undo()
		}
		s.tables.Next = tx.next
	}
	return err
}

func (s *Store) commit(tx *Tx) error {
	if len(tx.touched) == 0 || s.path == "" {
		return nil
	}
	c := change{Next: s.tables.Next}
	for _, t := range tx.touched {
		b, err := t.table.encode(t.id)
		if err != nil {
			return err
		}
		c.Rows = append(c.Rows, changedRows{Table: t.table.name(), ID: t.id, Row: b})
	}
	line, err := encode(c)
	if err != nil {
		return err
	}
	if n, err := s.log.Write(line); err != nil {
		// A partial line would damage the next one: cut it off again.
		if n > 0 {
			err = errors.Join(err, s.log.Truncate(s.size))
		}
		return fmt.Errorf("writing state: %w", err)
	}
	s.size += int64(len(line))
	if s.size > 4*s.folded+4<<20 {
		return s.fold()
	}
	return nil
}

// Tx is a change under way.
type Tx struct {
	*Tables
	next    int64
	touched []touch
	undo    []func()
}

type touch struct {
	table anyTable
	id    int64
}

// NewID draws an ID no row of this lab ever had.
func (tx *Tx) NewID() int64 {
	tx.Next++
	return tx.Next
}

func (tx *Tx) touch(t anyTable, id int64) {
	for _, have := range tx.touched {
		if have.table == t && have.id == id {
			return
		}
	}
	tx.touched = append(tx.touched, touch{t, id})
}

// Read reads the store at path without opening it for changes; another process may
// be at work with it.
func Read(path string) (*Store, error) {
	s := &Store{tables: newTables()}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening state: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := s.replay(f); err != nil {
		return nil, fmt.Errorf("reading state %s: %w", path, err)
	}
	return s, nil
}
