package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// manifestVersion is raised when an older hk would misread a unit.
const manifestVersion = 1

const manifestFile = "manifest.json"

// Mark says that something was seen alive for the first time.
type Mark struct {
	Generation uint64    `json:"generation"`
	Time       time.Time `json:"time"`
}

// Intent is what a consented run set out to do; it is open until a build of the
// same config ends without a failure (ENGINE, Running).
type Intent struct {
	RunID string `json:"run_id"`
	// Tasks are forced; those with a record of this generation are done.
	Tasks      []string  `json:"tasks"`
	Generation uint64    `json:"generation"`
	Digest     string    `json:"config_digest"` // of the consented config
	Config     string    `json:"config"`        // the consented config itself
	Started    time.Time `json:"started"`
}

// Manifest describes a credential unit: whose it is, what is in it, and how far
// the cluster has come. It is written last, so it vouches for the files.
//
// A change of files is three steps: the manifest with the hashes to come beside
// the ones that hold (Next), the files, the manifest with the new hashes. After
// a crash at any point each file is either what it was or what it was to
// become, and both are known to the manifest.
type Manifest struct {
	V          int              `json:"v"`
	UID        string           `json:"uid"`
	Name       string           `json:"name"`
	Created    time.Time        `json:"created"`
	Version    string           `json:"hk_version"` // of the hk that wrote last
	Generation uint64           `json:"generation"`
	Born       *Mark            `json:"born"`
	EtcdBorn   *Mark            `json:"etcd_born"`
	Destroying *time.Time       `json:"destroying"`
	Intent     *Intent          `json:"intent"`
	Files      map[string]Entry `json:"files"`
}

// Entry is one file of a unit.
type Entry struct {
	SHA256  string     `json:"sha256"`            // "" for a file that is just being added
	Next    string     `json:"next,omitempty"`    // what it is being replaced with
	KeyID   string     `json:"key_id,omitempty"`  // of keys, certificates and secrets
	Expires *time.Time `json:"expires,omitempty"` // of certificates
	Pair    string     `json:"pair,omitempty"`    // counts only if this file is there too
	Made    string     `json:"made,omitempty"`    // name of a key just made, of which nobody was told yet
}

func (m *Manifest) encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		panic("bug: encoding a manifest: " + err.Error()) // only plain values
	}
	return b.Bytes()
}

func (m *Manifest) clone() Manifest {
	c := *m
	c.Files = maps.Clone(m.Files)
	if c.Files == nil {
		c.Files = map[string]Entry{}
	}
	return c
}

func sumOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// judged is what the files of a unit amount to.
type judged struct {
	m     Manifest          // as it ought to be
	files map[string][]byte // those that count
	// untold are keys that an interrupted write still made durable: nobody has
	// been told of them.
	untold   []KeyCreated
	warnings []string // what was changed by hand and does no harm
}

// judge reads the manifest of a unit and checks every file against it.
func judge(place string, files map[string][]byte) (*judged, error) {
	m, err := decodeManifest(place, files)
	if err != nil {
		return nil, err
	}
	j := &judged{m: m.clone(), files: map[string][]byte{}}
	dropped := map[string]bool{}
	for name, e := range m.Files {
		data, have := files[name]
		sum := sumOf(data)
		made := e.Made
		e.Pair, e.Made = "", ""
		switch {
		case e.SHA256 == "" && (!have || sum != e.Next):
			// It was being added and did not get there whole: nobody has ever
			// been given it.
			dropped[name] = true
			delete(j.m.Files, name)
			continue
		case have && e.Next != "" && sum == e.Next:
			if made != "" {
				j.untold = append(j.untold, KeyCreated{made, e.KeyID})
			}
			e.SHA256, e.Next = e.Next, ""
		case have && sum == e.SHA256:
			e.Next = ""
		case have && derived(name):
			j.warnings = append(j.warnings, fmt.Sprintf("%s/%s was changed by hand", place, name))
			e.SHA256, e.Next = sum, ""
		case !have && derived(name):
			j.warnings = append(j.warnings, fmt.Sprintf("%s/%s is gone; a build makes it again", place, name))
			delete(j.m.Files, name)
			continue
		default:
			return nil, damaged(place, name, have, &m)
		}
		j.m.Files[name], j.files[name] = e, data
	}
	for name, e := range m.Files {
		if e.SHA256 == "" && dropped[e.Pair] {
			delete(j.m.Files, name)
			delete(j.files, name)
		}
	}
	slices.Sort(j.warnings)
	slices.SortFunc(j.untold, func(a, b KeyCreated) int { return strings.Compare(a.Name, b.Name) })
	return j, nil
}

func decodeManifest(place string, files map[string][]byte) (m Manifest, err error) {
	raw, ok := files[manifestFile]
	if !ok {
		return m, foreign(place, "it has no "+manifestFile, "move it away, or set HK_HOME to another directory")
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, foreign(place, manifestFile+" cannot be read: "+err.Error(),
			"put back a copy of the directory, or move it away: hk fetches the unit from a master again")
	}
	if m.V > manifestVersion {
		return m, &Refusal{
			Exit: ExitConfig, World: "config",
			Message: fmt.Sprintf("%s was written by a newer hk (%s, format %d)", place, m.Version, m.V),
			Hints:   []string{"use hk " + m.Version + " or newer"},
		}
	}
	if m.V < 1 || m.UID == "" || m.Name == "" {
		return m, foreign(place, manifestFile+" names no cluster", "move it away, or set HK_HOME to another directory")
	}
	return m, nil
}

// derived reports whether a file can be made again from the rest of the unit.
func derived(name string) bool {
	switch name {
	case fileAdmin, "super-admin.conf", OperatorKey, fileKnownHosts, fileEtcdClient + ".crt", fileEtcdClient + ".key", fileLock, fileApplied:
		return true
	}
	return false
}

func damaged(place, name string, have bool, m *Manifest) error {
	why := fmt.Sprintf("%s is missing", name)
	if have {
		why = fmt.Sprintf("%s is not the file its manifest describes", name)
	}
	return &Refusal{
		Exit: ExitState, World: "state",
		Message: fmt.Sprintf("the credential unit %s is damaged: %s", place, why),
		Details: []string{fmt.Sprintf("cluster %s, UID %s, written by hk %s", m.Name, m.UID, m.Version)},
		Hints: []string{
			"put the file back from a copy; every master of the cluster keeps the whole unit in " + HostUnitDir,
			"nothing was changed: hk never replaces keys that may be in use",
		},
	}
}
