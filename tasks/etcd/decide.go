package etcd

import (
	"fmt"
	"slices"
	"strings"

	"hk/remote"
	"hk/tasks"
)

// Action is what a host without a running member does first.
type Action uint8

const (
	// Keep means: its data is there; nothing is touched.
	Keep Action = iota
	// Found means: it starts as one of the founding members of a new cluster.
	Found
	// Start means: the cluster lists it and it never ran; it starts as existing.
	Start
	// Add means: the cluster does not know it; it is added as a learner.
	Add
	// Replace means: the cluster lists it, it ran, and its data is gone; it is removed
	// and added again as a learner.
	Replace
)

// Situation is everything the decision depends on.
type Situation struct {
	Self     Member
	Founders []Member
	Born     bool // an etcd of this cluster has lived, by any readable mark
	OwnData  bool // this host holds data
	// OwnForeign and Foreign: this host, or others by name, hold data that is
	// not of this generation.
	OwnForeign bool
	Foreign    []string
	// Answered: the members answered, through a quorum, and these are they.
	Answered bool
	Members  []remote.Member
}

// Decide is the one place where a new cluster can come from. It is pure. Its
// rule: new only if no member answers, no host holds other data and no born
// mark exists; data that is there is never touched.
func Decide(s Situation) (Action, error) {
	if s.OwnData {
		return Keep, s.checkOwnData()
	}
	if s.Answered {
		m := s.listed()
		switch {
		case m == nil:
			return Add, s.checkAdd()
		case !m.Started:
			return Start, nil
		case len(s.Members) == 1:
			return Keep, fmt.Errorf("the data of the only etcd member %s is gone, and yet a member answers: look at %s by hand", s.Self.Host, s.Self.Host)
		default:
			return Replace, nil
		}
	}
	switch {
	case s.Born:
		return Keep, tasks.Again("%s holds no etcd data, no member answers and this cluster's etcd has lived: hk never founds a second one; bring a majority of the members back, or restore a snapshot", s.Self.Host)
	case len(s.Foreign) > 0:
		return Keep, fmt.Errorf("no etcd member answers, but %s holds etcd data of another generation: hk never founds a cluster beside data it does not know", strings.Join(s.Foreign, ", "))
	case !slices.ContainsFunc(s.Founders, func(m Member) bool { return m == s.Self }):
		return Keep, tasks.Again("%s is not one of the members etcd is founded with (%s) and none of them answers yet", s.Self.Host, hostsOf(s.Founders))
	}
	return Found, nil
}

func (s *Situation) checkOwnData() error {
	if s.OwnForeign {
		return fmt.Errorf("%s on %s holds data of another generation of this cluster's etcd: hk does not touch it", dataDir, s.Self.Host)
	}
	if s.Answered && s.listed() == nil {
		return fmt.Errorf("%s on %s is the data of a member that the cluster has removed: hk does not touch it; move it away to let the host join anew", dataDir, s.Self.Host)
	}
	return nil
}

// checkAdd lets learners come one at a time: etcd allows no more, and each adds
// to what a quorum takes once it is promoted.
func (s *Situation) checkAdd() error {
	for i := range s.Members {
		if s.Members[i].Learner {
			return tasks.Again("etcd is still taking in another member (%s)", strings.Join(s.Members[i].PeerURLs, " "))
		}
	}
	return nil
}

// listed is the cluster's entry of this host, by its peer URL: names are only
// known of members that ran.
func (s *Situation) listed() *remote.Member {
	for i := range s.Members {
		if slices.Contains(s.Members[i].PeerURLs, s.Self.PeerURL()) {
			return &s.Members[i]
		}
	}
	return nil
}

func hostsOf(members []Member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.Host)
	}
	return strings.Join(names, ", ")
}
