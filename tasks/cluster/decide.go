package cluster

import (
	"slices"
)

// Action is what a build may do.
type Action string

// Actions of a Decision.
const (
	// Refuse: nothing may be changed; the command ends with Exit.
	Refuse Action = "refuse"
	// AskFirst: nothing is changed without consent (exit 3); a person at a
	// terminal may give it, else --update or --confirm.
	AskFirst Action = "ask"
	// Create: nothing of the cluster exists; key material is made now.
	Create Action = "create"
	// Continue: the cluster is ours and was never up; go on where it stopped.
	Continue Action = "continue"
	// Keep: the cluster is up and its config is the applied one; a no-op, or
	// repairs of drift.
	Keep Action = "keep"
	// Change: the cluster is up and a consented change is carried out.
	Change Action = "change"
)

// Decision is what may be done, and what people are told about it.
type Decision struct {
	Action  Action
	Exit    int    // of Refuse and AskFirst
	World   string // error class of Refuse and AskFirst
	Message string
	Details []string
	Hints   []string
	Diff    []ConfigChange
	// Resume is an open intent that this build carries on.
	Resume *Intent
	// Consented: a change, a force or a removal was agreed to, so the cluster
	// generation goes up.
	Consented bool
	// Replace are missing workers whose servers are made again.
	Replace []string
	// Remove are hosts that exist and are not wanted any more: where the build
	// may go on, their removal was agreed to. Lose are those of them whose data
	// is lost with them.
	Remove, Lose []string
}

// Err is the decision as an error; nil if the build may go on.
func (d *Decision) Err() error {
	if d.Action != Refuse && d.Action != AskFirst {
		return nil
	}
	return &Refusal{Exit: d.Exit, World: d.World, Message: d.Message, Details: d.Details, Hints: d.Hints}
}

// Ask is what a person asked for.
type Ask struct {
	Update  bool     // --update, or a yes to the question
	Confirm bool     // the cluster's name was given: losing data is agreed to
	Forced  []string // tasks named together with --force
	Abandon string   // --abandon RUN
	// Recipes are tasks that are stale because a newer hk does them in another
	// way or with other artifacts; known once the graph is made.
	Recipes []string
	RunID   string
}

// HostState says what discovery found of one host.
type HostState struct {
	Host    string
	Roles   []string
	Wanted  bool   // it is in the config
	Known   bool   // the credential unit knows a server of it
	Exists  bool   // there is a server with our UID
	Rebuilt string // why its disk is another one; ""
	BadKey  string // it shows a host key that is not pinned; ""
	Down    string // why it cannot be reached; ""
}

// unwanted: it exists, or did until somebody else deleted its server.
func (h *HostState) unwanted() bool { return !h.Wanted && (h.Exists || h.Known) }

func (h *HostState) worker() bool {
	return !slices.Contains(h.Roles, "master") && !slices.Contains(h.Roles, "etcd")
}

// Situation is everything the decision depends on: the cloud, the cluster, the
// local store, and what was asked.
type Situation struct {
	Name string
	// CloudErr is set when the cloud could not be read.
	CloudErr error

	Local      bool   // there is a credential unit
	LocalUID   string // of the unit
	LocalPlace string
	CloudUIDs  []string  // of objects labelled with the cluster's name
	Objects    int       // objects in the project with the local unit's UID
	Foreign    []string  // objects with names of ours and without our UID
	Tried      []string  // where credentials were looked for
	Lock       *LockInfo // the cluster's lock, if there is one
	// Started: a server was asked for before, or the cluster was up.
	Started    bool
	Destroying bool // a destroy was begun and did not end

	Established bool
	Hosts       []HostState
	Version     string // of this hk
	BuiltBy     string // newest hk that built the cluster

	HasConfig    bool // a config file was given
	Diff         []ConfigChange
	ConfigDigest string
	Intent       *Intent
	Ask          Ask
}

// Decide is the continuation matrix of DESIGN §6: pure, and the only place that
// says whether a build may go on.
func Decide(s Situation) Decision {
	if s.Intent != nil && s.Ask.Abandon == s.Intent.RunID {
		s.Intent = nil
		s.Ask.Abandon = ""
	}
	for _, row := range rows {
		if d, ok := row.rule(&s); ok {
			d.Diff, d.Remove, d.Lose = s.Diff, s.unwanted(), s.losing()
			return d
		}
	}
	panic("bug: no row of the continuation matrix fits")
}
