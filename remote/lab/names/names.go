// Package names is the lab's name server. It knows the lab's servers and answers
// everything else with an immediate "no such name": programs that look up names
// which cannot be had here (kubeadm does) go on at once instead of waiting.
//
// Three rules: it never asks anybody; it answers whatever parses; it holds no state
// but the names it was given last.
package names

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Server answers queries.
type Server struct {
	known atomic.Pointer[map[string]netip.Addr]
}

// Set replaces all names.
func (s *Server) Set(names map[string]netip.Addr) {
	m := make(map[string]netip.Addr, len(names))
	for n, a := range names {
		m[strings.ToLower(strings.TrimSuffix(n, "."))] = a
	}
	s.known.Store(&m)
}

func (s *Server) lookup(name string) (netip.Addr, bool) {
	m := s.known.Load()
	if m == nil {
		return netip.Addr{}, false
	}
	a, ok := (*m)[strings.ToLower(strings.TrimSuffix(name, "."))]
	return a, ok
}

// answer makes the answer to a query, or nil if it is none.
func (s *Server) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	addr, known := s.lookup(q.Name.String())
	out := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true, Authoritative: true}
	if !known {
		out.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, out)
	b.EnableCompression()
	if b.StartQuestions() != nil || b.Question(q) != nil {
		return nil
	}
	if known && addr.Is4() && (q.Type == dnsmessage.TypeA || q.Type == dnsmessage.TypeALL) {
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}
		if b.StartAnswers() != nil || b.AResource(head, dnsmessage.AResource{A: addr.As4()}) != nil {
			return nil
		}
	}
	msg, err := b.Finish()
	if err != nil {
		return nil
	}
	return msg
}

// ServeUDP answers until the connection is closed.
func (s *Server) ServeUDP(c net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // not wrapped
				continue
			}
			return
		}
		if msg := s.answer(buf[:n]); msg != nil {
			_, _ = c.WriteTo(msg, from)
		}
	}
}

// ServeTCP answers until ctx ends and the listener is closed.
func (s *Server) ServeTCP(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			for s.one(c) {
			}
		}()
	}
}

// one answers one query of a TCP connection.
func (s *Server) one(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return false
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return false
	}
	msg := s.answer(query)
	if msg == nil {
		return false
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err == nil
}
