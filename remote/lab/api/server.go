package api

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"hk/remote/lab/state"
)

// Token lets a client into a project.
type Token struct {
	ID      string // short name, for the request log
	Secret  string
	Project string
}

// Config is what a Server is made of.
type Config struct {
	Store   *state.Store
	Backend Backend
	Tokens  []Token
	// Latency gives an action's shortest duration; nil means none.
	Latency func(command string) time.Duration
	// Requests takes one line of JSON per request; nil drops them.
	Requests io.Writer
	Now      func() time.Time
	Log      func(string)
}

// Server answers the API.
type Server struct {
	Config
	mux    *http.ServeMux
	limits limiter
	reqMu  sync.Mutex

	ctx    context.Context // of all workers; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   *broadcast // rings when an action ends

	rules    serial // one firewall sync at a time
	balances serials
	power    locks // one change of a machine's power at a time
}

// New makes a Server; call Resume before serving.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = func(string) {}
	}
	if c.Latency == nil {
		c.Latency = func(string) time.Duration { return 0 }
	}
	s := &Server{Config: c, done: newBroadcast()}
	s.limits.now = c.Now
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mux = http.NewServeMux()
	s.routes()
	return s
}

// Close stops all workers and waits for them. What they were at is taken up again
// by the next Resume.
func (s *Server) Close() {
	s.cancel()
	s.wg.Wait()
}

// request is one API request on its way.
type request struct {
	*http.Request
	project string
	now     time.Time
}

// handler answers a request with a status and a body, or an error.
type handler func(r *request) (int, any, error)

// maxBody is far above any request the API takes.
const maxBody = 1 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := s.Now()
	rec := &recorder{ResponseWriter: w}
	tok, ok := s.token(r)
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				s.logRequest(r, rec, tok.ID, start)
				panic(p)
			}
			s.Log(fmt.Sprintf("bug: %s %s: %v", r.Method, r.URL.Path, p))
			replyError(rec, fmt.Errorf("bug: %v", p))
		}
		s.logRequest(r, rec, tok.ID, start)
	}()
	r.Body = http.MaxBytesReader(rec, r.Body, maxBody)
	h := rec.Header()
	h.Set("X-Correlation-Id", correlationID())
	if strings.HasPrefix(r.URL.Path, "/_lab/") {
		s.serveLab(rec, r, ok)
		return
	}
	bucket := "-" // all who have no valid token share one bucket
	if ok {
		bucket = tok.Project
	}
	if !s.limits.take(bucket, h) {
		replyError(rec, fail("rate_limit_exceeded", "API rate limit exceeded"))
		return
	}
	s.withFaults(rec, r, func(w http.ResponseWriter) { //nolint:contextcheck // the request carries it
		if !ok {
			replyError(w, fail("unauthorized", "unable to authenticate"))
			return
		}
		s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), projectKey{}, tok.Project)))
	})
}

type projectKey struct{}

func (s *Server) token(r *http.Request) (Token, bool) {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Token{ID: "-"}, false
	}
	for _, t := range s.Tokens {
		if subtle.ConstantTimeCompare([]byte(secret), []byte(t.Secret)) == 1 {
			return t, true
		}
	}
	return Token{ID: "-"}, false
}

// handle registers a handler for "METHOD /path".
func (s *Server) handle(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	s.mux.HandleFunc(method+" /v1"+path, func(w http.ResponseWriter, r *http.Request) {
		project, _ := r.Context().Value(projectKey{}).(string)
		status, body, err := h(&request{Request: r, project: project, now: s.Now().UTC()})
		switch {
		case err != nil:
			replyError(w, err)
		case body == nil:
			w.WriteHeader(status)
		default:
			if l, ok := body.(linker); ok {
				if link := l.link(r); link != "" {
					w.Header().Set("Link", link)
				}
			}
			reply(w, status, body)
		}
	})
}

// decode reads the request's JSON body into v.
func (r *request) decode(v any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		if _, tooBig := errors.AsType[*http.MaxBytesError](err); tooBig {
			return fail("invalid_input", "request body is too large")
		}
		return fail("json_error", "reading the request: %v", err)
	}
	if len(b) == 0 {
		return nil // an empty body is an empty object; required fields say the rest
	}
	if err := json.Unmarshal(b, v); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) && typ.Field != "" {
			return invalid(typ.Field, "has the wrong type")
		}
		return fail("json_error", "invalid JSON: %v", err)
	}
	return nil
}

// id reads the path's {id}.
func (r *request) id(kind string) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, fail("not_found", "%s with ID '%s' not found", kind, r.PathValue("id"))
	}
	return id, nil
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// requestLine is one line of requests.jsonl.
type requestLine struct {
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Query  string    `json:"query,omitempty"`
	Status int       `json:"status"` // 0: the connection was cut by a fault
	Token  string    `json:"token_id"`
	MS     float64   `json:"duration_ms"`
}

func (s *Server) logRequest(r *http.Request, rec *recorder, token string, start time.Time) {
	if s.Requests == nil || strings.HasPrefix(r.URL.Path, "/_lab/") {
		return
	}
	b, err := json.Marshal(requestLine{
		Time: start.UTC(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Status: rec.status, Token: token,
		MS: float64(s.Now().Sub(start).Microseconds()) / 1000,
	})
	if err != nil {
		return
	}
	s.reqMu.Lock()
	defer s.reqMu.Unlock()
	_, _ = s.Requests.Write(append(b, '\n'))
}

func correlationID() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails (Go 1.24)
	return hex.EncodeToString(b)
}
