package ssh

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"hk/remote"
)

// The program that serves a host's requests, in the order its parts are run.
// Each part is a file so that each can be read on its own.
var (
	//go:embed agent/boot.py
	partBoot string
	//go:embed agent/core.py
	partCore string
	//go:embed agent/facts.py
	partFacts string
	//go:embed agent/serve.py
	partServe string
	//go:embed agent/files.py
	partFiles string
	//go:embed agent/jobunit.py
	partJobUnit string
	//go:embed agent/system.py
	partSystem string
	//go:embed agent/jobs.py
	partJobs string
	//go:embed agent/install.py
	partInstall string
)

// boot reads the program from stdin: a line of lengths and hashes, then the part
// that gets the others compiled, the part that runs at once and the part for
// later. It is the only text that passes a shell, and it is a constant.
const boot = `import sys;r=sys.stdin.buffer;n=r.readline().decode().split();b=r.read(int(n[0]));PARTS=[(n[2],r.read(int(n[1]))),(n[4],r.read(int(n[3])))];exec(b)`

// mark separates what login scripts printed from the program's frames.
const mark = "\x00hk-agent\n"

const (
	maxNoise = 64 << 10  // bytes of login noise looked through for the mark
	maxFrame = 256 << 20 // a longer frame is a broken one
)

// program returns what boot reads.
func program() []byte {
	early := partCore + "\n" + partFacts + "\n" + partServe
	later := strings.Join([]string{partFiles, partJobUnit, partSystem, partJobs, partInstall}, "\n")
	return fmt.Appendf(nil, "%d %d %x %d %x\n%s%s%s", len(partBoot), len(early), sha256.Sum256([]byte(early)),
		len(later), sha256.Sum256([]byte(later)), partBoot, early, later)
}

// errLost is wrapped by errors of calls whose answer will never come because
// the connection is gone. Whether the host did the work is not known.
var errLost = errors.New("connection lost")

// request is one frame to the host.
type request struct {
	ID uint64 `json:"id"`
	Op string `json:"op"`
	Q  any    `json:"q,omitempty"`
}

// reply is one frame from the host: an answer, an error, or a line of a log.
type reply struct {
	ID  uint64          `json:"id"`
	OK  json.RawMessage `json:"ok"`
	Err *wireError      `json:"err"`
	Log *string         `json:"log"`
}

// wireError is an error as the program on the host tells it.
type wireError struct {
	Message string       `json:"message"`
	Kind    string       `json:"kind"` // failed, notfound, stale, timeout, died, cancelled, bug
	Stderr  string       `json:"stderr"`
	Code    int          `json:"code"`
	Again   bool         `json:"again"`
	Applied *wireApplied `json:"applied"`
}

func (e *wireError) Error() string { return e.Message }

// Unwrap gives callers the sentinel they branch on.
func (e *wireError) Unwrap() error {
	switch e.Kind {
	case "notfound":
		return remote.ErrNotFound
	case "stale":
		return remote.ErrStaleGeneration
	case "timeout":
		return context.DeadlineExceeded
	}
	return nil
}

// agent is the hk side of the program on a host: it gives requests numbers and
// hands answers, which come in any order, to those who wait for them.
type agent struct {
	out  chan []byte
	dead chan struct{} // closed when no answer can come any more

	mu    sync.Mutex
	next  uint64
	calls map[uint64]chan reply
	cause error // why it is dead
}

func newAgent() *agent {
	return &agent{out: make(chan []byte), dead: make(chan struct{}), calls: map[uint64]chan reply{}}
}

// start sends the program and returns after its first word. The two
// goroutines end when w and r are closed.
func (a *agent) start(ctx context.Context, w io.WriteCloser, r io.Reader) error {
	hello := make(chan reply, 1)
	a.calls[0] = hello
	go a.write(w, program())
	go a.read(bufio.NewReaderSize(r, 64<<10))
	select {
	case <-hello:
		return nil
	case <-a.dead:
		return a.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *agent) write(w io.WriteCloser, first []byte) {
	defer func() { _ = w.Close() }()
	data := first
	for {
		if _, err := w.Write(data); err != nil {
			a.fail(err)
			return
		}
		select {
		case data = <-a.out:
		case <-a.dead:
			return
		}
	}
}

func (a *agent) read(r io.Reader) {
	if err := skipNoise(r); err != nil {
		a.fail(err)
		return
	}
	for {
		f, err := readFrame(r)
		if err != nil {
			a.fail(err)
			return
		}
		a.mu.Lock()
		c := a.calls[f.ID]
		if f.Log == nil {
			delete(a.calls, f.ID)
		}
		a.mu.Unlock()
		if c == nil {
			continue
		}
		if f.Log != nil {
			select {
			case c <- *f: // a reader too slow loses lines, never answers
			default:
			}
			continue
		}
		deliver(c, *f)
	}
}

// deliver makes room for the answer by dropping a line of log, if it must. The
// channel has one sender, so the second send cannot block.
func deliver(c chan reply, f reply) {
	select {
	case c <- f:
	default:
		select {
		case <-c:
		default:
		}
		c <- f
	}
}

func skipNoise(r io.Reader) error {
	seen := 0
	one := make([]byte, 1)
	for range maxNoise {
		if _, err := io.ReadFull(r, one); err != nil {
			return err
		}
		switch one[0] {
		case mark[seen]:
			seen++
		case mark[0]:
			seen = 1
		default:
			seen = 0
		}
		if seen == len(mark) {
			return nil
		}
	}
	return errors.New("the host's login scripts print without end")
}

func readFrame(r io.Reader) (*reply, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	f := new(reply)
	if err := json.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("a frame that is not JSON: %w", err)
	}
	return f, nil
}

// fail ends the agent; the first cause stays.
func (a *agent) fail(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause != nil {
		return
	}
	if cause == nil || errors.Is(cause, io.EOF) {
		cause = errors.New("closed by the host")
	}
	a.cause = fmt.Errorf("%w: %w", errLost, cause)
	close(a.dead)
}

func (a *agent) reason() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

// call sends a request and waits for its answer. With ctx done the host is told
// and the answer is not waited for.
func (a *agent) call(ctx context.Context, op string, q, result any, log func(string)) error {
	c := make(chan reply, 64)
	a.mu.Lock()
	a.next++
	id := a.next
	a.calls[id] = c
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.calls, id)
		a.mu.Unlock()
	}()
	if err := a.send(ctx, request{ID: id, Op: op, Q: q}); err != nil {
		return err
	}
	for {
		select {
		case f := <-c:
			if f.Log != nil {
				if log != nil {
					log(*f.Log)
				}
				continue
			}
			if f.Err != nil {
				return f.Err
			}
			return json.Unmarshal(f.OK, result)
		case <-a.dead:
			return a.reason()
		case <-ctx.Done():
			go a.cancel(context.WithoutCancel(ctx), id)
			return ctx.Err()
		}
	}
}

// cancel tells the host that nobody waits any more.
func (a *agent) cancel(ctx context.Context, id uint64) {
	_ = a.send(ctx, request{Op: "cancel", Q: map[string]uint64{"id": id}})
}

func (a *agent) send(ctx context.Context, q request) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	frame := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	frame = append(frame, body...)
	select {
	case a.out <- frame:
		return nil
	case <-a.dead:
		return a.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}
