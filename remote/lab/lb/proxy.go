package lb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// dialTimeout is how long a target may take to accept.
const dialTimeout = time.Second

// slot is a target of one service, with the connections it has.
type slot struct {
	Target
	health Health
	conns  map[net.Conn]bool
	stop   context.CancelFunc // of its checker
}

// service is one listening port at work.
type service struct {
	mu        sync.Mutex
	conf      Service
	algorithm string
	slots     []*slot
	next      int
	listeners map[string]net.Listener
	log       func(string)
}

// pick returns the healthy targets in the order in which they are to be tried.
func (s *service) pick() []*slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var up []*slot
	n := len(s.slots)
	for i := range n {
		if x := s.slots[(s.next+i)%n]; x.health.Status == "healthy" {
			up = append(up, x)
		}
	}
	if len(up) > 0 {
		// The next connection begins after the first one tried now.
		s.next = (slices.Index(s.slots, up[0]) + 1) % n
	}
	if s.algorithm == "least_connections" {
		slices.SortStableFunc(up, func(a, b *slot) int { return len(a.conns) - len(b.conns) })
	}
	return up
}

// serve accepts until the listener is closed.
func (s *service) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // out of files: let some go
			continue
		}
		go s.proxy(conn)
	}
}

// proxy joins a client with the first target that takes it.
func (s *service) proxy(client net.Conn) {
	defer func() { _ = client.Close() }()
	s.mu.Lock()
	conf := s.conf
	s.mu.Unlock()
	for _, x := range s.pick() {
		d := net.Dialer{Timeout: dialTimeout}
		to := netip.AddrPortFrom(x.Addr, uint16(conf.Dest)).String()
		target, err := d.Dial("tcp", to)
		if err != nil {
			continue
		}
		if !s.own(x, target) {
			_ = target.Close()
			continue
		}
		if conf.ProxyProtocol {
			if _, err := io.WriteString(target, proxyHeader(client)); err != nil {
				s.disown(x, target)
				continue
			}
		}
		Join(client, target)
		s.disown(x, target)
		return
	}
}

// own notes a connection at its target, unless the target was found unhealthy in
// the meantime.
func (s *service) own(x *slot, c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.health.Status != "healthy" {
		return false
	}
	x.conns[c] = true
	return true
}

func (s *service) disown(x *slot, c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(x.conns, c)
}

// Join copies both ways until both ends are done or one breaks.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	one := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if tcp, ok := to.(*net.TCPConn); ok && err == nil {
			_ = tcp.CloseWrite()
			return
		}
		_ = a.Close()
		_ = b.Close()
	}
	wg.Go(func() { one(a, b) })
	wg.Go(func() { one(b, a) })
	wg.Wait()
}

// proxyHeader is version 1 of the PROXY protocol.
func proxyHeader(c net.Conn) string {
	src, ok1 := c.RemoteAddr().(*net.TCPAddr)
	dst, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return "PROXY UNKNOWN\r\n"
	}
	return fmt.Sprintf("PROXY TCP4 %s %s %d %d\r\n", src.IP, dst.IP, src.Port, dst.Port)
}

// tell takes a checker's verdict; connections to a target that is unhealthy now
// are cut.
func (s *service) tell(x *slot, h Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Status != x.health.Status {
		s.log(fmt.Sprintf("port %d: %s is %s %s", s.conf.Listen, x.Key, h.Status, h.Detail))
	}
	x.health = h
	if h.Status == "unhealthy" {
		x.cut()
	}
}

func (x *slot) cut() {
	for c := range x.conns {
		_ = c.Close()
	}
}

// apply brings the service to a new config: targets that stay keep their verdict
// and their connections.
func (s *service) apply(ctx context.Context, c Config, conf Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	recheck := s.conf.Check.differs(conf.Check)
	s.conf, s.algorithm = conf, c.Algorithm
	var slots []*slot
	for _, t := range c.Targets {
		i := slices.IndexFunc(s.slots, func(x *slot) bool { return x.Key == t.Key && x.Addr == t.Addr })
		var x *slot
		if i >= 0 {
			x = s.slots[i]
		} else {
			x = &slot{Target: t, conns: map[net.Conn]bool{}, health: Health{Key: t.Key, Listen: conf.Listen, Status: "unknown"}}
		}
		if x.stop == nil || recheck {
			if x.stop != nil {
				x.stop()
			}
			kctx, stop := context.WithCancel(ctx)
			x.stop = stop
			k := checker{check: conf.Check, addr: t.Addr, key: t.Key, port: conf.Listen, tell: func(h Health) {
				if kctx.Err() == nil {
					s.tell(x, h)
				}
			}}
			go k.run(kctx)
		}
		slots = append(slots, x)
	}
	for _, old := range s.slots {
		if !slices.Contains(slots, old) {
			old.stop()
			old.cut()
		}
	}
	s.slots = slots
	return s.listen(c.Listen)
}

func (c Check) differs(o Check) bool {
	same := slices.Equal(c.StatusCodes, o.StatusCodes)
	c.StatusCodes, o.StatusCodes = nil, nil
	return !same || fmt.Sprint(c) != fmt.Sprint(o)
}

// listen opens and closes listeners until there is one per address.
func (s *service) listen(addrs []string) error {
	var errs []error
	for a, l := range s.listeners {
		if !slices.Contains(addrs, a) {
			_ = l.Close()
			delete(s.listeners, a)
		}
	}
	for _, a := range addrs {
		if s.listeners[a] != nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(a, fmt.Sprint(s.conf.Listen))) //nolint:noctx // does not wait
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.listeners[a] = l
		go s.serve(l)
	}
	return errors.Join(errs...)
}

// close ends the service and all its connections.
func (s *service) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for _, x := range s.slots {
		x.stop()
		x.cut()
	}
}

func (s *service) report() []Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Health
	for _, x := range s.slots {
		out = append(out, x.health)
	}
	return out
}
