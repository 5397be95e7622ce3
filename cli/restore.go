package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
	"hk/tasks/cluster"
)

// Records belong to hosts and masters; the store here is a cache of them. When
// it is empty, or another hk built the cluster meanwhile (another generation),
// the records come from the journals: each host vouches for its own tasks, the
// masters for those of the cluster.

// setPrefix begins the journal entries that hold a large value by its digest.
const setPrefix = "set/"

// journals is what the hosts' journals hold of a cluster.
type journals struct {
	records map[string]*fp.Record
	sets    map[fp.OutputDigest][]byte
}

// restored reads the journals that were found.
func (s *site) restored(ctx context.Context, f *cluster.Found) journals {
	j := journals{records: map[string]*fp.Record{}, sets: map[fp.OutputDigest][]byte{}}
	hosts := slices.Sorted(keys(f.Hosts))
	for _, host := range hosts {
		h := f.Hosts[host]
		if h.Facts == nil || !s.isMaster(host) {
			continue
		}
		for name, data := range h.Facts.Journal {
			word, ok := strings.CutPrefix(name, setPrefix)
			if !ok {
				continue
			}
			if d, err := parseDigest(word); err == nil && sha256.Sum256(data) == d {
				j.sets[d] = data
			}
		}
	}
	for _, host := range hosts {
		if h := f.Hosts[host]; h.Facts != nil {
			s.restoreHost(ctx, host, h.Facts.Journal, &j)
		}
	}
	return j
}

func (s *site) restoreHost(ctx context.Context, host string, journal map[string][]byte, j *journals) {
	for name, data := range journal {
		t, ok := s.graph.Lookup(name)
		if !ok {
			continue // a task of another config or another hk, a mark, a set
		}
		if on := s.graph.HostName(t); on != host && (on != "" || !s.isMaster(host)) {
			continue
		}
		var r fp.Record
		if json.Unmarshal(data, &r) != nil || !s.fit(ctx, &r, j) {
			continue // as good as none: the task is stale
		}
		if have := j.records[name]; have == nil || have.Started.Before(r.Started) {
			j.records[name] = &r
		}
	}
}

// fit reports whether a journal's record can be used here: large values it
// refers to must be here too.
func (s *site) fit(ctx context.Context, r *fp.Record, j *journals) bool {
	set, ok := r.Output["set"]
	if !ok {
		return true
	}
	d, err := parseDigest(set)
	if err != nil {
		return false
	}
	if j.sets[d] != nil {
		return true
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
	j := s.restored(ctx, f)
	s.wholeMu.Lock()
	s.whole = j.records
	s.wholeMu.Unlock()
	if !s.told && len(j.records) > 0 {
		s.told = true
		s.tell("records restored from the hosts' journals: " + plural(len(j.records), "task"))
	}
	s.reader, s.sets = memory(j.records), j.sets
}

// keepRestored writes them into the store in place of what it held.
func (s *site) keepRestored(ctx context.Context) error {
	recs, ok := s.reader.(memory)
	if !ok {
		return s.recs.SetGeneration(ctx, s.sess.Generation())
	}
	for _, v := range s.sets {
		if _, err := s.recs.PutValue(ctx, v); err != nil {
			return err
		}
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

// setsOf are the large values that records refer to.
func setsOf(recs func(graph.Task) *fp.Record, g *graph.Graph) map[string]bool {
	out := map[string]bool{}
	for t := range graph.Task(g.Len()) {
		if g.Host(t) >= 0 {
			continue
		}
		if r := recs(t); r != nil && r.Output["set"] != "" {
			out[r.Output["set"]] = true
		}
	}
	return out
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
