package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
	"hk/tasks/cluster"
)

// Records belong to hosts and masters; the store here is a cache of them. When
// it is empty, or another hk built the cluster meanwhile (another generation),
// the records come from the journals: each host vouches for its own tasks, the
// masters for those of the cluster.

// restored are the records the journals hold, by task.
func (s *site) restored(ctx context.Context, f *cluster.Found) map[string]*fp.Record {
	out := map[string]*fp.Record{}
	for _, host := range slices.Sorted(keys(f.Hosts)) {
		h := f.Hosts[host]
		if h.Facts == nil {
			continue
		}
		for name, data := range h.Facts.Journal {
			t, ok := s.graph.Lookup(name)
			if !ok {
				continue // a task of another config or another hk
			}
			if on := s.graph.HostName(t); on != host && (on != "" || !s.isMaster(host)) {
				continue
			}
			var r fp.Record
			if json.Unmarshal(data, &r) != nil || !s.fit(ctx, t, &r) {
				continue // as good as none: the task is stale
			}
			if have := out[name]; have == nil || have.Started.Before(r.Started) {
				out[name] = &r
			}
		}
	}
	return out
}

// fit reports whether a journal's record can be used here: large values it
// refers to must be here too.
func (s *site) fit(ctx context.Context, _ graph.Task, r *fp.Record) bool {
	set, ok := r.Output["set"]
	if !ok {
		return true
	}
	d, err := parseDigest(set)
	if err != nil {
		return false
	}
	v, err := s.recs.Value(ctx, d)
	return err == nil && v != nil
}

func (s *site) isMaster(host string) bool {
	return slices.ContainsFunc(s.sess.Wanted(), func(h wantedHost) bool { return h.Name == host && h.Has("master") })
}

// useRestored makes the journals' records what plans and builds read, without
// writing anything.
func (s *site) useRestored(ctx context.Context, f *cluster.Found) {
	recs := s.restored(ctx, f)
	s.wholeMu.Lock()
	s.whole = recs
	s.wholeMu.Unlock()
	s.reader = memory(recs)
	if len(recs) > 0 {
		s.tell("records restored from the hosts' journals: " + plural(len(recs), "task"))
	}
}

// keepRestored writes them into the store in place of what it held.
func (s *site) keepRestored(ctx context.Context) error {
	recs, ok := s.reader.(memory)
	if !ok {
		return s.recs.SetGeneration(ctx, s.sess.Generation())
	}
	changes := make([]fp.Change, 0, len(recs))
	for _, name := range slices.Sorted(keys(recs)) {
		changes = append(changes, fp.Change{Name: name, Record: recs[name]})
	}
	err := s.recs.Load(ctx, func(name []byte, _ fp.Kept) {
		if recs[string(name)] == nil {
			changes = append(changes, fp.Change{Name: string(name)})
		}
	})
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		done := make(chan error, 1)
		s.recs.Commit(changes, func(err error) { done <- err })
		if err := <-done; err != nil {
			return err
		}
	}
	s.reader = s.recs
	return s.recs.SetGeneration(ctx, s.sess.Generation())
}

// memory is a Recorder of records that are nowhere else yet.
type memory map[string]*fp.Record

var _ run.Recorder = memory(nil)

// Load implements run.Recorder.
func (m memory) Load(_ context.Context, each func(name []byte, k fp.Kept)) error {
	for n, r := range m {
		each([]byte(n), fp.Keep(r))
	}
	return nil
}

// Whole implements run.Recorder.
func (m memory) Whole(_ context.Context, names []string) ([]*fp.Record, error) {
	out := make([]*fp.Record, len(names))
	for i, n := range names {
		out[i] = m[n]
	}
	return out, nil
}

// Commit implements run.Recorder; nothing is committed before the records are
// kept.
func (m memory) Commit(_ []fp.Change, done func(error)) {
	done(errors.New("bug: a commit to restored records that are not kept yet"))
}
