package cluster

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// change applies f to the unit and makes it durable. Changes that come at the
// same time are written together.
func (u *Unit) change(f func(*state) error) error {
	o := &op{apply: f}
	u.qmu.Lock()
	u.queue = append(u.queue, o)
	u.qmu.Unlock()
	u.wmu.Lock()
	defer u.wmu.Unlock()
	if !o.done {
		u.qmu.Lock()
		batch := u.queue
		u.queue = nil
		u.qmu.Unlock()
		u.write(batch)
	}
	return o.err
}

// write makes a batch durable. It is the only place where the unit changes.
func (u *Unit) write(batch []*op) {
	fail := func(err error) {
		for _, o := range batch {
			o.done = true
			if o.err == nil {
				o.err = err
			}
		}
	}
	if u.torn {
		if err := u.reload(); err != nil {
			fail(err)
			return
		}
	}
	old := u.read()
	next := old
	for _, o := range batch {
		o.done = true
		try := next.clone()
		if o.err = o.apply(try); o.err == nil {
			next = try
		}
	}
	if next == old {
		return
	}
	made := u.untold
	for _, f := range slices.Sorted(maps.Keys(next.made)) {
		made = append(made, next.made[f])
	}
	if err := u.save(old, next); err != nil {
		u.torn = true
		fail(err)
		return
	}
	next.made, next.pairs, u.untold = nil, nil, nil
	u.mu.Lock()
	u.st = next
	u.mu.Unlock()
	for _, k := range made {
		if u.created != nil {
			u.created(k)
		}
	}
}

// reload takes over what a write that failed half-way left: each file is what
// it was or what it was to become.
func (u *Unit) reload() error {
	st, j, err := loadState(u.store, u.name)
	if err != nil {
		return err
	}
	u.untold = append(u.untold, j.untold...)
	u.torn = false
	u.mu.Lock()
	u.st = st
	u.mu.Unlock()
	return nil
}

// render brings the files that are written forms of other fields up to date.
func (s *state) render() {
	s.files[fileHosts] = encodeHosts(s.hosts)
	s.files[fileAlloc] = encodeAlloc(s.alloc)
	if kh := knownHosts(s.m.Name, s.hosts); len(kh) > 0 || s.files[fileKnownHosts] != nil {
		s.files[fileKnownHosts] = kh
	}
}

// save writes the difference between two states in the order that Manifest
// describes and brings next's manifest up to date.
func (u *Unit) save(old, next *state) error {
	next.render()
	announce := old.m.clone()
	var changed, removed []string
	for name, data := range next.files {
		e, had := old.m.Files[name]
		if had && e.SHA256 == sumOf(data) {
			continue
		}
		changed = append(changed, name)
		ne := next.entry(name, data)
		next.m.Files[name] = ne
		e.Next, e.Pair, e.Made = ne.SHA256, next.pairs[name], next.made[name].Name
		if !had {
			e.KeyID = ne.KeyID
		}
		announce.Files[name] = e
	}
	for name := range old.files {
		if _, ok := next.files[name]; !ok {
			removed = append(removed, name)
			delete(next.m.Files, name)
		}
	}
	if len(changed)+len(removed) == 0 && bytes.Equal(next.m.encode(), old.m.encode()) {
		return nil
	}
	next.m.Version = u.version
	if len(changed) > 0 {
		if err := u.store.Replace(u.name, manifestFile, announce.encode()); err != nil {
			return err
		}
	}
	// A file that others count on goes last.
	slices.SortFunc(changed, func(a, b string) int {
		if la, lb := next.pairs[a] == a, next.pairs[b] == b; la != lb {
			if la {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	for _, name := range changed {
		if err := u.store.Replace(u.name, name, next.files[name]); err != nil {
			return err
		}
	}
	if err := u.store.Replace(u.name, manifestFile, next.m.encode()); err != nil {
		return err
	}
	slices.Sort(removed)
	for _, name := range removed {
		if err := u.store.Remove(u.name, name); err != nil {
			return err
		}
	}
	return nil
}
