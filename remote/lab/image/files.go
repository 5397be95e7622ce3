package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// linkFile makes dst the same file as src, or a copy where the file system cannot
// link. Only for files that nobody changes in place.
func linkFile(src, dst string) error {
	err := os.Link(src, dst)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EOPNOTSUPP) {
		return copyFile(src, dst)
	}
	return err
}

// copyFile copies content, mode and owner of a regular file.
func copyFile(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, st.Mode().Perm())
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := chownLike(dst, st); err != nil {
		return err
	}
	// After chown, which clears the set-user-ID bit; and regardless of the umask.
	if err := os.Chmod(dst, st.Mode()); err != nil {
		return err
	}
	return out.Close()
}

// copyTree copies a tree. Regular files for which link answers true become hard
// links to the originals. dst may exist if it is empty.
func copyTree(src, dst string, link func(rel string) bool) error {
	var dirs []string
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		switch d.Type() {
		case fs.ModeDir:
			dirs = append(dirs, rel)
			if err := os.Mkdir(to, 0o700); err != nil && (rel != "." || !errors.Is(err, fs.ErrExist)) {
				return err
			}
			return nil
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		case 0:
			if link(rel) {
				return linkFile(path, to)
			}
			return copyFile(path, to)
		default:
			return fmt.Errorf("copying %s: it is neither file, folder nor symbolic link", path)
		}
	})
	if err != nil {
		return err
	}
	// Modes and times of folders last: filling a folder changes its time.
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := copyDirAttributes(filepath.Join(src, dirs[i]), filepath.Join(dst, dirs[i])); err != nil {
			return err
		}
	}
	return nil
}

func copyDirAttributes(src, dst string) error {
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	if err := chownLike(dst, st); err != nil {
		return err
	}
	if err := os.Chmod(dst, st.Mode()); err != nil {
		return err
	}
	return os.Chtimes(dst, st.ModTime(), st.ModTime())
}

// chownLike gives path the owner of another file, if it has a different one.
func chownLike(path string, st fs.FileInfo) error {
	want, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if int(want.Uid) == os.Geteuid() && int(want.Gid) == os.Getegid() {
		return nil
	}
	return os.Lchown(path, int(want.Uid), int(want.Gid))
}
