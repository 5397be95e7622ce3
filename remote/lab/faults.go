package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// AddFault adds a fault to a running lab and returns it with its ID.
func AddFault(ctx context.Context, in *Info, f Fault) (Fault, error) {
	var out Fault
	err := faultCall(ctx, in, http.MethodPost, "", f, &out)
	return out, err
}

// Faults lists a running lab's faults.
func Faults(ctx context.Context, in *Info) ([]Fault, error) {
	var out struct{ Faults []Fault }
	err := faultCall(ctx, in, http.MethodGet, "", nil, &out)
	return out.Faults, err
}

// RemoveFault removes one fault, or all of them if id is 0.
func RemoveFault(ctx context.Context, in *Info, id int64) error {
	rest := ""
	if id != 0 {
		rest = fmt.Sprintf("/%d", id)
	}
	return faultCall(ctx, in, http.MethodDelete, rest, nil, nil)
}

func faultCall(ctx context.Context, in *Info, method, rest string, body, out any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(in.Endpoint, "/v1")+"/_lab/faults"+rest, r)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+in.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking lab %s: %w", in.Name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		var e struct{ Error struct{ Message string } }
		_ = json.Unmarshal(b, &e)
		return fmt.Errorf("lab %s: %s", in.Name, e.Error.Message)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	return json.Unmarshal(b, out)
}
