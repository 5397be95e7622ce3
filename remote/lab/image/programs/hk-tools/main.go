// Command hk-tools is a small HTTP server for checks inside a cluster.
//
//	GET /        host name of the server and address of the client as it sees it, as JSON
//	GET /bytes   10 MiB, the same ones every time; ?n= asks for another number
//	POST /bytes  reads the body and answers with its length and SHA-256
//	GET /healthz ok
//
// It listens on the address given as its argument, :8080 without one.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// defaultBytes is the size of the body that /bytes serves.
const defaultBytes = 10 << 20

func main() {
	addr := ":8080"
	if len(os.Args) == 3 && os.Args[1] == "get" {
		if err := get(os.Args[2], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "hk-tools:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	server := &http.Server{Addr: addr, Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, "hk-tools: listening on", addr)
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "hk-tools:", err)
		os.Exit(1)
	}
}

// get writes what a URL answers: a client for checks from inside a pod (the
// static busybox's own crashes where there is no C library to load).
func get(url string, to io.Writer) error {
	client := &http.Client{Timeout: 30 * time.Second}
	resp, err := client.Get(url) //nolint:noctx,gosec // the timeout bounds it; asking any URL is its job
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", whoami)
	mux.HandleFunc("GET /bytes", serveBytes)
	mux.HandleFunc("POST /bytes", takeBytes)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

func whoami(w http.ResponseWriter, r *http.Request) {
	host, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, map[string]any{"hostname": host, "client": client, "node": os.Getenv("NODE_NAME")})
}

func serveBytes(w http.ResponseWriter, r *http.Request) {
	n := int64(defaultBytes)
	if q := r.FormValue("n"); q != "" {
		var err error
		if n, err = strconv.ParseInt(q, 10, 64); err != nil || n < 0 {
			http.Error(w, "n must be a number of bytes", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.Copy(w, io.LimitReader(&pattern{}, n)) // the client went away: nobody to tell
}

func takeBytes(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, map[string]any{"bytes": n, "sha256": hex.EncodeToString(h.Sum(nil))})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went away: nobody to tell
}

// line is what pattern repeats.
const line = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+\n"

// pattern is an endless reader of one printable line; at is the place in it, so that
// the bytes do not depend on the sizes of the reads.
type pattern struct{ at int }

func (p *pattern) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		k := copy(b[n:], line[p.at:])
		n += k
		p.at = (p.at + k) % len(line)
	}
	return n, nil
}
