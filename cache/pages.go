package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"syscall"
)

// bbolt trusts its file: a flipped byte in a page number makes it read beyond
// the end of its map, or walk in a circle for ever. So before a process lets
// bbolt at a file for the first time, the pages are walked here once, by their
// numbers and lengths only, with every access checked. 100,000 records take a
// few milliseconds.

const (
	pageHeader   = 16
	elementLen   = 16
	bucketHeader = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaLen     = 64
)

// pages is a file as bbolt lays it out.
type pages struct {
	data  []byte
	size  int // of a page
	high  uint64
	seen  []bool // pages reached from the root
	askew bool   // keys are out of order somewhere
}

// order is the key that went before in a bucket. The key of a branch is that of
// the first leaf below it.
type order struct {
	key    []byte
	branch bool
}

func (p *pages) after(o *order, key []byte, branch bool) {
	if o.key != nil {
		c := bytes.Compare(key, o.key)
		p.askew = p.askew || c < 0 || c == 0 && !o.branch
	}
	o.key, o.branch = key, branch
}

// checkPages returns an error if the file cannot be walked. askew says that it
// can, but that keys are out of order, so that a search would miss some. The
// file must be locked.
func checkPages(f *os.File) (askew bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	if st.Size() == 0 {
		return false, nil
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return false, fmt.Errorf("mapping: %w", err)
	}
	defer func() { _ = syscall.Munmap(data) }()
	p := &pages{data: data}
	err = p.check()
	return p.askew, err
}

var errPages = errors.New("damaged file")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errPages, fmt.Sprintf(format, args...))
}

func (p *pages) check() error {
	meta, err := p.newestMeta()
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	root, free := le.Uint64(meta[16:]), le.Uint64(meta[32:])
	p.high = le.Uint64(meta[40:])
	if p.high < 3 || p.high > uint64(len(p.data)/p.size) {
		return bad("%d pages in a file of %d bytes", p.high, len(p.data))
	}
	p.seen = make([]bool, p.high)
	if err := p.bucket(root, 0); err != nil {
		return err
	}
	return p.freelist(free)
}

// newestMeta finds the meta page bbolt would use.
func (p *pages) newestMeta() ([]byte, error) {
	le := binary.LittleEndian
	var best []byte
	// The second page begins where the first says pages end; if the first is
	// damaged, at a size that makes the second right.
	for at := 0; at+pageHeader+metaLen <= len(p.data); {
		m := p.data[at+pageHeader:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:56])
		ok := le.Uint32(m) == metaMagic && le.Uint32(m[4:]) == metaVersion && le.Uint64(m[56:]) == sum.Sum64()
		if ok && (best == nil || le.Uint64(m[48:]) > le.Uint64(best[48:])) {
			best = m
			p.size = int(le.Uint32(m[8:]))
		}
		switch {
		case at > 0 && (ok || at >= 64<<10):
			at = len(p.data)
		case ok:
			at = p.size
		case at == 0:
			at = 1 << 10
		default:
			at <<= 1
		}
	}
	if best == nil || p.size < 1<<10 || p.size > 64<<10 || p.size&(p.size-1) != 0 {
		return nil, bad("no valid meta page")
	}
	return best, nil
}

// page returns a page with its overflow, and marks it as seen.
func (p *pages) page(id uint64) ([]byte, error) {
	if id < 2 || id >= p.high {
		return nil, bad("page %d of %d", id, p.high)
	}
	b := p.data[id*uint64(p.size):]
	le := binary.LittleEndian
	more := uint64(le.Uint32(b[12:]))
	if le.Uint64(b) != id || id+more >= p.high {
		return nil, bad("page %d says it is %d and %d more", id, le.Uint64(b), more)
	}
	for i := id; i <= id+more; i++ {
		if p.seen[i] {
			return nil, bad("page %d is used twice", i)
		}
		p.seen[i] = true
	}
	return b[:(more+1)*uint64(p.size)], nil
}

// bucket walks a tree from its root page.
func (p *pages) bucket(root uint64, depth int) error {
	return p.tree(root, depth, &order{})
}

const mostDeep = 64 // pages and buckets in one another; no file comes near

func (p *pages) tree(id uint64, depth int, last *order) error {
	if depth > mostDeep {
		return bad("pages too deep in one another")
	}
	b, err := p.page(id)
	if err != nil {
		return err
	}
	return p.elements(b, id, depth, last)
}

func (p *pages) elements(b []byte, id uint64, depth int, last *order) error {
	le := binary.LittleEndian
	flags, n := le.Uint16(b[8:]), int(le.Uint16(b[10:]))
	if pageHeader+n*elementLen > len(b) || n == 0 && flags == branchPage {
		return bad("page %d has %d elements", id, n)
	}
	for i := range n {
		at := pageHeader + i*elementLen
		e := b[at:]
		switch flags {
		case branchPage:
			key, err := span(b, at, uint64(le.Uint32(e)), le.Uint32(e[4:]))
			if err != nil {
				return err
			}
			p.after(last, key, true)
			if err := p.tree(le.Uint64(e[8:]), depth+1, last); err != nil {
				return err
			}
		case leafPage:
			if err := p.leaf(b, at, id, depth, last); err != nil {
				return err
			}
		default:
			return bad("page %d is neither branch nor leaf", id)
		}
	}
	return nil
}

func (p *pages) leaf(b []byte, at int, id uint64, depth int, last *order) error {
	le := binary.LittleEndian
	e := b[at:]
	pos, keyLen, valueLen := le.Uint32(e[4:]), le.Uint32(e[8:]), le.Uint32(e[12:])
	key, err := span(b, at, uint64(pos), keyLen)
	if err != nil {
		return err
	}
	if keyLen == 0 {
		return bad("page %d: an empty key", id)
	}
	p.after(last, key, false)
	value, err := span(b, at, uint64(pos)+uint64(keyLen), valueLen)
	if err != nil || le.Uint32(e)&bucketLeaf == 0 {
		return err
	}
	if len(value) < bucketHeader {
		return bad("page %d: a bucket of %d bytes", id, len(value))
	}
	if root := le.Uint64(value); root != 0 {
		return p.bucket(root, depth+1)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || le.Uint16(inline[8:]) != leafPage {
		return bad("page %d: an inline bucket that is not a leaf", id)
	}
	return p.elements(inline, id, depth+1, &order{})
}

// span is the part of a page an element refers to, by its distance from the
// element.
func span(b []byte, at int, pos uint64, n uint32) ([]byte, error) {
	from := uint64(at) + pos
	to := from + uint64(n)
	if from < uint64(at)+elementLen || to > uint64(len(b)) {
		return nil, bad("an element ends at %d of %d", to, len(b))
	}
	return b[from:to], nil
}

// freelist checks that no page in use is listed as free: the next write would
// overwrite it.
func (p *pages) freelist(id uint64) error {
	if id == ^uint64(0) { // not kept in the file
		return nil
	}
	b, err := p.page(id)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	n, at := int(le.Uint16(b[10:])), pageHeader
	if n == 0xFFFF {
		if len(b) < pageHeader+8 {
			return bad("freelist too short")
		}
		n, at = int(le.Uint64(b[pageHeader:])), pageHeader+8
	}
	if le.Uint16(b[8:]) != freelistPage || n < 0 || n > (len(b)-at)/8 {
		return bad("freelist of %d pages", n)
	}
	for i := range n {
		free := le.Uint64(b[at+8*i:])
		if free < 2 || free >= p.high || p.seen[free] {
			return bad("page %d is free and in use", free)
		}
		p.seen[free] = true
	}
	return nil
}
