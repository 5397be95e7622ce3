package hcloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote"
)

// Codes for which trying again can help, and the rest for which it cannot. What
// is missing here and came with a 5xx status helps too. resource_unavailable is
// not among them: places come back after hours, another type or location is the
// answer. Neither is uniqueness_error, where the caller looks up whose it is.
var again = map[hcloud.ErrorCode]bool{
	hcloud.ErrorCodeRateLimitExceeded: true,
	hcloud.ErrorCodeConflict:          true,
	hcloud.ErrorCodeLocked:            true,
	hcloud.ErrorCodeBadGateway:        true,
	hcloud.ErrorCodeTimeout:           true,
	hcloud.ErrorCodeMaintenance:       true,
	hcloud.ErrorCodeServerError:       true,
	hcloud.ErrorCodeServiceError:      true,
	hcloud.ErrorCodeRobotUnavailable:  true,
	hcloud.ErrorCodeNoSubnetAvailable: true,
	hcloud.ErrorCodeIPNotAvailable:    true,
	hcloud.ErrorCodeResourceInUse:     true,
	"unavailable":                     true,
	"action_lost":                     true,
}

// settles are codes that pass by themselves when something already begun has
// ended; waiting for that is this client's business, up to so long.
var settles = map[hcloud.ErrorCode]time.Duration{
	hcloud.ErrorCodeLocked:            5 * time.Minute, // another action runs on the object
	hcloud.ErrorCodeConflict:          time.Minute,     // the object changed meanwhile
	hcloud.ErrorCodeResourceInUse:     time.Minute,     // a deletion has not gone through yet
	hcloud.ErrorCodeNoSubnetAvailable: 30 * time.Second,
	hcloud.ErrorCodeIPNotAvailable:    30 * time.Second,
}

// Back-off between tries.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
	readTries  = 4
)

// write does something that changes the cloud. It waits out what settles; lost
// answers go to the caller, who knows how to find out what happened.
func (c *Client) write(ctx context.Context, op string, f func(context.Context) error) error {
	return c.attempt(ctx, op, 1, f)
}

// read asks for something, and asks again if the answer was lost.
func (c *Client) read(ctx context.Context, op string, f func(context.Context) error) error {
	return c.attempt(ctx, op, readTries, f)
}

func (c *Client) attempt(ctx context.Context, op string, tries int, f func(context.Context) error) error {
	began, pause := time.Now(), firstPause
	for n := 1; ; n++ {
		err := classify(op, f(ctx))
		if err == nil || ctx.Err() != nil {
			return err
		}
		var ce *remote.CloudError
		if !errors.As(err, &ce) {
			return err
		}
		patience, settling := settles[hcloud.ErrorCode(ce.Code)]
		if !settling && (n >= tries || !ce.Again) || settling && time.Since(began) > patience {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		pause = min(lastPause, pause*2)
	}
}

// classify turns an error of the library into one that says whether trying
// again can help.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*remote.CloudError](err); ok {
		return err
	}
	out := &remote.CloudError{Op: op, Message: err.Error(), Err: err}
	var api hcloud.Error
	switch {
	case errors.As(err, &api):
		out.Code, out.Message = string(api.Code), message(&api)
		if r := api.Response(); r != nil && r.Response != nil {
			out.Status = r.StatusCode
		}
		out.Again = again[api.Code] || out.Status >= http.StatusInternalServerError
		if api.Code == hcloud.ErrorDeprecatedAPIEndpoint {
			out.Message += "; this hk is too old for the API"
		}
		if api.Code == hcloud.ErrorCodeNotFound {
			out.Err = fmt.Errorf("%w: %w", remote.ErrNotFound, err)
		}
	case errors.Is(err, hcloud.ErrStatusCode):
		var status int
		if _, e := fmt.Sscanf(err.Error(), "hcloud: "+hcloud.ErrStatusCode.Error()+" %d", &status); e == nil {
			out.Status = status
		}
		out.Again = out.Status >= http.StatusInternalServerError
	case errors.Is(err, context.Canceled):
	default:
		// No answer: refused, reset, timed out. All of hk's writes can be done
		// twice: names are unique, the rest sets a state.
		out.Again = true
	}
	return out
}

// message is the API's text without its correlation ID, which differs each
// time, but with the fields it complains of.
func message(e *hcloud.Error) string {
	d, ok := e.Details.(hcloud.ErrorDetailsInvalidInput)
	if !ok {
		return e.Message
	}
	var fields []string
	for _, f := range d.Fields {
		fields = append(fields, f.Name+": "+strings.Join(f.Messages, ", "))
	}
	return e.Message + ": " + strings.Join(fields, "; ")
}

func notFound(op string) error {
	return &remote.CloudError{Op: op, Code: "not_found", Status: http.StatusNotFound, Message: "not found", Err: remote.ErrNotFound}
}

// quiet drops the errors that say that what was wanted is so already.
func quiet(err error, codes ...hcloud.ErrorCode) error {
	if ce, ok := errors.AsType[*remote.CloudError](err); ok {
		for _, c := range codes {
			if ce.Code == string(c) {
				return nil
			}
		}
	}
	return err
}
