package spec

import (
	"fmt"
	"regexp"
	"strconv"
)

type version struct{ major, minor, patch int }

var versionRE = regexp.MustCompile(`^v(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})$`)

// parseVersion reads vMAJOR.MINOR.PATCH. Pre-releases are not taken: nothing
// about them was tried.
func parseVersion(s string) (version, error) {
	m := versionRE.FindStringSubmatch(s)
	if m == nil {
		return version{}, fmt.Errorf("%q is no version", s)
	}
	var v version
	for i, p := range []*int{&v.major, &v.minor, &v.patch} {
		*p, _ = strconv.Atoi(m[i+1]) // digits only, at most five
	}
	return v, nil
}

// less orders versions.
func (v version) less(o version) bool {
	if v.major != o.major {
		return v.major < o.major
	}
	if v.minor != o.minor {
		return v.minor < o.minor
	}
	return v.patch < o.patch
}
