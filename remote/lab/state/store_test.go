package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, s *Store, name string) int64 {
	t.Helper()
	var id int64
	err := s.Update(func(tx *Tx) error {
		id = tx.NewID()
		Put(tx, tx.SSHKeys, id, &SSHKey{Meta: Meta{ID: id, Name: name}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func keys(s *Store) string {
	var names []string
	s.View(func(t *Tables) {
		for _, k := range t.SSHKeys.All() {
			names = append(names, k.Name)
		}
	})
	return fmt.Sprint(names)
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	a := put(t, s, "a")
	b := put(t, s, "b")
	err = s.Update(func(tx *Tx) error {
		Delete(tx, tx.SSHKeys, a)
		return Edit(tx, tx.SSHKeys, b, func(k *SSHKey) { k.Name = "B" })
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if keys(s) != "[B]" {
		t.Errorf("after reopening: %s", keys(s))
	}
	if c := put(t, s, "c"); c <= b {
		t.Errorf("ID %d was given out before", c)
	}
}

func TestRollback(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := put(t, s, "a")
	no := errors.New("no")
	err = s.Update(func(tx *Tx) error {
		put := tx.NewID()
		Put(tx, tx.SSHKeys, put, &SSHKey{Meta: Meta{ID: put, Name: "x"}})
		Delete(tx, tx.SSHKeys, a)
		return no
	})
	if !errors.Is(err, no) || keys(s) != "[a]" {
		t.Errorf("%v, keys %s", err, keys(s))
	}
}

// However much of the last line a kill left, what was acknowledged before is there.
func TestTornTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "a")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "b")
	s.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(before); n < len(whole); n++ {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
		if keys(s) != "[a]" {
			t.Fatalf("%d of %d bytes: %s", n, len(whole), keys(s))
		}
		put(t, s, "c")
		s.Close()
		if s, err = Open(path); err != nil || keys(s) != "[a c]" {
			t.Fatalf("going on after %d bytes: %v %s", n, err, keys(s))
		}
		s.Close()
	}
}

func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "a")
	put(t, s, "b")
	s.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[20] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a damaged line in the middle is taken for the end")
	}
}
