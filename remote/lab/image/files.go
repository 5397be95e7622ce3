package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// makeFolder makes a folder that users other than root may read: what is in roots,
// mirrors and images is public.
func makeFolder(path string) error {
	return os.MkdirAll(path, 0o755) //nolint:gosec // public, see above
}

// writePublic writes a file that users other than root may read.
func writePublic(path string, data []byte, mode fs.FileMode) error {
	return os.WriteFile(path, data, mode)
}

// closeQuietly closes a file that was only read, or whose close was checked before.
func closeQuietly(c io.Closer) { _ = c.Close() }

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
	defer closeQuietly(in)
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, st.Mode().Perm())
	if err != nil {
		return err
	}
	defer closeQuietly(out)
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

// copyTree copies a tree. Files for which link answers true become hard links to the
// originals. dst may exist if it is empty.
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
		if d.IsDir() {
			dirs = append(dirs, rel)
			if err := os.Mkdir(to, 0o700); err != nil && (rel != "." || !errors.Is(err, fs.ErrExist)) {
				return err
			}
			return nil
		}
		return copyNode(path, to, d.Type(), link(rel))
	})
	if err != nil {
		return err
	}
	// Modes and times of folders last: filling a folder changes its time.
	for _, dir := range slices.Backward(dirs) {
		if err := copyDirAttributes(filepath.Join(src, dir), filepath.Join(dst, dir)); err != nil {
			return err
		}
	}
	return nil
}

// copyNode copies or links anything but a folder.
func copyNode(src, dst string, kind fs.FileMode, link bool) error {
	switch {
	case kind == fs.ModeSymlink:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		return os.Symlink(target, dst)
	case kind == 0 && link:
		return linkFile(src, dst)
	case kind == 0:
		return copyFile(src, dst)
	case kind&fs.ModeDevice != 0:
		var st unix.Stat_t
		if err := unix.Lstat(src, &st); err != nil {
			return err
		}
		if err := unix.Mknod(dst, st.Mode, int(st.Rdev)); err != nil {
			return fmt.Errorf("making device %s: %w", dst, err)
		}
		return os.Chmod(dst, fs.FileMode(st.Mode).Perm())
	default:
		return fmt.Errorf("copying %s: it is neither file, folder, device nor symbolic link", src)
	}
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
