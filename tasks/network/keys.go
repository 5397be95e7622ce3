package network

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
)

// keyDir is Debian's place of WireGuard's files, keyFile the host's own key.
const (
	keyDir  = "/etc/wireguard"
	keyFile = keyDir + "/" + Interface + ".key"
)

type keysIn struct {
	Host string `part:"alloc:host"`
}

// keysKind draws the host's WireGuard key. A key that is there stays: the other
// hosts know its public half.
func keysKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "keys", Scope: graph.OnHost, Recipe: 1, Once: true,
		Needs: []graph.Need{{Kind: sshKind, Via: graph.Same}},
		Title: "WireGuard key",
	}, tasks.Def[keysIn]{
		Inputs: func(v *tasks.View) (keysIn, error) { return keysIn{Host: v.Host.Name}, nil },
		Declared: func(keysIn) remote.HostState {
			return remote.HostState{Files: []remote.File{
				{Path: keyDir, Mode: fs.ModeDir | 0o700},
				{Path: keyFile, Mode: 0o600, Secret: true, Keep: true, Later: true},
			}}
		},
		Run:    runKeys,
		Verify: verifyKeys,
	})
}

func runKeys(ctx context.Context, _ keysIn, e *tasks.Env) error {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("drawing a WireGuard key: %w", err)
	}
	_, err = e.Host.Apply(ctx, remote.HostState{Files: []remote.File{
		{Path: keyDir, Mode: fs.ModeDir | 0o700},
		{
			Path: keyFile, Mode: 0o600, Secret: true, Keep: true,
			Content: []byte(base64.StdEncoding.EncodeToString(key.Bytes()) + "\n"),
		},
	}})
	return err
}

func verifyKeys(ctx context.Context, _ keysIn, e *tasks.Env) (fp.Output, error) {
	b, err := e.Host.Get(ctx, keyFile)
	if err != nil {
		return nil, err
	}
	public, err := publicKey(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	return fp.Output{"public": public}, nil
}

// publicKey is the public half of a private key as `wg genkey` writes it.
func publicKey(private string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(private))
	if err != nil {
		return "", fmt.Errorf("not a WireGuard key")
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return "", fmt.Errorf("not a WireGuard key")
	}
	return base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), nil
}
