package etcd

import (
	"errors"
	"testing"

	"hk/remote"
	"hk/tasks"
)

func three() []Member {
	return []Member{{"master-1", "10.100.0.1"}, {"master-2", "10.100.0.2"}, {"master-3", "10.100.0.3"}}
}

// listed are members as etcd would list them.
func listed(members ...Member) []remote.Member {
	var out []remote.Member
	for i, m := range members {
		out = append(out, remote.Member{ID: uint64(i + 1), Name: m.Host, PeerURLs: []string{m.PeerURL()}, Started: true})
	}
	return out
}

func TestDecide(t *testing.T) {
	self := three()[0]
	unstarted := listed(three()...)
	unstarted[0].Started = false
	learning := listed(three()[1:]...)
	learning[1].Learner = true
	const never = Action(255) // an error is wanted
	for _, c := range []struct {
		name      string
		s         Situation
		want      Action
		transient bool
	}{
		{"nothing anywhere: found", Situation{}, Found, false},
		{"others founded already and run without a quorum: found the same", Situation{Foreign: nil}, Found, false},
		{"others run with a quorum, this one never started", Situation{Answered: true, Members: unstarted}, Start, false},
		{"own data, nothing else known", Situation{OwnData: true}, Keep, false},
		{"own data on a born cluster that answers", Situation{OwnData: true, Born: true, Answered: true, Members: listed(three()...)}, Keep, false},
		{"own data on a born cluster that does not answer", Situation{OwnData: true, Born: true}, Keep, false},
		{"own data of a member that was removed", Situation{OwnData: true, Born: true, Answered: true, Members: listed(three()[1:]...)}, never, false},
		{"own data of another generation", Situation{OwnData: true, OwnForeign: true}, never, false},
		{"born and nobody answers: never new", Situation{Born: true}, never, true},
		{"not born, a host holds other data: never new", Situation{Foreign: []string{"master-2"}}, never, false},
		{"born, not listed: learner", Situation{Born: true, Answered: true, Members: listed(three()[1:]...)}, Add, false},
		{"not born but lives, not listed: learner", Situation{Answered: true, Members: listed(three()[1:]...)}, Add, false},
		{"another learner is on its way: wait", Situation{Born: true, Answered: true, Members: learning}, never, true},
		{"born, listed, ran before, data gone: replace", Situation{Born: true, Answered: true, Members: listed(three()...)}, Replace, false},
		{"born, listed, never ran: start", Situation{Born: true, Answered: true, Members: unstarted}, Start, false},
		{"the only member lost its data", Situation{Born: true, Answered: true, Members: listed(self)}, never, false},
		{"not one of the founders, nobody answers", Situation{Founders: three()[1:]}, never, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.Self = self
			if c.s.Founders == nil {
				c.s.Founders = three()
			}
			got, err := Decide(c.s)
			if c.want == never {
				if err == nil {
					t.Fatalf("decided %d, want a refusal", got)
				}
				var tr tasks.Transient
				if errors.As(err, &tr) != c.transient {
					t.Errorf("transient %t: %v", !c.transient, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("decided %d, want %d", got, c.want)
			}
		})
	}
}

// TestNeverNewBesideLife goes through every combination: a new cluster only
// where nothing lives, nothing is born and no other data is seen.
func TestNeverNewBesideLife(t *testing.T) {
	n := 0
	for bits := range 1 << 5 {
		s := Situation{
			Self: three()[0], Founders: three(), OwnData: bits&1 != 0, Born: bits&2 != 0, Answered: bits&4 != 0, OwnForeign: bits&8 != 0,
		}
		if s.Answered {
			s.Members = listed(three()...)
		}
		if bits&16 != 0 {
			s.Foreign = []string{"master-2"}
		}
		got, err := Decide(s)
		if err == nil && got == Found {
			n++
			if s.OwnData || s.Born || s.Answered || len(s.Foreign) > 0 {
				t.Errorf("founded a cluster in %+v", s)
			}
		}
	}
	if n != 2 { // OwnForeign without data means nothing
		t.Errorf("founded in %d of 32 situations, want 2", n)
	}
}
