package provision

import (
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"hk/tasks"
	"hk/tasks/host"
)

//go:embed files/user-data.yaml
var userDataText string

// newHostRecord draws everything that is random about a host at once: the
// throw-away key that travels in user data, the final one whose hash goes onto
// the server's label in the same call, and the installation ID.
func newHostRecord(name string, index int) (tasks.HostRecord, error) {
	rec := tasks.HostRecord{Host: name, Index: index}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return rec, fmt.Errorf("drawing an installation ID: %w", err)
	}
	rec.Installation = hex.EncodeToString(id)
	var err error
	if rec.HostKeyPEM, rec.HostKey, err = newHostKey(); err != nil {
		return rec, err
	}
	rec.ThrowawayPEM, rec.Throwaway, err = newHostKey()
	return rec, err
}

// newHostKey is an Ed25519 key: private half as OpenSSH writes it, public half
// in authorized_keys form.
func newHostKey() (private, public string, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("drawing a host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		return "", "", fmt.Errorf("encoding a host key: %w", err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", fmt.Errorf("encoding a host key: %w", err)
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p))), nil
}

// userData hands the throw-away host key over and nothing else: pods may read
// it, and so may everybody with access to the project.
func userData(rec tasks.HostRecord) string {
	return host.Fill(userDataText,
		"PRIVATE", "    "+strings.ReplaceAll(strings.TrimSpace(rec.ThrowawayPEM), "\n", "\n    "),
		"PUBLIC", rec.Throwaway)
}
