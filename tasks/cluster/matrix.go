package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"hk/tasks/spec"
)

// rows are the matrix, most severe first; the first rule that fits decides.
var rows = []struct {
	name string
	rule func(*Situation) (Decision, bool)
}{
	{"cloud unreadable", cloudUnreadable},
	{"same name, other UID", otherUID},
	{"foreign object", foreignObject},
	{"wrong project", wrongProject},
	{"built by a newer hk", newerHK},
	{"credentials not discoverable", noCredentials},
	{"destroy under way", destroying},
	{"no such run to abandon", noSuchRun},
	{"nothing", nothing},
	{"host key differs", keyDiffers},
	{"removal that cannot be done", cannotRemove},
	{"not established", notEstablished},
	{"immutable field", immutable},
	{"server missing or rebuilt", serverGone},
	{"no host reachable", nobodyHome},
	{"another config than the intent's", otherIntent},
	{"version change", versionChange},
	{"change without consent", needsConsent},
	{"consented change", consented},
	{"established, same config", keep},
}

func refuse(exit int, world, format string, args ...any) Decision {
	return Decision{Action: Refuse, Exit: exit, World: world, Message: fmt.Sprintf(format, args...)}
}

func cloudUnreadable(s *Situation) (Decision, bool) {
	if s.CloudErr == nil {
		return Decision{}, false
	}
	d := refuse(ExitCloud, "cloud", "the cloud cannot be read: %v", s.CloudErr)
	d.Hints = []string{"nothing was changed; check the token (HCLOUD_TOKEN, HCLOUD_CONTEXT) and the endpoint, then run the same command again"}
	return d, true
}

func otherUID(s *Situation) (Decision, bool) {
	var others []string
	for _, u := range s.CloudUIDs {
		if !s.Local || u != s.LocalUID {
			others = append(others, u)
		}
	}
	switch {
	case s.Local && len(others) > 0:
		d := refuse(ExitCloud, "cloud", "there is another cluster called %s in this project", s.Name)
		d.Details = []string{fmt.Sprintf("here: UID %s in %s", s.LocalUID, s.LocalPlace)}
		for _, u := range others {
			d.Details = append(d.Details, "in the cloud: UID "+u)
		}
		d.Hints = []string{
			"hk adopt " + s.Name + " takes over the one in the cloud",
			"hk forget " + s.Name + " forgets the one that is known here",
		}
		return d, true
	case len(others) > 1:
		d := refuse(ExitCloud, "cloud", "there are %d clusters called %s in this project", len(others), s.Name)
		for _, u := range others {
			d.Details = append(d.Details, "in the cloud: UID "+u)
		}
		d.Hints = []string{"give this cluster another name in its config"}
		return d, true
	}
	return Decision{}, false
}

func foreignObject(s *Situation) (Decision, bool) {
	if len(s.Foreign) == 0 {
		return Decision{}, false
	}
	d := refuse(ExitCloud, "cloud", "this project holds objects with names that cluster %s needs and that are not its own", s.Name)
	d.Details = s.Foreign
	d.Hints = []string{"rename or delete them, or give the cluster another name; hk touches nothing without its own label"}
	return d, true
}

func wrongProject(s *Situation) (Decision, bool) {
	if !s.Local || s.Objects > 0 || !s.Started {
		return Decision{}, false
	}
	d := refuse(ExitCloud, "cloud", "wrong project, or %s was deleted elsewhere: nothing in this project carries its UID %s", s.Name, s.LocalUID)
	d.Details = []string{"its credentials are in " + s.LocalPlace}
	d.Hints = []string{
		"use the token of the cluster's own project (HCLOUD_TOKEN, HCLOUD_CONTEXT)",
		"if it is really gone: hk forget " + s.Name,
	}
	return d, true
}

func newerHK(s *Situation) (Decision, bool) {
	if !newer(s.BuiltBy, s.Version) {
		return Decision{}, false
	}
	d := refuse(ExitConfig, "config", "%s was last built by hk %s, this is hk %s", s.Name, s.BuiltBy, s.Version)
	d.Hints = []string{"use hk " + s.BuiltBy + " or newer"}
	return d, true
}

func noCredentials(s *Situation) (Decision, bool) {
	if s.Local || len(s.CloudUIDs) == 0 {
		return Decision{}, false
	}
	if l := s.Lock; l != nil && !l.Expired {
		// Most likely it is being made this very moment, by whom the lock says.
		return refuse(ExitLocked, "state", "%s is locked by %s, run %s, since %s", s.Name, orNothing(l.Holder), orNothing(l.Run), l.Since.Format(time.RFC3339)), true
	}
	d := refuse(ExitCredentials, "state", "%s exists (UID %s) and its credentials cannot be found", s.Name, s.CloudUIDs[0])
	for _, t := range s.Tried {
		d.Details = append(d.Details, "tried: "+t)
	}
	d.Hints = []string{
		"put the cluster's credential unit back into " + s.LocalPlace + ", or set HK_HOME to the directory that has it",
		"hk destroy " + s.Name + " --confirm " + s.Name + " deletes the cluster without credentials",
	}
	return d, true
}

func destroying(s *Situation) (Decision, bool) {
	if !s.Destroying {
		return Decision{}, false
	}
	d := refuse(ExitConfig, "state", "a destroy of %s was begun and did not end", s.Name)
	d.Hints = []string{"hk destroy " + s.Name + " --confirm " + s.Name + " finishes it"}
	return d, true
}

func noSuchRun(s *Situation) (Decision, bool) {
	if s.Ask.Abandon == "" {
		return Decision{}, false
	}
	d := refuse(ExitUsage, "config", "%s has no open run %s to abandon", s.Name, s.Ask.Abandon)
	d.Hints = []string{"leave --abandon out: no run is open"}
	if s.Intent != nil {
		d.Hints = []string{"the open run is " + s.Intent.RunID}
	}
	return d, true
}

func nothing(s *Situation) (Decision, bool) {
	if s.Local {
		return Decision{}, false
	}
	if !s.HasConfig {
		d := refuse(ExitConfig, "config", "there is no cluster %s and no config file for it", s.Name)
		d.Hints = []string{"hk init " + s.Name + " writes one"}
		return d, true
	}
	return Decision{Action: Create, Consented: true, Message: "creating " + s.Name}, true
}

func keyDiffers(s *Situation) (Decision, bool) {
	var bad []string
	for _, h := range s.Hosts {
		if h.BadKey != "" && h.Wanted { // nobody talks to one that goes
			bad = append(bad, h.Host+": "+h.BadKey)
		}
	}
	if len(bad) == 0 {
		return Decision{}, false
	}
	d := refuse(ExitSSH, "ssh", "a host of %s shows a host key that is not its own", s.Name)
	d.Details = bad
	d.Hints = []string{
		"somebody may be in between, or the host was set up anew by hand; nothing secret was sent to it",
		"hk node replace " + s.Name + "/HOST makes the host anew",
	}
	return d, true
}

func notEstablished(s *Situation) (Decision, bool) {
	if s.Established {
		return Decision{}, false
	}
	if len(s.unwanted()) > 0 && !s.Ask.Update && !s.resumes() {
		return s.askRemoval(), true
	}
	return Decision{
		Action: Continue, Consented: len(s.Ask.Forced) > 0 || s.Ask.Update,
		Message: s.Name + " is not complete yet; going on where it stopped",
	}, true
}

// unwanted are hosts that exist and are not in the config: what Session.Leaving
// holds. A server that somebody else deleted leaves its Node and its member.
func (s *Situation) unwanted() []string {
	var out []string
	for i := range s.Hosts {
		if s.Hosts[i].unwanted() {
			out = append(out, s.Hosts[i].Host)
		}
	}
	return out
}

// losing are those of them whose data is lost with them.
func (s *Situation) losing() []string {
	var out []string
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.unwanted() && !h.worker() {
			out = append(out, h.Host)
		}
	}
	return out
}

// resumes reports that what is wanted now was agreed to in a run that is open.
func (s *Situation) resumes() bool { return s.Intent != nil && s.Intent.Digest == s.ConfigDigest }

// consent is the command that agrees to everything asked about.
func (s *Situation) consent() string {
	cmd := "hk build " + s.Name + " --update"
	if len(s.losing()) > 0 {
		cmd += " --confirm " + s.Name
	}
	return cmd
}

func (s *Situation) askRemoval() Decision {
	return Decision{
		Action: AskFirst, Exit: ExitConsent, World: "config",
		Message: fmt.Sprintf("%s has hosts that the config does not name any more: %s", s.Name, strings.Join(s.unwanted(), ", ")),
		Hints:   []string{s.consent() + " removes them"},
	}
}

// cannotRemove refuses to take away masters and members where that would leave
// no cluster, or another one than was asked for.
func cannotRemove(s *Situation) (Decision, bool) {
	core := s.losing()
	if len(core) == 0 {
		return Decision{}, false
	}
	who := strings.Join(core, ", ")
	if !s.Established {
		d := refuse(ExitConfig, "config", "%s is not complete yet, and the config does not name %s any more: etcd may be founded with all of them, and needs them to begin", s.Name, who)
		d.Hints = []string{
			"set the count back and let the build end; then they can be removed",
			"hk destroy " + s.Name + " --confirm " + s.Name + " removes the whole cluster",
		}
		return d, true
	}
	for i := range s.Diff {
		c := &s.Diff[i]
		if c.Field != "endpoint.external" {
			continue
		}
		d := refuse(ExitConfig, "config", "removing %s of %s would change the API's address for people too", who, s.Name)
		d.Details = []string{c.String() + ": its default depends on masters.count"}
		d.Hints = []string{"write endpoint: {external: " + c.Old + "} into the config to keep it"}
		return d, true
	}
	return Decision{}, false
}

func immutable(s *Situation) (Decision, bool) {
	var bad []string
	for _, c := range s.Diff {
		if c.Class == spec.Immutable {
			bad = append(bad, c.String()+": "+c.reason())
		}
	}
	if len(bad) == 0 {
		return Decision{}, false
	}
	d := refuse(ExitConfig, "config", "the config of %s changes what cannot be changed on a living cluster", s.Name)
	d.Details = bad
	d.Hints = []string{"hk config show " + s.Name + " prints the applied config; build a second cluster for the new one"}
	return d, true
}

func serverGone(s *Situation) (Decision, bool) {
	var core, workers, rebuilt, details []string
	for _, h := range s.Hosts {
		switch {
		case !h.Wanted || !h.Known:
		case h.Rebuilt != "":
			rebuilt = append(rebuilt, h.Host)
			details = append(details, h.Host+": "+h.Rebuilt)
		case !h.Exists && h.worker():
			workers = append(workers, h.Host)
			details = append(details, h.Host+": its server is gone")
		case !h.Exists:
			core = append(core, h.Host)
			details = append(details, h.Host+": its server is gone")
		}
	}
	if len(details) == 0 {
		return Decision{}, false
	}
	if len(core)+len(rebuilt) == 0 && s.Ask.Update {
		if d, ask := s.removalNeedsName(); ask {
			return d, true
		}
		return Decision{Action: Change, Consented: true, Replace: workers, Message: "making again: " + strings.Join(workers, ", ")}, true
	}
	d := refuse(ExitServer, "cloud", "%s is established and a server of it is missing or rebuilt", s.Name)
	d.Details = details
	for _, h := range slices.Concat(core, rebuilt) {
		d.Hints = append(d.Hints, "hk node replace "+s.Name+"/"+h)
	}
	if len(workers) > 0 {
		d.Hints = append(d.Hints, "hk build "+s.Name+" --update makes missing workers again")
	}
	return d, true
}

func nobodyHome(s *Situation) (Decision, bool) {
	n := 0
	var details []string
	for _, h := range s.Hosts {
		if !h.Exists || !h.Known {
			continue
		}
		n++
		if h.Down == "" {
			return Decision{}, false
		}
		details = append(details, h.Host+": "+h.Down)
	}
	if n == 0 {
		return Decision{}, false
	}
	d := refuse(ExitSSH, "ssh", "no host of %s can be reached", s.Name)
	d.Details = details
	d.Hints = []string{"check that the servers are on and that this computer may reach them by SSH"}
	return d, true
}

func otherIntent(s *Situation) (Decision, bool) {
	if s.Intent == nil || s.Intent.Digest == s.ConfigDigest || s.Ask.Update {
		return Decision{}, false
	}
	return Decision{
		Action: AskFirst, Exit: ExitConsent, World: "config",
		Message: fmt.Sprintf("run %s of %s was agreed to with another config and has not ended", s.Intent.RunID, s.Name),
		Hints: []string{
			"put that config back to let the run go on",
			"hk build " + s.Name + " --update goes on with this config",
			"hk build " + s.Name + " --abandon " + s.Intent.RunID + " drops the run",
		},
	}, true
}

func versionChange(s *Situation) (Decision, bool) {
	if !s.Ask.Update {
		return Decision{}, false
	}
	for _, c := range s.Diff {
		if c.Field != "kubernetes.version" {
			continue
		}
		d := refuse(ExitConfig, "config", "changing kubernetes.version from %s to %s is an upgrade, which this hk cannot do yet", c.Old, c.New)
		d.Hints = []string{"set kubernetes.version back to " + c.Old}
		return d, true
	}
	return Decision{}, false
}

func needsConsent(s *Situation) (Decision, bool) {
	if s.Ask.Update {
		return s.removalNeedsName()
	}
	if s.resumes() {
		return Decision{}, false
	}
	d := Decision{Action: AskFirst, Exit: ExitConsent, World: "config"}
	if asks := s.Diff; len(asks) > 0 {
		d.Message = fmt.Sprintf("the config of %s differs from the applied one", s.Name)
		for _, c := range asks {
			d.Details = append(d.Details, c.String())
		}
		for _, h := range s.unwanted() {
			d.Details = append(d.Details, h+" is removed")
		}
		d.Hints = []string{"hk plan " + s.Name + " shows what would run", s.consent() + " carries it out"}
		return d, true
	}
	if len(s.Ask.Recipes) > 0 {
		d.Message = fmt.Sprintf("this hk (%s) does some tasks of %s in another way than the one that built it", s.Version, s.Name)
		d.Details = s.Ask.Recipes
		d.Hints = []string{"hk build " + s.Name + " --update runs them"}
		return d, true
	}
	if len(s.unwanted()) > 0 {
		return s.askRemoval(), true
	}
	return Decision{}, false
}

// removalNeedsName: hosts whose data is lost go only when the cluster's name
// was given.
func (s *Situation) removalNeedsName() (Decision, bool) {
	if s.Ask.Confirm || s.resumes() || len(s.losing()) == 0 {
		return Decision{}, false
	}
	return s.askRemoval(), true
}

func consented(s *Situation) (Decision, bool) {
	if s.resumes() && !s.Ask.Update && len(s.Ask.Forced) == 0 {
		return Decision{
			Action: Change, Resume: s.Intent,
			Message: fmt.Sprintf("going on with run %s of %s", s.Intent.RunID, s.Name),
		}, true
	}
	if s.Ask.Update && (len(s.Diff) > 0 || len(s.Ask.Recipes) > 0 || len(s.unwanted()) > 0 || s.Intent != nil) {
		return Decision{Action: Change, Consented: true, Message: "changing " + s.Name}, true
	}
	if len(s.Ask.Forced) > 0 {
		return Decision{Action: Change, Consented: true, Message: "forcing " + strings.Join(s.Ask.Forced, ", ")}, true
	}
	return Decision{}, false
}

func keep(s *Situation) (Decision, bool) {
	return Decision{Action: Keep, Message: s.Name + " is established"}, true
}
