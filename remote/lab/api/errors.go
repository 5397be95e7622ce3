package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Error is an answer that says no.
type Error struct {
	Status  int
	Code    string
	Message string
	Details any
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// statusOf gives each of the API's codes its HTTP status.
func statusOf(code string) int {
	switch code {
	case "unauthorized":
		return http.StatusUnauthorized
	case "forbidden", "resource_limit_exceeded", "token_readonly":
		return http.StatusForbidden
	case "not_found":
		return http.StatusNotFound
	case "method_not_allowed":
		return http.StatusMethodNotAllowed
	case "uniqueness_error", "conflict":
		return http.StatusConflict
	case "deprecated_api_endpoint":
		return http.StatusGone
	case "resource_unavailable":
		return http.StatusPreconditionFailed
	case "json_error":
		return http.StatusBadRequest
	case "locked", "protected":
		return http.StatusLocked
	case "rate_limit_exceeded":
		return http.StatusTooManyRequests
	case "server_error", "service_error", "unknown_error":
		return http.StatusInternalServerError
	case "bad_gateway":
		return http.StatusBadGateway
	case "maintenance", "unavailable":
		return http.StatusServiceUnavailable
	case "timeout":
		return http.StatusGatewayTimeout
	}
	return http.StatusUnprocessableEntity
}

func fail(code, format string, a ...any) *Error {
	return &Error{Status: statusOf(code), Code: code, Message: fmt.Sprintf(format, a...)}
}

func notFound(kind string, id int64) *Error {
	return fail("not_found", "%s with ID '%d' not found", kind, id)
}

// invalid is invalid_input about one field.
func invalid(field, format string, a ...any) *Error {
	msg := fmt.Sprintf(format, a...)
	e := fail("invalid_input", "invalid input in field '%s': [%s]", field, msg)
	e.Details = map[string]any{"fields": []any{map[string]any{"name": field, "messages": []string{msg}}}}
	return e
}

// unique is uniqueness_error about one field.
func unique(kind, field string) *Error {
	e := fail("uniqueness_error", "%s is already used", field)
	if kind != "" {
		e.Message = fmt.Sprintf("%s with the same %s already exists", kind, field)
	}
	e.Details = map[string]any{"fields": []any{map[string]any{"name": field}}}
	return e
}

// reply writes v as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":{"code":"server_error","message":"encoding the answer","details":null}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// replyError writes err as the API does; what is no API error is a fault of the lab.
func replyError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = fail("server_error", "lab: %v", err)
	}
	reply(w, e.Status, map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message, "details": e.Details}})
}
