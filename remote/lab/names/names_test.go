package names

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func ask(t *testing.T, s *Server, name string, typ dnsmessage.Type) (dnsmessage.RCode, []dnsmessage.Resource) {
	t.Helper()
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}},
	}
	raw, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(s.answer(raw)); err != nil {
		t.Fatal(err)
	}
	if m.ID != 7 || !m.Response || len(m.Questions) != 1 {
		t.Fatalf("answer: %+v", m.Header)
	}
	return m.RCode, m.Answers
}

func TestAnswers(t *testing.T) {
	s := &Server{}
	if code, _ := ask(t, s, "a.", dnsmessage.TypeA); code != dnsmessage.RCodeNameError {
		t.Errorf("before any name is set: %s", code)
	}
	s.Set(map[string]netip.Addr{"Demo-master-1": netip.MustParseAddr("198.18.0.10")})
	code, rr := ask(t, s, "demo-MASTER-1.", dnsmessage.TypeA)
	if code != dnsmessage.RCodeSuccess || len(rr) != 1 {
		t.Fatalf("a known name: %s, %d answers", code, len(rr))
	}
	if a, ok := rr[0].Body.(*dnsmessage.AResource); !ok || netip.AddrFrom4(a.A).String() != "198.18.0.10" {
		t.Errorf("its address: %v", rr[0].Body)
	}
	// Known, but without an IPv6 address: not "no such name", or resolvers stop there.
	if code, rr := ask(t, s, "demo-master-1.", dnsmessage.TypeAAAA); code != dnsmessage.RCodeSuccess || len(rr) != 0 {
		t.Errorf("AAAA of a known name: %s, %d answers", code, len(rr))
	}
	if code, _ := ask(t, s, "registry.k8s.io.", dnsmessage.TypeA); code != dnsmessage.RCodeNameError {
		t.Errorf("a name outside: %s", code)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"))
	s := &Server{}
	s.Set(map[string]netip.Addr{"a": netip.MustParseAddr("198.18.0.10")})
	f.Fuzz(func(_ *testing.T, q []byte) { s.answer(q) })
}
