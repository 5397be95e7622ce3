package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// libraryFolders are where Debian's loader looks, in a root with merged /usr.
func libraryFolders() []string {
	return []string{"usr/lib/x86_64-linux-gnu", "usr/lib", "usr/lib64"}
}

// libraries returns the shared libraries that programs of a root need, and the
// loader, as paths in the root. Reading ELF headers instead of running ldd works for
// any root and runs nothing of it.
func libraries(root string, programs []string) ([]string, error) {
	found := map[string]bool{}
	queue := append([]string(nil), programs...)
	for len(queue) > 0 {
		program := queue[0]
		queue = queue[1:]
		needed, err := neededBy(filepath.Join(root, program))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", program, err)
		}
		for _, name := range needed {
			lib, err := findLibrary(root, name)
			if err != nil {
				return nil, fmt.Errorf("%s needs %s: %w", program, name, err)
			}
			if !found[lib] {
				found[lib] = true
				queue = append(queue, lib)
			}
		}
	}
	libs := make([]string, 0, len(found))
	for lib := range found {
		libs = append(libs, lib)
	}
	return libs, nil
}

// neededBy lists the names a program or library asks its loader for, with the
// loader itself.
func neededBy(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(f)
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, err
		}
		needed = append(needed, filepath.Base(string(name[:len(name)-1])))
	}
	return needed, nil
}

func findLibrary(root, name string) (string, error) {
	for _, dir := range libraryFolders() {
		lib := filepath.Join(dir, name)
		_, err := os.Stat(filepath.Join(root, lib))
		if err == nil {
			return lib, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fs.ErrNotExist
}
