package main

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return body
}

func TestServer(t *testing.T) {
	s := httptest.NewServer(handler())
	defer s.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var who map[string]string
	if err := json.Unmarshal(fetch(t, s.URL+"/"), &who); err != nil {
		t.Fatal(err)
	}
	if who["hostname"] != host || who["client"] != "127.0.0.1" {
		t.Errorf("whoami = %v", who)
	}
	body := fetch(t, s.URL+"/bytes")
	if len(body) != 10<<20 || sha256.Sum256(body) != sha256.Sum256([]byte(strings.Repeat(line, len(body)/len(line)))) {
		t.Errorf("/bytes gave %d bytes, or others than the pattern", len(body))
	}
	if n := len(fetch(t, s.URL+"/bytes?n=70")); n != 70 {
		t.Errorf("asked for 70 bytes, got %d", n)
	}
	resp, err := http.Post(s.URL+"/bytes", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Bytes  int
		SHA256 string
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Bytes != 5 || !strings.HasPrefix(got.SHA256, "2cf24dba") {
		t.Errorf("POST /bytes = %+v, %v", got, err)
	}
}
