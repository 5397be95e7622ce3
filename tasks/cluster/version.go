package cluster

import "github.com/Masterminds/semver/v3"

// newer reports whether version a of hk is newer than b. Versions that are not
// semantic ones (a build from a checkout) compare with nothing.
func newer(a, b string) bool {
	va, err := semver.NewVersion(a)
	if err != nil {
		return false
	}
	vb, err := semver.NewVersion(b)
	return err == nil && va.GreaterThan(vb)
}

// newest is the newer of two versions; one that is not semantic gives way.
func newest(a, b string) string {
	if _, err := semver.NewVersion(a); err != nil || newer(b, a) {
		return b
	}
	return a
}
