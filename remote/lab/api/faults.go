package api

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"hk/remote/lab/state"
)

// Fault is a fault as it goes over the wire; see lab.Fault.
type Fault struct {
	ID      int64  `json:"id"`
	Match   string `json:"match"`
	Nth     int    `json:"nth,omitempty"`
	Every   bool   `json:"every,omitempty"`
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Reset   bool   `json:"reset,omitempty"`
	Lost    bool   `json:"lost,omitempty"`
	DelayMS int    `json:"delay_ms,omitempty"`
	Seen    int    `json:"seen"`
	Hits    int    `json:"hits"`
}

// withFaults lets matching faults act on a request, around what answers it.
func (s *Server) withFaults(w http.ResponseWriter, r *http.Request, answer func(http.ResponseWriter)) {
	hit, err := s.hitFaults(r.Method + " " + r.URL.Path)
	if err != nil {
		replyError(w, err)
		return
	}
	lost := false
	for _, f := range hit {
		if f.DelayMS > 0 && !s.pause(time.Duration(f.DelayMS)*time.Millisecond) {
			break
		}
		lost = lost || f.Lost
		switch {
		case f.Reset:
			cut(w)
			return
		case f.Code != "" || f.Status != 0:
			code := f.Code
			if code == "" {
				code = "server_error"
			}
			e := fail(code, "fault %d of the lab", f.ID)
			if f.Status != 0 {
				e.Status = f.Status
			}
			replyError(w, e)
			return
		}
	}
	if lost {
		answer(&nowhere{header: http.Header{}})
		cut(w)
		return
	}
	answer(w)
}

// cut resets the connection: the client reads an error, no answer and no end.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http then closes it
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// nowhere takes an answer that the client never gets.
type nowhere struct {
	header http.Header
	bytes.Buffer
}

func (n *nowhere) Header() http.Header { return n.header }
func (n *nowhere) WriteHeader(int)     {}

// hitFaults counts the request at every fault it matches and returns those that
// act on it.
func (s *Server) hitFaults(req string) ([]state.Fault, error) {
	var any bool
	s.Store.View(func(t *state.Tables) { any = t.Faults.Len() > 0 })
	if !any {
		return nil, nil
	}
	var hit []state.Fault
	err := s.Store.Update(func(tx *state.Tx) error {
		for _, f := range tx.Faults.All() {
			re, err := regexp.Compile(f.Match)
			if err != nil || !re.MatchString(req) {
				continue
			}
			acts := f.Every || f.Seen+1 == f.Nth
			err = state.Edit(tx, tx.Faults, f.ID, func(row *state.Fault) {
				row.Seen++
				if acts {
					row.Hits++
				}
			})
			if err != nil {
				return err
			}
			if acts {
				hit = append(hit, *f)
			}
		}
		return nil
	})
	return hit, err
}

// serveLab answers what belongs to the lab and not to the cloud it plays. It needs
// a token too, but costs no request of the rate limit and is not logged.
func (s *Server) serveLab(w http.ResponseWriter, r *http.Request, ok bool) {
	if r.URL.Path == "/_lab/ping" {
		reply(w, http.StatusOK, map[string]bool{"lab": true})
		return
	}
	if !ok {
		replyError(w, fail("unauthorized", "unable to authenticate"))
		return
	}
	rest, isFaults := strings.CutPrefix(r.URL.Path, "/_lab/faults")
	if !isFaults {
		replyError(w, fail("not_found", "no such page"))
		return
	}
	switch {
	case r.Method == http.MethodGet && rest == "":
		reply(w, http.StatusOK, map[string]any{"faults": s.faults()})
	case r.Method == http.MethodPost && rest == "":
		s.addFault(w, r)
	case r.Method == http.MethodDelete:
		s.removeFaults(w, strings.TrimPrefix(rest, "/"))
	default:
		replyError(w, fail("method_not_allowed", "method not allowed"))
	}
}

func (s *Server) faults() []Fault {
	out := []Fault{}
	s.Store.View(func(t *state.Tables) {
		for _, f := range t.Faults.All() {
			out = append(out, Fault(*f))
		}
	})
	return out
}

func (s *Server) addFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
		replyError(w, fail("json_error", "%v", err))
		return
	}
	if _, err := regexp.Compile(f.Match); err != nil || f.Match == "" {
		replyError(w, invalid("match", "must be a regular expression over 'METHOD /path'"))
		return
	}
	if !f.Every && f.Nth < 1 {
		f.Nth = 1
	}
	err := s.Store.Update(func(tx *state.Tx) error {
		f.ID, f.Seen, f.Hits = tx.NewID(), 0, 0
		row := state.Fault(f)
		state.Put(tx, tx.Faults, f.ID, &row)
		return nil
	})
	if err != nil {
		replyError(w, err)
		return
	}
	reply(w, http.StatusCreated, f)
}

func (s *Server) removeFaults(w http.ResponseWriter, which string) {
	err := s.Store.Update(func(tx *state.Tx) error {
		if which == "" {
			for _, f := range tx.Faults.All() {
				state.Delete(tx, tx.Faults, f.ID)
			}
			return nil
		}
		id, err := strconv.ParseInt(which, 10, 64)
		if err != nil {
			return fail("not_found", "no fault %s", which)
		}
		if _, ok := tx.Faults.Get(id); !ok {
			return fail("not_found", "no fault %d", id)
		}
		state.Delete(tx, tx.Faults, id)
		return nil
	})
	if err != nil {
		replyError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
