package host

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"strings"
)

// KeyLabel is the value of remote.LabelHostKey for a host key in
// authorized_keys form: SHA-256 of the key's wire form, base32 without padding,
// lower case (52 characters; a label holds 63).
func KeyLabel(authorizedKey string) (string, error) {
	f := strings.Fields(authorizedKey)
	if len(f) < 2 {
		return "", fmt.Errorf("key %q is not in authorized_keys form", authorizedKey)
	}
	wire, err := base64.StdEncoding.DecodeString(f[1])
	if err != nil {
		return "", fmt.Errorf("key is not in authorized_keys form: %w", err)
	}
	sum := sha256.Sum256(wire)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])), nil
}
