package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// home is $HK_HOME, or hk's folder in the XDG state directory. It need not
// exist: for all that only reads, a missing one is a normal case.
func (a *app) home() (string, error) {
	if h := a.getenv("HK_HOME"); h != "" {
		abs, err := filepath.Abs(h)
		if err != nil {
			return "", stateError("HK_HOME", err)
		}
		return abs, nil
	}
	if s := a.getenv("XDG_STATE_HOME"); filepath.IsAbs(s) {
		return filepath.Join(s, "hk"), nil
	}
	u, err := os.UserHomeDir()
	if err != nil {
		return "", &exitError{
			code: ExitState, class: classState, hint: "set HK_HOME to a directory hk may keep its state in",
			err: fmt.Errorf("finding the state directory: %w", err),
		}
	}
	return filepath.Join(u, ".local", "state", "hk"), nil
}

// writableHome is home, made if need be and tried: a full or read-only state
// directory must be told before anything is changed anywhere.
func (a *app) writableHome() error {
	h, err := a.home()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h, 0o700); err != nil {
		return stateError(h, err)
	}
	f, err := os.CreateTemp(h, ".probe-*")
	if err != nil {
		return stateError(h, err)
	}
	// A full disk still makes empty files.
	_, err = f.Write(make([]byte, 64<<10))
	err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	if err != nil {
		return stateError(h, err)
	}
	return nil
}

func stateError(what string, err error) error {
	hint := "free some space or point HK_HOME at another directory"
	if errors.Is(err, fs.ErrPermission) {
		hint = "point HK_HOME at a directory you may write to"
	}
	return &exitError{code: ExitState, class: classState, hint: hint, err: fmt.Errorf("state directory %s: %w", what, err)}
}
