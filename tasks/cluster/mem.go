package cluster

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"hk/remote"
)

// Mem is a Store in memory, for simulated worlds and tests.
type Mem struct {
	mu      sync.Mutex
	id      string
	units   map[string]map[string][]byte
	retired map[string]map[string][]byte
	// Step is called before each change, as Dir's; nil does nothing.
	Step func(what string) error
}

// NewMem returns an empty store.
func NewMem() *Mem {
	id, err := NewUID(nil)
	if err != nil {
		panic("bug: no random numbers: " + err.Error())
	}
	return &Mem{id: id, units: map[string]map[string][]byte{}, retired: map[string]map[string][]byte{}}
}

// ID implements Store.
func (s *Mem) ID() (string, error) { return s.id, nil }

func (s *Mem) at(what string) error {
	if s.Step == nil {
		return nil
	}
	return s.Step(what)
}

// Place implements Store.
func (s *Mem) Place(unit string) string { return "memory:" + unit }

// List implements Store.
func (s *Mem) List() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.units)), nil
}

// Load implements Store.
func (s *Mem) Load(unit string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.units[unit]
	if !ok {
		return nil, fmt.Errorf("credential unit %s: %w", unit, remote.ErrNotFound)
	}
	return maps.Clone(u), nil
}

// Create implements Store.
func (s *Mem) Create(unit string, files map[string][]byte) error {
	if err := s.at("rename unit"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.units[unit]; ok {
		return fmt.Errorf("credential unit %s: %w", unit, fs.ErrExist)
	}
	s.units[unit] = maps.Clone(files)
	return nil
}

// Replace implements Store.
func (s *Mem) Replace(unit, file string, data []byte) error {
	if err := s.at("replace " + file); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[unit] == nil {
		return fmt.Errorf("credential unit %s: %w", unit, remote.ErrNotFound)
	}
	s.units[unit][file] = slices.Clone(data)
	return nil
}

// Remove implements Store.
func (s *Mem) Remove(unit, file string) error {
	if err := s.at("remove " + file); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.units[unit], file)
	return nil
}

// Retire implements Store.
func (s *Mem) Retire(unit, as string) error {
	if err := s.at("retire"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired[as] = s.units[unit]
	delete(s.units, unit)
	return nil
}
